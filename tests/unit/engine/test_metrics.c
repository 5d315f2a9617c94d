#include <locale.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "engine/report/metrics_report.h"
#include "proto/artifact.h"
#include "tests/unit/engine/metrics_fixture.h"
#include "tests/unit/test.h"

static json_t *at(json_t *value, const char *path)
{
	return metrics_fixture_at(value, path);
}

static void has(json_t *value, const char *path, const char *text)
{
	metrics_fixture_has(value, path, text);
}

/* F6 */
static void test_nonfinite(void **state)
{
	struct metrics_fixture *f = *state;
	struct metrics_files files;
	json_t *root, *ours, *summary;
	char *marker;

	f->measure.slowest[2].loss = (double)NAN;
	f->measure.slowest[4].grad_norm = (double)INFINITY;
	f->config.precision = SPEC_FP16;
	f->measure.slowest[5].grad_norm = (double)NAN; /* skipped: has none */
	f->measure.slowest[5].skipped = 1;
	f->segment.val_loss = (double)NAN;
	metrics_fixture_write_all(f, &files);
	root = metrics_fixture_read_json(f, ARTIFACT_METRICS);
	ours = at(root, "gpt2d");
	has(ours, "status", "'completed_nonfinite'");
	has(ours, "losses.2", "null");
	assert_true(json_is_real(at(ours, "losses.3")));
	has(ours, "nonfinite.#", "3");
	has(ours, "nonfinite.0.field", "'loss'");
	has(ours, "nonfinite.0.step", "3");
	has(ours, "nonfinite.1.field", "'grad_norm'");
	has(ours, "nonfinite.1.step", "5");
	has(ours, "nonfinite.2.field", "'val_loss'");
	has(root, "epochs.0.val_loss_avg_global", "null");
	assert_true(json_is_real(at(root, "epochs.0.train_loss_avg_global")));
	json_decref(root);
	marker = metrics_fixture_read_file(f, ARTIFACT_COMPLETE);
	assert_non_null(strstr(marker, " status=completed_nonfinite "));
	free(marker);
	summary = metrics_summary(&f->segment, &files);
	has(summary, "nonfinite.#", "3");
	has(summary, "losses.2", "null");
	has(summary, "val_loss", "null");
	json_decref(summary);
}

/* without a loss scale an overflow is no matter of course */
static void test_overflow_in_fp32(void **state)
{
	struct metrics_fixture *f = *state;
	struct metrics_files files = {0};
	json_t *summary;

	f->measure.slowest[5].grad_norm = (double)NAN;
	f->measure.slowest[5].skipped = 1;
	summary = metrics_summary(&f->segment, &files);
	has(summary, "nonfinite.#", "1");
	has(summary, "nonfinite.0.step", "6");
	has(summary, "steps_skipped", "1");
	json_decref(summary);
}

static void test_nonfinite_list_is_bounded(void **state)
{
	struct metrics_fixture *f = *state;
	struct metrics_files files = {0};
	struct measure m;
	json_t *s;

	assert_int_equal(measure_init(&m, 2000, 0, 1, 1), 0);
	m.done = m.steps;
	for (int64_t i = 0; i < m.done; i++)
		m.slowest[i].loss = (double)NAN;
	f->segment.measure = &m;
	s = metrics_summary(&f->segment, &files);
	assert_int_equal(json_array_size(at(s, "nonfinite")), METRICS_REPORT_NONFINITE_MAX);
	has(s, "losses.#", "2000");
	json_decref(s);
	measure_finish(&m);
}

