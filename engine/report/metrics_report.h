/* metrics_report.h: training_metrics.json and the summary of a segment, as JSON values. No I/O. */
#ifndef GPT2D_ENGINE_REPORT_METRICS_REPORT_H
#define GPT2D_ENGINE_REPORT_METRICS_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/report/measure.h"
#include "engine/report/metrics_host.h"
#include "kernels/kernels.h"
#include "proto/spec/spec.h"

struct metrics_log;

/* ---- facts about a segment; all pointers are borrowed for the call ---- */

/* The sizes of plan.h. */
struct metrics_plan {
	int64_t param_elems, arena_elems, reduce_elems, n_reduce, gather_elems, n_gather;
};

struct metrics_traffic {
	int64_t reduce_scatter, all_gather, all_reduce, other;
};

/* The transport of tensors; empty: not known. */
struct metrics_network {
	const char *name, *devices, *paths;
	int gpu_direct; /* 1, 0, -1: no network, or not known */
};

/* The results of a segment's checkpoints. */
struct metrics_checkpoints {
	int64_t written, lost;
	int64_t last;    /* steps of the last one that was written */
	int64_t bytes;   /* of one: all shards */
	int64_t copy_ns; /* in total: training waited while rank 0 copied its shard */
	/* in total: training waited for the previous checkpoint, or for the last one */
	int64_t wait_ns;
	int64_t write_ns; /* in total: from the copy to the manifest */
};

struct metrics_segment {
	const char *dir;  /* exists */
	const char *run;  /* the run's ID as gpt2d prints it */
	const char *name; /* the run's name */
	const char *arm;
	int64_t segment, segments, block, position, attempt;
	const char *spec_text;       /* canonical text of this arm */
	const char *spec_sha256;     /* of spec_text */
	const char *run_spec_sha256; /* of the whole run's; NULL: not known */
	const char *command_line;    /* NULL: not known */

	const struct spec_config *config;
	int world;
	int64_t model_params;
	struct metrics_plan plan;
	int64_t activations_bytes, logits_bytes; /* the first one without the logits */
	const struct measure *measure;           /* merged, at least one measured step */
	int64_t elem_bytes;                      /* of the compute type */
	int64_t device_bytes;                    /* of all of rank 0's buffers */
	int64_t train_sequences, val_sequences;  /* of the data; val 0: none */

	const struct k_device_info *device;
	const char *collectives;        /* collectives_library(); NULL with one rank */
	struct metrics_network network; /* with more than one rank */
	const char *tuning_sha256;      /* of the choices of algorithms; NULL: none */
	/* on rank 0 in this segment's training steps: planned elements of one step, sent bytes */
	struct metrics_traffic planned_elems, sent_bytes;
	const struct metrics_host_rank *ranks; /* world of them */
	/* samples of their GPUs, gpus_room apart; NULL: none, and no gpu_log.csv */
	const struct gpu_log_sample *gpus;
	size_t gpus_room;
	int threads; /* that compute, per rank */
	/* hexadecimal; NULL: not known */
	const char *data_hash, *train_sha256, *val_sha256;
	int64_t vocab_padded;
	double peak_tflops; /* of a device; 0: as its card has it */

	const struct metrics_checkpoints *checkpoints; /* NULL: the segment wrote none */
	bool validated;                                /* the spec requests val_loss */
	double val_loss;
	int64_t init_ns;   /* parameters from the seed */
	int64_t switch_ns; /* last step of the segment before to the first of this; -1: none */
	int64_t started_utc_ns;
	int64_t wall_ns; /* segment.start to now */
	const struct metrics_log *log;
	const char
		*partial; /* "failed", "cancelled", "interrupted": no marker is written; NULL: all
			     work was done */
	const char *partial_reason; /* "code: text"; may be empty or NULL */
};

/* The written files, for segment.artifact and the summary. */
enum { METRICS_FILES = 9 };
struct metrics_file {
	const char *name;
	int64_t bytes;
};
struct metrics_files {
	size_t n;
	struct metrics_file file[METRICS_FILES];
};

/* More steps than this are not listed individually; a "..._note" says so. */
enum { METRICS_REPORT_STEPS_MAX = 100000 };
/* Maximum number of listed values that are not finite. */
enum { METRICS_REPORT_NONFINITE_MAX = 1000 };

/* Either is a new reference. utc_ns: now. */
json_t *metrics_report_make(
	const struct metrics_segment *s, const struct measure_summary *sum, int64_t utc_ns);
json_t *metrics_report_summary(const struct metrics_segment *s, const struct measure_summary *sum,
	const struct metrics_files *files);

#endif
