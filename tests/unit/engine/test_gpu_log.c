/* The GPU's log over a library made for the test, whose path is the program's argument. */
#include <math.h>
#include <time.h>

#include "engine/report/gpu_log.h"
#include "tests/unit/test.h"

static const char *library;
static const char pci[] = "0000:01:00.0";

static void library_and_device_are_named(void **state)
{
	char error[256] = "";
	struct nvml *n;

	assert_int_equal(
		nvml_open("/nonexistent/nvml.so", pci, &n, error, sizeof(error)), -ELIBACC);
	assert_non_null(strstr(error, "/nonexistent/nvml.so"));
	assert_int_equal(nvml_open("libm.so.6", pci, &n, error, sizeof(error)), -ELIBACC);
	assert_string_equal(error, "nvml: libm.so.6 has no nvmlInit_v2");
	assert_int_equal(nvml_open(library, "0000:02:00.0", &n, error, sizeof(error)), -ENODEV);
	assert_string_equal(error, "nvml: no device 0000:02:00.0: code 6");
}

static void one_sample(void **state)
{
	char error[256] = "";
	struct nvml_sample s;
	struct nvml *n;

	assert_int_equal(nvml_open(library, pci, &n, error, sizeof(error)), 0);
	assert_string_equal(nvml_device(n)->name, "Some GPU");
	assert_string_equal(nvml_device(n)->uuid, "GPU-1-2");
	assert_string_equal(nvml_device(n)->driver, "580.1");
	assert_int_equal(nvml_device(n)->index, 3);
	nvml_read(n, &s);
	assert_int_equal(s.sm_mhz, 1980);
	assert_int_equal(s.memory_mhz, 2619);
	assert_int_equal(s.power_mw, 412345);
	assert_int_equal(s.gpu_percent, -1);
	assert_int_equal(s.used_bytes, (int64_t)19 << 30);
	assert_int_equal(s.others, 1);
	assert_int_equal(s.other_pid, 1);
	assert_int_equal(s.other_bytes, (int64_t)3 << 30);
	nvml_close(n);
	nvml_close(NULL);
}

static char *text_of_ranks(struct gpu_log_rank *ranks, int world)
{
	char *text;
	size_t n;
	FILE *to = open_memstream(&text, &n);

	assert_non_null(to);
	gpu_log_write(to, ranks, world);
	fclose(to);
	return text;
}

static char *text_of(const struct gpu_log *log, const struct gpu_log_samples *samples)
{
	struct gpu_log_rank rank = {gpu_log_device(log), samples->sample, samples->n};

	return text_of_ranks(&rank, 1);
}

static void a_segment(void **state)
{
	struct timespec nap = {0, 5000000};
	struct gpu_log_samples samples;
	struct gpu_log_summary sum;
	struct gpu_log *log;
	char error[256] = "", *text;
	size_t lines = 0;

	assert_int_equal(gpu_log_create(library, pci, &log, error, sizeof(error)), 0);
	assert_int_equal(gpu_log_energy_mj(log), 1500);
	assert_int_equal(gpu_log_energy_mj(log), 3000);
	gpu_log_begin(log);
	nanosleep(&nap, NULL);
	gpu_log_end(log, &samples);
	assert_true(samples.n >= 2); /* the first and the last, at any distance */
	assert_int_equal(samples.dropped, 0);
	gpu_log_summarise(gpu_log_device(log), &samples, &sum);
	assert_int_equal(sum.samples, samples.n);
	assert_true(sum.sm_mhz == 1980 && sum.memory_mhz == 2619);
	assert_true(fabs(sum.power_w - 412.345) < 1e-9);
	assert_true(isnan(sum.gpu_percent));
	assert_int_equal(sum.temperature_max_c, 50);
	assert_int_equal(sum.throttle & 1, 0); /* idle throttles nothing */
	assert_int_equal(sum.others_max, 1);
	assert_int_equal(sum.used_max_bytes, (int64_t)19 << 30);
	text = text_of(log, &samples);
	for (const char *at = text; (at = strchr(at, '\n')); at++)
		lines++;
	assert_int_equal(lines, samples.n + 1);
	assert_int_equal(strncmp(text, "timestamp, index, name, uuid, ", 30), 0);
	assert_non_null(strstr(text, ", 3, Some GPU, GPU-1-2, 580.1, 1980, 2619, 0x"));
	assert_non_null(strstr(text, ", 412.34, [N/A], [N/A], 19456, 81920, 1, 0\n"));
	free(text);
	gpu_log_samples_finish(&samples);
	gpu_log_destroy(log);
	gpu_log_destroy(NULL);
}

