/*
 * metrics_host.h: facts about the machine for the files of a segment: host, process, Slurm's
 * variables. Missing values are JSON null.
 */
#ifndef GPT2D_ENGINE_REPORT_METRICS_HOST_H
#define GPT2D_ENGINE_REPORT_METRICS_HOST_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/report/gpu_log.h"

/* Resources that a rank used in the steps of a segment. */
struct metrics_host_use {
	double cpu_percent; /* of one processor; nan: not known */
	/*
	 * of its GPU; without a GPU: of its node's processors on the node's first rank, else 0;
	 * nan: unknown
	 */
	double energy_j;
	double comm_s;         /* communication in a measured step, mean; nan: not known */
	int64_t standstill_ns; /* the longest time for which the process did not run; 0: none */
};

/* The counters of the processor packages (RAPL), each with the value at which it wraps. */
enum { METRICS_HOST_PACKAGES_MAX = 16 };
struct metrics_host_energy {
	int n; /* 0: none can be read */
	int64_t uj[METRICS_HOST_PACKAGES_MAX], range_uj[METRICS_HOST_PACKAGES_MAX];
};
/* root: METRICS_HOST_POWERCAP except in tests. */
#define METRICS_HOST_POWERCAP "/sys/class/powercap"
void metrics_host_read_energy(const char *root, struct metrics_host_energy *out);
/* Joules; nan: not known. The two readings must be less than one wrap apart. */
double metrics_host_energy_between(
	const struct metrics_host_energy *before, const struct metrics_host_energy *after);

/* Facts about a rank, gathered from all ranks: plain bytes, no pointers. */
struct metrics_host_rank {
	int64_t pid;
	int64_t node;           /* set by the caller; only compared */
	int64_t peak_rss_bytes; /* since metrics_host_reset_peak; 0: not known */
	char hostname[65];
	char cpus[128];                      /* affinity as a list, "0-1,4"; empty: not known */
	struct gpu_log_summary gpu;          /* set by the caller; samples 0: no GPU */
	struct metrics_host_use use;         /* set by the caller */
	int64_t waits_per_step, waits_steps; /* of struct measure_waits, set by the caller */
};
void metrics_host_read(struct metrics_host_rank *out); /* of this process, now */

/*
 * The peak of resident memory counts from here, because the process outlives its segments and
 * earlier segments must not count. 0, or a negative errno: then the old peak stays.
 */
int metrics_host_reset_peak(void);

/* "Linux-6.1.0-x86_64-with-glibc2.36", as Python's platform module writes it; a new reference. */
json_t *metrics_host_os(void);

/* The variable's value, or null; a new reference. */
json_t *metrics_host_variable(const char *name);

/* {NAME: value} of all variables that begin with one of the prefixes (NULL ends them). */
json_t *metrics_host_variables(const char *const *prefixes);

/* {type, job_id, nodelist, nnodes, procid, localid, partition} inside a Slurm job, null outside. */
json_t *metrics_host_scheduler(void);

#endif