static void test_marker(void **state)
{
	struct metrics_fixture *f = *state;
	struct metrics_files files;
	char *marker, *metrics;
	char sha256[65], expected[512];

	metrics_fixture_write_all(f, &files);
	marker = metrics_fixture_read_file(f, ARTIFACT_COMPLETE);
	metrics = metrics_fixture_read_file(f, ARTIFACT_METRICS);
	assert_int_equal(artifact_sha256(metrics, strlen(metrics), sha256), 0);
	snprintf(expected, sizeof(expected),
		"[Rank 0] RUN_COMPLETE checkpoint_path=%s world_size=2 tokens_per_sec=2048"
		" total_wall_time_sec=20.5 timestamp_utc=",
		f->dir);
	assert_memory_equal(marker, expected, strlen(expected));
	snprintf(expected, sizeof(expected), " spec_sha256=00ff metrics_sha256=%s\n", sha256);
	assert_non_null(strstr(marker, expected));
	assert_non_null(strstr(marker, " run_id=17 segment=3 status=completed "));
	free(marker);
	free(metrics);
}

/* F7: an old marker goes first, and a write that fails leaves none */
static void test_no_marker_without_the_files(void **state)
{
	struct metrics_fixture *f = *state;
	struct metrics_files files = {.n = 99};
	struct rlimit old, small;
	char error[512];
	int rc;

	metrics_fixture_write_all(f, &files);
	assert_int_equal(metrics_begin(f->dir), 0);
	assert_null(metrics_fixture_read_file(f, ARTIFACT_COMPLETE));
	assert_int_equal(metrics_begin(f->dir), 0);

	files.n = 99;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = old;
	small.rlim_cur = 1024;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	rc = metrics_write(&f->segment, &files, error, sizeof(error));
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(rc, -EFBIG);
	assert_non_null(strstr(error, "training_metrics.json: File too large"));
	assert_int_equal(files.n, 99);
	assert_null(metrics_fixture_read_file(f, ARTIFACT_COMPLETE));

	f->measure.done = METRICS_WARMUP; /* nothing measured */
	assert_int_equal(metrics_write(&f->segment, &files, error, sizeof(error)), -ENODATA);
	assert_null(metrics_fixture_read_file(f, ARTIFACT_COMPLETE));
}

/* a rank's GPU: the table of its samples, their figures in the report */
static void test_gpu(void **state)
{
	struct metrics_fixture *f = *state;
	const struct nvml_device device = {.name = "Some GPU", .uuid = "GPU-1", .index = 2};
	const struct nvml_device other = {.name = "Some GPU", .uuid = "GPU-2", .index = 3};
	struct gpu_log_sample two[2] = {
		{1700000000123000000, {.sm_mhz = 1000, .memory_mhz = -1, .others = -1}},
		{1700000000323000000, {.sm_mhz = 2000, .memory_mhz = -1, .others = -1}},
	};
	struct gpu_log_samples samples = {.sample = two, .n = 2};
	struct gpu_log_sample gathered[4] = {two[0], two[1], two[1]}; /* room for two of each */
	struct metrics_files files;
	json_t *root;
	char *text;

	gpu_log_summarise(&device, &samples, &f->ranks[0].gpu);
	samples = (struct gpu_log_samples){.sample = two + 1, .n = 1};
	gathered[2].utc_ns -= 100000000;
	gpu_log_summarise(&other, &samples, &f->ranks[1].gpu);
	f->segment.gpus = gathered;
	f->segment.gpus_room = 2;
	metrics_fixture_write_all(f, &files);
	assert_int_equal(files.n, METRICS_FILES);
	text = metrics_fixture_read_file(f, ARTIFACT_GPU_LOG);
	assert_non_null(strstr(
		text, "\n2023/11/14 22:13:20.123, 2, Some GPU, GPU-1, [N/A], 1000, [N/A], 0x"));
	assert_non_null(strstr(text, ", rank\n2023/11/14 22:13:20.123, 2,"));
	assert_non_null(strstr(
		text, ", 0\n2023/11/14 22:13:20.223, 3, Some GPU, GPU-2, [N/A], 2000, [N/A], 0x"));
	assert_non_null(strstr(text, ", 1\n2023/11/14 22:13:20.323, 2,"));
	free(text);
	root = metrics_fixture_read_json(f, ARTIFACT_METRICS);
	has(root, "gpt2d.ranks.0.gpu.sm_clock_mhz_mean", "1500.0");
	has(root, "gpt2d.ranks.0.gpu.memory_clock_mhz_mean", "null");
	has(root, "gpt2d.ranks.0.gpu.driver", "null");
	has(root, "gpt2d.ranks.0.gpu.other_processes_max", "null");
	has(root, "gpt2d.ranks.0.gpu.samples", "2");
	has(root, "gpt2d.ranks.1.gpu.uuid", "'GPU-2'");
	json_decref(root);
}

