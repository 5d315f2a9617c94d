/*
 * gpu_nvml: the driver's metrics of a busy device 0, as in a segment's log. The last line is "N
 * passed, N failed".
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/report/gpu_log.h"
#include "kernels/kernels.h"

enum { ELEMS = 1 << 26, ROUNDS = 8, FILLS = 2000 };

static int failed, passed;

static void check(const char *what, bool good)
{
	printf("%-44s %s\n", what, good ? "ok" : "FAILED");
	*(good ? &passed : &failed) += 1;
}

static void keep_busy(struct k_stream *s, k_real *x)
{
	for (int i = 0; i < ROUNDS; i++) {
		for (int j = 0; j < FILLS; j++)
			k_fill(s, x, ELEMS, j);
		k_stream_sync(s, INT64_MAX);
	}
}

static void check_summary(const struct gpu_log_summary *sum, const struct k_device_info *info)
{
	check("the device has its name", strcmp(sum->device.name, info->name) == 0);
	check("a UUID", strncmp(sum->device.uuid, "GPU-", 4) == 0);
	check("a driver", sum->device.driver[0] != '\0');
	check("an index", sum->device.index >= 0);
	check("some samples", sum->samples > 2);
	check("clocks", sum->sm_mhz > 100 && sum->memory_mhz > 100);
	check("temperature", sum->temperature_max_c > 0 && sum->temperature_max_c < 120);
	check("power", sum->power_w > 10);
	check("reasons for throttling", sum->throttle >= 0);
	check("utilization", sum->gpu_percent >= 0 && sum->memory_percent >= 0);
	check("memory", sum->used_max_bytes > (int64_t)ELEMS * 4);
	printf("%.0f W, %.0f MHz, other processes %d\n", sum->power_w, sum->sm_mhz,
		(int)sum->others_max);
}

int main(void)
{
	struct k_context_options options = {.threads = 1};
	struct gpu_log_samples samples;
	struct gpu_log_summary sum;
	struct k_device_info info;
	struct k_context *ctx;
	struct k_stream *s;
	struct gpu_log_rank rank;
	struct gpu_log *log;
	char error[256] = "";
	k_real *x;

	if (k_context_create(&options, &ctx) ||
		k_stream_create(ctx, K_STREAM_COMPUTE, "compute", &s) ||
		!(x = k_alloc(ctx, ELEMS * sizeof(*x)))) {
		fprintf(stderr, "nvml: no device\n");
		return 1;
	}
	k_context_info(ctx, &info);
	check("NVML opens", gpu_log_create(NULL, info.pci, &log, error, sizeof(error)) == 0);
	if (failed) {
		printf("%s: %s\n0 passed, 1 failed\n", info.pci, error);
		return 1;
	}
	gpu_log_begin(log);
	keep_busy(s, x);
	gpu_log_end(log, &samples);
	gpu_log_summarise(gpu_log_device(log), &samples, &sum);
	rank = (struct gpu_log_rank){gpu_log_device(log), samples.sample, samples.n};
	gpu_log_write(stdout, &rank, 1);
	check_summary(&sum, &info);
	gpu_log_samples_finish(&samples);
	gpu_log_destroy(log);
	k_free(ctx, x);
	k_stream_destroy(s);
	k_context_destroy(ctx);
	printf("%d passed, %d failed\n", passed, failed);
	return failed ? 1 : 0;
}
