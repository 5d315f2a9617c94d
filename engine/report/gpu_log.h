/*
 * gpu_log.h: the state of this rank's GPU every 200 ms while a segment runs, and each second
 * between segments, taken by a thread of its own, so that nothing waits for the driver. Bounded:
 * samples beyond the bound are counted and left out.
 */
#ifndef GPT2D_ENGINE_REPORT_GPU_LOG_H
#define GPT2D_ENGINE_REPORT_GPU_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "engine/report/nvml.h"

enum {
	GPU_LOG_PERIOD_MS = 200,
	GPU_LOG_REST_MS = 1000,
	GPU_LOG_FRESH_MS = 5000,
	GPU_LOG_SAMPLES_MAX = 100000,
};

/* NVML's bits of a clock that heat or the hardware lowers; the software power cap is neither. */
enum { GPU_LOG_THERMAL = 0x20 | 0x40, GPU_LOG_HARDWARE = 0x08 | 0x80 };

struct gpu_log; /* the thread */

struct gpu_log_sample {
	int64_t utc_ns;
	struct nvml_sample s;
};

/* Of one segment; owns its samples. */
struct gpu_log_samples {
	struct gpu_log_sample *sample;
	size_t n, capacity;
	int64_t dropped;
};
void gpu_log_samples_finish(struct gpu_log_samples *samples);

/*
 * What a segment's samples say, plain bytes that travel; means are of the samples that say
 * something, nan and -1 where none does.
 */
struct gpu_log_summary {
	struct nvml_device device;
	int64_t samples; /* 0: there is nothing to say */
	double sm_mhz, memory_mhz, temperature_c, power_w, gpu_percent, memory_percent; /* means */
	int64_t temperature_max_c, used_max_bytes;
	int64_t throttle; /* all reasons there were, without idle */
	int64_t others_max;
};

/* library, pci: as nvml_open. 0 or a negative errno with error. */
int gpu_log_create(const char *library, const char *pci, struct gpu_log **out, char *error,
	size_t error_bytes);
void gpu_log_destroy(struct gpu_log *log); /* takes NULL */
const struct nvml_device *gpu_log_device(const struct gpu_log *log);

/*
 * The latest sample, of a segment or between them; false when the driver has said nothing for
 * GPU_LOG_FRESH_MS. Does not ask it. From any thread.
 */
bool gpu_log_latest(struct gpu_log *log, struct nvml_sample *out);

/* As nvml_energy_mj; asks the driver. From any thread. */
int64_t gpu_log_energy_mj(const struct gpu_log *log);

/* Sampling from here on, with one sample at once; and until here, with a last one. */
void gpu_log_begin(struct gpu_log *log);
void gpu_log_end(struct gpu_log *log, struct gpu_log_samples *out);

void gpu_log_summarise(const struct nvml_device *device, const struct gpu_log_samples *samples,
	struct gpu_log_summary *out);

/* What there is of one rank's GPU. */
struct gpu_log_rank {
	const struct nvml_device *device;
	const struct gpu_log_sample *sample;
	size_t n;
};

/*
 * As nvidia-smi --format=csv,nounits writes timestamp, index, name, uuid, driver_version,
 * clocks.current.sm, clocks.current.memory, clocks_throttle_reasons.active, temperature.gpu,
 * power.draw, utilization.gpu, utilization.memory, memory.used, memory.total; then other_processes
 * and rank. All samples of all ranks in order of time, which uses up `ranks`. Times are UTC.
 * Numbers follow the thread's locale.
 */
void gpu_log_write(FILE *to, struct gpu_log_rank *ranks, int world);

#endif