/* a run that failed keeps what it measured, without a marker */
static void test_failed(void **state)
{
	struct metrics_fixture *f = *state;
	struct metrics_files files;
	json_t *root;

	f->segment.partial = "failed";
	metrics_fixture_write_all(f, &files);
	assert_int_equal(files.n, METRICS_FILES - 3); /* no marker, summary or GPU */
	assert_null(metrics_fixture_read_file(f, ARTIFACT_COMPLETE));
	root = metrics_fixture_read_json(f, ARTIFACT_METRICS);
	has(root, "gpt2d.status", "'failed'");
	has(root, "completion.printed_marker", "false");
	assert_int_equal(json_array_size(at(root, "gpt2d.losses")), METRICS_STEPS);
	json_decref(root);
}

static void test_step_log(void **state)
{
	static const char head[] =
		"timestamp,global_step,step_time_s,loss,tokens_per_sec,gpu_max_mem_mb,";
	struct metrics_fixture *f = *state;
	struct metrics_files files;
	char *text, *line;
	int lines = 0, commas = 0;

	f->measure.slowest[1].loss = (double)NAN;
	metrics_fixture_write_all(f, &files);
	text = metrics_fixture_read_file(f, ARTIFACT_STEP_LOG);
	assert_memory_equal(text, head, strlen(head));
	for (size_t i = 0; text[i] != '\n'; i++)
		commas += text[i] == ',';
	for (line = strchr(text, '\n') + 1; *line != '\0'; line = strchr(line, '\n') + 1) {
		int here = 0;

		for (size_t i = 0; line[i] != '\n'; i++)
			here += line[i] == ',';
		assert_int_equal(here, commas);
		lines++;
	}
	assert_int_equal(lines, METRICS_STEPS);
	assert_non_null(
		strstr(text, "\n2023-11-14T22:13:20.123Z,1,2.000000000,5,512,,0.001000000,"));
	assert_non_null(strstr(text, ",2,2.000000000,,512,,")); /* not finite: empty */
	assert_non_null(strstr(text, ",3,0.500000000,4.8,2048,,"));
	assert_non_null(strstr(text, ",1.5,0.0001,1,0,0,b,1,3,0\n"));
	free(text);
}

/* What the machine did: shares of a known peak, energy, and what makes the times of no use. */
static void test_machine(void **state)
{
	struct metrics_fixture *f = *state;
	struct metrics_files files = {0};
	json_t *s;

	f->segment.vocab_padded = 384;
	f->ranks[0].use = (struct metrics_host_use){.energy_j = 120.5, .cpu_percent = 90};
	f->ranks[1].use =
		(struct metrics_host_use){.cpu_percent = 110, .standstill_ns = 3200000000};
	s = metrics_summary(&f->segment, &files);
	has(s, "mfu", "null");
	has(s, "hfu", "null");
	has(s, "gpu", "null");
	has(s, "peak_device_bytes", "null");
	has(s, "energy_j", "120.5");
	has(s, "cpu_percent", "100.0");
	has(s, "void", "['standstill: rank 1, 3.2 s']");
	json_decref(s);

	for (int i = 0; i < 2; i++)
		f->ranks[i].gpu = (struct gpu_log_summary){.samples = 2,
			.sm_mhz = 1500 + 100 * i,
			.power_w = 500,
			.temperature_c = 60,
			.gpu_percent = 98,
			.throttle = i ? 0x4 : 0x24,
			.used_max_bytes = 1000 + i,
			.others_max = i};
	f->ranks[1].use.energy_j = (double)NAN;
	f->segment.peak_tflops = 0.001;
	s = metrics_summary(&f->segment, &files);
	has(s, "void.#", "3");
	has(s, "void.0", "'thermal_slowdown'");
	has(s, "void.1", "'gpu_shared: rank 1, 1 other processes'");
	has(s, "energy_j", "null");
	has(s, "gpu.sm_clock_mhz", "1550.0");
	assert_int_equal(json_integer_value(at(s, "gpu.throttle")), 0x24);
	has(s, "peak_device_bytes", "1001");
	/* 2 blocks of 72 R C C and 7 R C (T + 1), and 6 R C Vp, in 0.5 s on 2 x 1 GFLOP/s */
	assert_true(fabs(json_real_value(at(s, "mfu")) * 1e9 -
			    2 * (72.0 * 1024 * 128 * 128 + 7.0 * 1024 * 128 * 65) -
			    6.0 * 1024 * 128 * 384) < 1);
	json_decref(s);
	metrics_fixture_write_all(f, &files);
	s = metrics_fixture_read_json(f, ARTIFACT_METRICS);
	has(s, "gpt2d.status", "'completed_invalid'");
	json_decref(s);
}