/* Each sample with its GPU, in the order of their times, with any number of samples per rank. */
static void of_several_ranks(void **state)
{
	static const struct nvml_device devices[] = {
		{.name = "A", .uuid = "GPU-a", .driver = "1", .index = 0},
		{.name = "B", .uuid = "GPU-b", .driver = "1", .index = 5},
	};
	static const struct gpu_log_sample of_0[] = {
		{1700000000100000000, {.sm_mhz = 10}}, {1700000000300000000, {.sm_mhz = 11}}};
	static const struct gpu_log_sample of_2[] = {{1700000000099000000, {.sm_mhz = 20}},
		{1700000000100000000, {.sm_mhz = 21}}, {1700000000200000000, {.sm_mhz = 22}}};
#define LINE(at, gpu, mhz, rank)                                                                   \
	"2023/11/14 22:13:" at ", " gpu ", 1, " mhz                                                \
	", 0, 0x0000000000000000, 0, 0.00, 0, 0, 0, 0, 0, " rank "\n"
	static const char expected[] = ", other_processes, rank\n" LINE(
		"20.099", "5, B, GPU-b", "20", "2") LINE("20.100", "0, A, GPU-a", "10", "0")
		LINE("20.100", "5, B, GPU-b", "21", "2") LINE("20.200", "5, B, GPU-b", "22", "2")
			LINE("20.300", "0, A, GPU-a", "11", "0");
	struct gpu_log_rank ranks[] = {
		{&devices[0], of_0, 2}, {NULL, NULL, 0}, {&devices[1], of_2, 3}};
	char *text = text_of_ranks(ranks, 3);

	assert_string_equal(strstr(text, ", other_processes"), expected);
	free(text);
}

/* The peak, at any position; a sample without a value does not count. */
static void most_memory(void **state)
{
	struct gpu_log_sample sample[] = {{.s.used_bytes = 3}, {.s.used_bytes = (int64_t)1 << 40},
		{.s.used_bytes = -1}, {.s.used_bytes = 5}};
	struct gpu_log_samples samples = {.sample = sample, .n = 4};
	const struct nvml_device device = {.index = 0};
	struct gpu_log_summary sum;

	gpu_log_summarise(&device, &samples, &sum);
	assert_int_equal(sum.used_max_bytes, (int64_t)1 << 40);
	samples = (struct gpu_log_samples){.sample = &sample[2], .n = 1};
	gpu_log_summarise(&device, &samples, &sum);
	assert_int_equal(sum.used_max_bytes, -1);
}

static void many_segments(void **state)
{
	struct gpu_log_samples samples;
	struct gpu_log *log;
	char error[256] = "";

	assert_int_equal(gpu_log_create(library, pci, &log, error, sizeof(error)), 0);
	for (int i = 0; i < 200; i++) {
		gpu_log_begin(log);
		gpu_log_end(log, &samples);
		assert_true(samples.n >= 2);
		gpu_log_samples_finish(&samples);
	}
	gpu_log_begin(log);
	gpu_log_destroy(log);
}

/* Also where no segment runs, within a rest. */
static void the_latest(void **state)
{
	struct timespec nap = {0, 20000000};
	struct nvml_sample s = {0};
	struct gpu_log *log;
	char error[256] = "";
	int naps = 0;

	assert_int_equal(gpu_log_create(library, pci, &log, error, sizeof(error)), 0);
	while (!gpu_log_latest(log, &s) && naps++ < 3000)
		nanosleep(&nap, NULL);
	assert_true(gpu_log_latest(log, &s));
	assert_int_equal(s.power_mw, 412345);
	assert_int_equal(s.gpu_percent, -1);
	assert_int_equal(s.others, 1);
	gpu_log_destroy(log);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(library_and_device_are_named),
		cmocka_unit_test(one_sample),
		cmocka_unit_test(a_segment),
		cmocka_unit_test(of_several_ranks),
		cmocka_unit_test(most_memory),
		cmocka_unit_test(many_segments),
		cmocka_unit_test(the_latest),
	};

	if (argc < 2)
		return 2;
	library = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
