/*
 * gpu_log.h: the state of this rank's GPU every 200 ms during a segment, and each second between
 * segments, sampled by a separate thread, so that nothing else waits for the driver. Limited:
 * samples beyond the limit are counted and left out.
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

/* NVML's bits for a clock lowered by heat or the hardware; not the software power cap. */
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
 * Statistics of a segment's samples, plain bytes for the other ranks; means over the samples with a
 * value, nan and -1 if none has one.
 */
struct gpu_log_summary {
	struct nvml_device device;
	int64_t samples; /* 0: no samples */
	double sm_mhz, memory_mhz, temperature_c, power_w, gpu_percent, memory_percent; /* means */
	int64_t temperature_max_c, used_max_bytes;
	int64_t throttle; /* all reasons, ORed, without idle */
	int64_t others_max;
};

/* library, pci: as nvml_open. 0 or a negative errno with error. */
int gpu_log_create(const char *library, const char *pci, struct gpu_log **out, char *error,
	size_t error_bytes);
void gpu_log_destroy(struct gpu_log *log); /* takes NULL */
const struct nvml_device *gpu_log_device(const struct gpu_log *log);

/*
 * The latest sample, in a segment or between; false if the driver has not answered for
 * GPU_LOG_FRESH_MS. Does not query the driver. From any thread.
 */
bool gpu_log_latest(struct gpu_log *log, struct nvml_sample *out);

/* As nvml_energy_mj; queries the driver. From any thread. */
int64_t gpu_log_energy_mj(const struct gpu_log *log);

/* Starts sampling, with one sample at once; ends it with a last sample. */
void gpu_log_begin(struct gpu_log *log);
void gpu_log_end(struct gpu_log *log, struct gpu_log_samples *out);

void gpu_log_summarise(const struct nvml_device *device, const struct gpu_log_samples *samples,
	struct gpu_log_summary *out);

/* The samples of one rank's GPU. */
struct gpu_log_rank {
	const struct nvml_device *device;
	const struct gpu_log_sample *sample;
	size_t n;
};

/*
 * In the format of nvidia-smi --format=csv,nounits: timestamp, index, name, uuid, driver_version,
 * clocks.current.sm, clocks.current.memory, clocks_throttle_reasons.active, temperature.gpu,
 * power.draw, utilization.gpu, utilization.memory, memory.used, memory.total; then other_processes
 * and rank. All samples of all ranks in order of time, which consumes `ranks`. Times are UTC.
 * Numbers follow the thread's locale.
 */
void gpu_log_write(FILE *to, struct gpu_log_rank *ranks, int world);

#endif