/* Every rank's own times, and who it is that the others wait for. */
static void test_rank_times(void **state)
{
	static const char head[] = "global_step,rank,step_time_s,data_s,forward_s,backward_s,"
				   "exposed_comm_s,optimizer_s\n"
				   "1,0,2.000000000,0.001000000,0.150000000,0.300000000,"
				   "0.020000000,0.029000000\n"
				   "1,1,2.000000000,0.001000000,0.150000000,0.260000000,"
				   "0.060000000,0.029000000\n"
				   "2,0,";
	struct metrics_fixture *f = *state;
	struct metrics_files files;
	json_t *root, *summary, *slowest;
	int lines = 0;
	char *text;

	metrics_fixture_write_all(f, &files);
	text = metrics_fixture_read_file(f, ARTIFACT_RANK_TIMES);
	assert_non_null(text);
	assert_memory_equal(text, head, strlen(head));
	for (const char *c = text; *c; c++)
		lines += *c == '\n';
	assert_int_equal(lines, 1 + METRICS_STEPS * METRICS_WORLD);
	free(text);

	root = metrics_fixture_read_json(f, ARTIFACT_METRICS);
	assert_float_equal(
		json_real_value(at(root, "gpt2d.ranks.0.phases.backward_mean_s")), 0.3, 1e-9);
	assert_float_equal(
		json_real_value(at(root, "gpt2d.ranks.1.phases.backward_mean_s")), 0.26, 1e-9);
	assert_float_equal(json_real_value(at(root, "gpt2d.ranks.1.work_mean_s")), 0.44, 1e-9);
	slowest = at(root, "gpt2d.slowest_rank");
	has(slowest, "rank", "0");
	assert_float_equal(json_real_value(at(slowest, "work_mean_s")), 0.48, 1e-9);
	assert_float_equal(json_real_value(at(slowest, "others_median_s")), 0.44, 1e-9);
	summary = metrics_summary(&f->segment, &files);
	assert_true(json_equal(at(summary, "slowest_rank"), slowest));
	json_decref(summary);
	json_decref(root);
}

static void test_one_rank(void **state)
{
	struct metrics_fixture *f = *state;
	struct metrics_files files;
	json_t *root;

	f->measure.world = f->segment.world = 1;
	metrics_fixture_write_all(f, &files);
	assert_null(metrics_fixture_read_file(f, ARTIFACT_RANK_TIMES));
	root = metrics_fixture_read_json(f, ARTIFACT_METRICS);
	has(root, "gpt2d.slowest_rank", "null");
	json_decref(root);
}

/* Longer than what is made of them at a time: each line is there once, in order. */
static void test_long_files(void **state)
{
	enum { STEPS = 4500 };
	struct metrics_fixture *f = *state;
	struct measure_step *all = calloc((size_t)STEPS * METRICS_WORLD, sizeof(*all));
	const char *names[] = {ARTIFACT_STEP_LOG, ARTIFACT_RANK_TIMES};
	struct metrics_files files;

	assert_non_null(all);
	for (int i = 0; i < STEPS * METRICS_WORLD; i++)
		all[i] = (struct measure_step){.step_ns = 1000, .end_utc_ns = 1700000000000000000};
	measure_finish(&f->measure);
	assert_int_equal(
		measure_init(&f->measure, STEPS, METRICS_WARMUP, 16 * 64, METRICS_WORLD), 0);
	f->measure.done = STEPS;
	measure_merge(&f->measure, all);
	metrics_fixture_write_all(f, &files);
	for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
		char *text = metrics_fixture_read_file(f, names[k]), *line = strchr(text, '\n');
		int64_t bytes = 0;

		for (int i = 0, per = k == 0 ? 1 : METRICS_WORLD; i < STEPS * per; i++) {
			char *field = k == 0 ? strchr(line, ',') : line;

			assert_int_equal(strtol(field + 1, NULL, 10), i / per + 1);
			line = strchr(line + 1, '\n');
			assert_non_null(line);
		}
		assert_string_equal(line, "\n");
		for (size_t i = 0; i < files.n; i++)
			if (strcmp(files.file[i].name, names[k]) == 0)
				bytes = files.file[i].bytes;
		assert_int_equal(bytes, strlen(text));
		free(text);
	}
}

static void test_other_files(void **state)
{
	struct metrics_fixture *f = *state;
	struct metrics_files files;
	json_t *launcher;
	char *text;

	setenv("UCX_TLS", "self,sm", 1);
	metrics_log_add(&f->log, "%2000s", "a line that was too long");
	metrics_fixture_write_all(f, &files);
	text = metrics_fixture_read_file(f, ARTIFACT_SPEC);
	assert_string_equal(text, metrics_fixture_spec_text);
	free(text);
	text = metrics_fixture_read_file(f, ARTIFACT_LOG);
	assert_non_null(strstr(text, "Z step 1 loss 5.0\n1 lines were left out\n"));
	free(text);
	launcher = metrics_fixture_read_json(f, ARTIFACT_LAUNCHER);
	assert_string_equal(json_string_value(at(launcher, "checkpoint_path")), f->dir);
	assert_int_equal(json_integer_value(at(launcher, "world_size")), METRICS_WORLD);
	has(launcher, "slurm", "null");
	has(launcher, "env.MASTER_ADDR", "null");
	assert_true(json_is_object(at(launcher, "nccl_env")));
	has(launcher, "library_env.UCX_TLS", "'self,sm'");
	json_decref(launcher);
	assert_int_equal(files.n, METRICS_FILES - 1); /* no GPU */
	assert_string_equal(files.file[METRICS_FILES - 2].name, ARTIFACT_COMPLETE);
	for (size_t i = 0; i < files.n; i++) {
		text = metrics_fixture_read_file(f, files.file[i].name);
		assert_int_equal(strlen(text), files.file[i].bytes);
		free(text);
	}
}

static void test_summary(void **state)
{
	struct metrics_fixture *f = *state;
	struct metrics_files files;
	json_t *s;

	metrics_fixture_write_all(f, &files);
	s = metrics_summary(&f->segment, &files);
	assert_non_null(s);
	assert_int_equal(json_object_size(s), 42); /* the names: proto/schema */
	has(s, "step_p95_ns", "500000000");
	has(s, "plan.#", "6");
	assert_int_equal(json_array_size(at(s, "artifacts")), METRICS_FILES - 1);
	assert_string_equal(json_string_value(at(s, "artifacts.0.path")), ARTIFACT_SPEC);
	has(s, "switch_ns", "5000000");
	json_decref(s);

	/* under 20 samples there is no p95; the first segment has no switch */
	f->measure.done = METRICS_WARMUP + 19;
	f->segment.switch_ns = -1;
	f->segment.validated = false;
	s = metrics_summary(&f->segment, &files);
	has(s, "step_p95_ns", "null");
	has(s, "switch_ns", "null");
	has(s, "val_loss", "null");
	json_decref(s);
}

static void test_loss_hash_tells_losses_apart(void **state)
{
	struct metrics_fixture *f = *state;
	struct metrics_files files = {0};
	json_t *a = metrics_summary(&f->segment, &files);
	json_t *b, *c;

	f->measure.slowest[9].step_ns++;
	b = metrics_summary(&f->segment, &files);
	f->measure.slowest[9].loss = nextafter(f->measure.slowest[9].loss, 9.0);
	c = metrics_summary(&f->segment, &files);
	assert_string_equal(
		json_string_value(at(a, "loss_hash")), json_string_value(at(b, "loss_hash")));
	assert_string_not_equal(
		json_string_value(at(a, "loss_hash")), json_string_value(at(c, "loss_hash")));
	json_decref(a);
	json_decref(b);
	json_decref(c);
}

static void test_many_steps_are_not_listed(void **state)
{
	struct metrics_fixture *f = *state;
	struct metrics_files files = {0};
	struct measure m;
	json_t *s;

	assert_int_equal(measure_init(&m, METRICS_REPORT_STEPS_MAX + 1, 0, 1, 1), 0);
	m.done = m.steps;
	for (int64_t i = 0; i < m.done; i++)
		m.slowest[i].step_ns = 1000;
	f->segment.measure = &m;
	s = metrics_summary(&f->segment, &files);
	has(s, "step_time_ns", "null");
	has(s, "losses", "null");
	assert_non_null(strstr(json_string_value(at(s, "step_time_note")), "100001 steps"));
	json_decref(s);
	measure_finish(&m);
}

/* numbers in files do not depend on the language of the machine */
static void test_locale(void **state)
{
	struct metrics_fixture *f = *state;
	struct metrics_files files;
	json_t *root;
	char *text;

	if (setlocale(LC_ALL, "de_DE.UTF-8") == NULL)
		skip();
	metrics_fixture_write_all(f, &files);
	setlocale(LC_ALL, "C");
	text = metrics_fixture_read_file(f, ARTIFACT_STEP_LOG);
	assert_non_null(strstr(text, ",1.5,0.0001"));
	free(text);
	text = metrics_fixture_read_file(f, ARTIFACT_COMPLETE);
	assert_non_null(strstr(text, "total_wall_time_sec=20.5 "));
	free(text);
	root = metrics_fixture_read_json(f, ARTIFACT_METRICS);
	has(root, "summary.total_wall_time_sec", "20.5");
	json_decref(root);
}

static void test_log_is_bounded(void **state)
{
	struct metrics_log log;

	metrics_log_init(&log);
	for (int i = 0; i < 20000; i++)
		metrics_log_add(&log, "%900d", i);
	assert_true(log.n < METRICS_LOG_BYTES_MAX);
	assert_true(log.capacity <= METRICS_LOG_BYTES_MAX);
	assert_true(log.dropped > 0);
	assert_int_equal(log.text[log.n - 1], '\n');
	metrics_log_finish(&log);
}

#define WITH_DIR(test)                                                                             \
	cmocka_unit_test_setup_teardown(test, metrics_fixture_setup, metrics_fixture_teardown)

TEST_MAIN(WITH_DIR(test_nonfinite), WITH_DIR(test_overflow_in_fp32),
	WITH_DIR(test_nonfinite_list_is_bounded), WITH_DIR(test_marker),
	WITH_DIR(test_no_marker_without_the_files), WITH_DIR(test_failed), WITH_DIR(test_step_log),
	WITH_DIR(test_machine), WITH_DIR(test_rank_times), WITH_DIR(test_one_rank),
	WITH_DIR(test_long_files), WITH_DIR(test_gpu), WITH_DIR(test_other_files),
	WITH_DIR(test_summary), WITH_DIR(test_loss_hash_tells_losses_apart),
	WITH_DIR(test_many_steps_are_not_listed), WITH_DIR(test_locale),
	cmocka_unit_test(test_log_is_bounded))
