#include <dirent.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/arena.h"
#include "engine/measure.h"
#include "engine/metrics.h"
#include "engine/metrics_report.h"
#include "engine/plan.h"
#include "kernels/kernels.h"
#include "proto/artifact.h"
#include "proto/spec.h"

enum { STEPS = 30, WARMUP = 2, WORLD = 2 };

struct fixture {
	char dir[64];
	struct spec_config config;
	struct arena arena;
	struct plan plan;
	struct measure measure;
	struct metrics_log log;
	struct metrics_host_rank ranks[WORLD];
	struct k_device_info device;
	struct metrics_segment segment;
};

static const char spec_text[] = "{\"name\": \"run\"}\n";

static void fill_steps(struct measure *m)
{
	int64_t i;

	for (i = 0; i < STEPS; i++)
		m->slowest[i] = (struct measure_step){
			.step_ns = i < WARMUP ? 2000000000 : 500000000,
			.data_ns = 1000000,
			.forward_ns = 150000000,
			.backward_ns = 300000000,
			.exposed_comm_ns = 20000000,
			.optimizer_ns = 29000000,
			.loss = 5.0 - 0.1 * (double)i,
			.grad_norm = 1.5,
			.lr = 1e-4,
			.loss_scale = 1.0,
			.end_utc_ns = 1700000000123000000 + i * 500000000,
		};
	m->done = STEPS;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct spec_config *c;
	char error[256];

	assert_non_null(f);
	c = &f->config;
	snprintf(f->dir, sizeof(f->dir), "%s", "/tmp/test_metrics.XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	*c = (struct spec_config){
		.model = {.preset = "nano",
			.n_layer = 2,
			.n_head = 2,
			.n_embd = 128,
			.vocab_size = 257,
			.n_positions = 256,
			.tied_head = true},
		.data_train = "/data/train_small.bin",
		.seq_len = 64,
		.gpus = WORLD,
		.micro_batch = 2,
		.accumulation = 4,
		.batch = 16,
		.zero_stage = 1,
		.reduce_bucket_elems = 60000,
		.allgather_bucket_elems = 60000,
		.reduce_scatter = true,
		.overlap_comm = true,
		.lr = 1e-4,
		.optimizer_steps = STEPS,
		.warmup_steps = WARMUP,
	};
	assert_int_equal(arena_init(&f->arena, &c->model), 0);
	assert_int_equal(plan_make(&f->plan, f->arena.param_elems, WORLD, 60000, 60000, error,
					sizeof(error)),
		0);
	assert_int_equal(measure_init(&f->measure, STEPS, WARMUP, 16 * 64, WORLD), 0);
	fill_steps(&f->measure);
	metrics_log_init(&f->log);
	metrics_log_add(&f->log, "step %d loss %.1f", 1, 5.0);
	metrics_host_read(&f->ranks[0]);
	f->ranks[1] = f->ranks[0];
	f->device = (struct k_device_info){.backend = "cpu",
		.name = "a processor",
		.library = "OpenBLAS 0.3.21",
		.memory_total_bytes = 1 << 30};
	f->segment = (struct metrics_segment){
		.dir = f->dir,
		.run = "17",
		.name = "run",
		.arm = "b",
		.segment = 3,
		.segments = 8,
		.block = 1,
		.position = 1,
		.attempt = 1,
		.spec_text = spec_text,
		.spec_sha256 = "00ff",
		.command_line = "engine --role rank",
		.config = c,
		.arena = &f->arena,
		.plan = &f->plan,
		.measure = &f->measure,
		.elem_bytes = 4,
		.train_sequences = 1000,
		.val_sequences = 50,
		.device = &f->device,
		.collectives = "UCX 1.13.1 (self,sm)",
		.ranks = f->ranks,
		.threads = 1,
		.validated = true,
		.val_loss = 4.25,
		.init_ns = 12000000,
		.switch_ns = 5000000,
		.started_utc_ns = 1700000000000000000,
		.wall_ns = 20500000000,
		.log = &f->log,
		.sent = {.reduce_scatter = 123},
	};
	unsetenv("SLURM_JOB_ID");
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	struct dirent *entry;
	DIR *dir = opendir(f->dir);

	assert_non_null(dir);
	while ((entry = readdir(dir)) != NULL)
		unlinkat(dirfd(dir), entry->d_name, 0);
	closedir(dir);
	rmdir(f->dir);
	metrics_log_finish(&f->log);
	measure_finish(&f->measure);
	arena_finish(&f->arena);
	free(f);
	return 0;
}

static char *read_file(const struct fixture *f, const char *name)
{
	char path[256];
	char *text = calloc(1, 1 << 20);
	FILE *file;

	assert_non_null(text);
	snprintf(path, sizeof(path), "%s/%s", f->dir, name);
	file = fopen(path, "rb");
	if (file == NULL) {
		free(text);
		return NULL;
	}
	assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
	fclose(file);
	return text;
}

static json_t *read_json(const struct fixture *f, const char *name)
{
	char *text = read_file(f, name);
	json_error_t error;
	json_t *value;

	assert_non_null(text);
	value = json_loads(text, JSON_REJECT_DUPLICATES, &error);
	if (value == NULL)
		fail_msg("%s:%d: %s", name, error.line, error.text);
	free(text);
	return value;
}

static void write_all(struct fixture *f, struct metrics_files *files)
{
	char error[512] = "";

	assert_int_equal(metrics_begin(f->dir), 0);
	if (metrics_write(&f->segment, files, error, sizeof(error)) != 0)
		fail_msg("%s", error);
}

/* "a.b.0.c" */
static json_t *at(json_t *value, const char *path)
{
	char part[128];

	while (*path != '\0') {
		size_t n = strcspn(path, ".");

		assert_true(n < sizeof(part));
		memcpy(part, path, n);
		part[n] = '\0';
		value = json_is_array(value) ? json_array_get(value, (size_t)atoi(part))
						: json_object_get(value, part);
		path += n + (path[n] == '.');
	}
	return value;
}

static void check_type(json_t *root, const char *path, char type)
{
	json_t *value = at(root, path);
	bool right;

	if (value == NULL)
		fail_msg("%s is missing", path);
	right = type == 's'   ? json_is_string(value)
		: type == 'i' ? json_is_integer(value)
		: type == 'r' ? json_is_real(value)
		: type == 'b' ? json_is_boolean(value)
				: json_is_null(value);
	if (!right)
		fail_msg("%s is not of type %c", path, type);
}

/* every key of schema 2.0, with its type; n: what this machine has not got */
static const struct {
	const char *path;
	char type;
} schema[] = {
	{"schema_version", 's'},
	{"run_id", 's'},
	{"timestamp_utc", 's'},
	{"git_commit", 's'},
	{"command_line", 's'},
	{"env.python_version", 'n'},
	{"env.torch_version", 'n'},
	{"env.transformers_version", 'n'},
	{"env.deepspeed_version", 'n'},
	{"env.cuda_version", 'n'},
	{"host.hostname", 's'},
	{"host.os", 's'},
	{"hardware.gpu_name", 'n'},
	{"hardware.gpu_count_visible", 'i'},
	{"hardware.world_size", 'i'},
	{"hardware.cuda_version", 'n'},
	{"hardware.cluster", 'n'},
	{"training_config.model_name", 's'},
	{"training_config.model_size", 's'},
	{"training_config.seq_len", 'i'},
	{"training_config.epochs", 'i'},
	{"training_config.micro_batch_size_per_gpu", 'i'},
	{"training_config.grad_accum_steps", 'i'},
	{"training_config.global_batch_size", 'i'},
	{"training_config.lr", 'r'},
	{"training_config.optimizer", 's'},
	{"training_config.precision", 's'},
	{"training_config.deepspeed_enabled", 'b'},
	{"training_config.zero_stage", 'i'},
	{"training_config.dataset_name", 's'},
	{"training_config.dataset_subset_sizes.train", 'i'},
	{"training_config.dataset_subset_sizes.val", 'i'},
	{"deepspeed_config.path", 's'},
	{"deepspeed_config.sha256", 's'},
	{"deepspeed_config.selected.fp16_enabled", 'b'},
	{"deepspeed_config.selected.wall_clock_breakdown", 'b'},
	{"deepspeed_config.selected.zero_stage", 'i'},
	{"schema_notes.steps", 's'},
	{"epochs.0.epoch_idx", 'i'},
	{"epochs.0.epoch_wall_time_sec", 'r'},
	{"epochs.0.steps", 'i'},
	{"epochs.0.micro_steps", 'i'},
	{"epochs.0.optimizer_steps", 'i'},
	{"epochs.0.tokens_processed_global", 'i'},
	{"epochs.0.tokens_per_sec_global", 'r'},
	{"epochs.0.train_loss_avg_global", 'r'},
	{"epochs.0.val_loss_avg_global", 'r'},
	{"epochs.0.max_cuda_mem_allocated_bytes_rank0", 'n'},
	{"epochs.0.max_cuda_mem_reserved_bytes_rank0", 'n'},
	{"epochs.0.step_time_mean_sec", 'r'},
	{"epochs.0.step_time_p50_sec", 'r'},
	{"epochs.0.step_time_p95_sec", 'r'},
	{"epochs.0.dataload_time_mean_sec", 'r'},
	{"epochs.0.max_cuda_mem_allocated_bytes_global", 'n'},
	{"epochs.0.max_cuda_mem_reserved_bytes_global", 'n'},
	{"summary.total_wall_time_sec", 'r'},
	{"summary.best_val_loss", 'r'},
	{"summary.mean_tokens_per_sec_global", 'r'},
	{"shutdown.destroy_process_group_called", 'b'},
	{"shutdown.quiet_nccl_monitor", 'b'},
	{"completion.run_complete_file", 's'},
	{"completion.printed_marker", 'b'},
	{"completion.timestamp_utc", 's'},
	{"scheduler", 'n'},
};

static void test_schema(void **state)
{
	struct fixture *f = *state;
	struct metrics_files files;
	json_t *root;
	size_t i;

	write_all(f, &files);
	root = read_json(f, ARTIFACT_METRICS);
	for (i = 0; i < sizeof(schema) / sizeof(schema[0]); i++)
		check_type(root, schema[i].path, schema[i].type);
	assert_string_equal(json_string_value(at(root, "schema_version")), "2.0");
	assert_string_equal(json_string_value(at(root, "run_id")), "17");
	assert_string_equal(json_string_value(at(root, "timestamp_utc")), "2023-11-14T22:13:20Z");
	assert_string_equal(
		json_string_value(at(root, "training_config.dataset_name")), "train_small");
	assert_string_equal(json_string_value(at(root, "training_config.model_size")),
		"n_layer=2, n_head=2, n_embd=128");
	assert_int_equal(json_integer_value(at(root, "epochs.0.optimizer_steps")), STEPS);
	assert_int_equal(json_integer_value(at(root, "epochs.0.micro_steps")), STEPS * 4);
	assert_int_equal(
		json_integer_value(at(root, "epochs.0.tokens_processed_global")), STEPS * 1024);
	assert_true(json_real_value(at(root, "epochs.0.tokens_per_sec_global")) == 2048.0);
	assert_true(json_real_value(at(root, "epochs.0.epoch_wall_time_sec")) == 18.0);
	assert_true(json_real_value(at(root, "epochs.0.step_time_p50_sec")) == 0.5);
	assert_true(json_real_value(at(root, "summary.total_wall_time_sec")) == 20.5);
	json_decref(root);
}

static void test_ours(void **state)
{
	struct fixture *f = *state;
	struct metrics_files files;
	json_t *root, *ours;

	write_all(f, &files);
	root = read_json(f, ARTIFACT_METRICS);
	ours = at(root, "gpt2d");
	assert_string_equal(json_string_value(at(ours, "status")), "completed");
	assert_string_equal(json_string_value(at(ours, "arm")), "b");
	assert_int_equal(json_integer_value(at(ours, "segment")), 3);
	assert_int_equal(json_array_size(at(ours, "step_time_ns")), STEPS - WARMUP);
	assert_int_equal(json_array_size(at(ours, "losses")), STEPS);
	assert_int_equal(json_array_size(at(ours, "ranks")), WORLD);
	assert_int_equal(json_array_size(at(ours, "nonfinite")), 0);
	assert_int_equal(json_integer_value(at(ours, "plan.n_reduce")), f->plan.n_reduce);
	assert_int_equal(json_integer_value(at(ours, "plan.asked_reduce_elems")), 60000);
	assert_int_equal(json_integer_value(at(ours, "traffic.planned_bytes.reduce_scatter")),
		f->plan.arena_elems / 2 * 4 * STEPS);
	assert_int_equal(json_integer_value(at(ours, "traffic.sent_bytes.reduce_scatter")), 123);
	assert_int_equal(json_integer_value(at(ours, "batch.train_batch_size")), 16);
	assert_true(json_real_value(at(ours, "tok_s_global")) ==
		WORLD * json_real_value(at(ours, "tok_s_per_gpu")));
	assert_true(json_integer_value(at(ours, "ranks.0.peak_rss_bytes")) > 0);
	assert_true(json_is_null(at(ours, "mfu")));
	json_decref(root);
}

/* F6 */
static void test_nonfinite(void **state)
{
	struct fixture *f = *state;
	struct metrics_files files;
	json_t *root, *ours, *summary;
	char *marker;

	f->measure.slowest[2].loss = (double)NAN;
	f->measure.slowest[4].grad_norm = (double)INFINITY;
	f->config.precision = SPEC_FP16;
	f->measure.slowest[5].grad_norm = (double)NAN; /* skipped: has none */
	f->measure.slowest[5].skipped = 1;
	f->segment.val_loss = (double)NAN;
	write_all(f, &files);
	root = read_json(f, ARTIFACT_METRICS);
	ours = at(root, "gpt2d");
	assert_string_equal(json_string_value(at(ours, "status")), "completed_nonfinite");
	assert_true(json_is_null(at(ours, "losses.2")));
	assert_true(json_is_real(at(ours, "losses.3")));
	assert_int_equal(json_array_size(at(ours, "nonfinite")), 3);
	assert_string_equal(json_string_value(at(ours, "nonfinite.0.field")), "loss");
	assert_int_equal(json_integer_value(at(ours, "nonfinite.0.step")), 3);
	assert_string_equal(json_string_value(at(ours, "nonfinite.1.field")), "grad_norm");
	assert_int_equal(json_integer_value(at(ours, "nonfinite.1.step")), 5);
	assert_string_equal(json_string_value(at(ours, "nonfinite.2.field")), "val_loss");
	assert_true(json_is_null(at(root, "epochs.0.val_loss_avg_global")));
	assert_true(json_is_real(at(root, "epochs.0.train_loss_avg_global")));
	json_decref(root);
	marker = read_file(f, ARTIFACT_COMPLETE);
	assert_non_null(strstr(marker, " status=completed_nonfinite "));
	free(marker);
	summary = metrics_summary(&f->segment, &files);
	assert_int_equal(json_array_size(at(summary, "nonfinite")), 3);
	assert_true(json_is_null(at(summary, "losses.2")));
	assert_true(json_is_null(at(summary, "val_loss")));
	json_decref(summary);
}

/* without a loss scale an overflow is no matter of course */
static void test_overflow_in_fp32(void **state)
{
	struct fixture *f = *state;
	struct metrics_files files = {0};
	json_t *summary;

	f->measure.slowest[5].grad_norm = (double)NAN;
	f->measure.slowest[5].skipped = 1;
	summary = metrics_summary(&f->segment, &files);
	assert_int_equal(json_array_size(at(summary, "nonfinite")), 1);
	assert_int_equal(json_integer_value(at(summary, "nonfinite.0.step")), 6);
	assert_int_equal(json_integer_value(at(summary, "steps_skipped")), 1);
	json_decref(summary);
}

static void test_nonfinite_list_is_bounded(void **state)
{
	struct fixture *f = *state;
	struct metrics_files files = {0};
	struct measure m;
	json_t *s;
	int64_t i;

	assert_int_equal(measure_init(&m, 2000, 0, 1, 1), 0);
	m.done = m.steps;
	for (i = 0; i < m.done; i++)
		m.slowest[i].loss = (double)NAN;
	f->segment.measure = &m;
	s = metrics_summary(&f->segment, &files);
	assert_int_equal(json_array_size(at(s, "nonfinite")), METRICS_REPORT_NONFINITE_MAX);
	assert_int_equal(json_array_size(at(s, "losses")), 2000);
	json_decref(s);
	measure_finish(&m);
}

static void test_marker(void **state)
{
	struct fixture *f = *state;
	struct metrics_files files;
	char *marker, *metrics;
	char sha256[65], expected[512];

	write_all(f, &files);
	marker = read_file(f, ARTIFACT_COMPLETE);
	metrics = read_file(f, ARTIFACT_METRICS);
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
	struct fixture *f = *state;
	struct metrics_files files = {.n = 99};
	struct rlimit old, small;
	char error[512];
	int rc;

	write_all(f, &files);
	assert_int_equal(metrics_begin(f->dir), 0);
	assert_null(read_file(f, ARTIFACT_COMPLETE));
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
	assert_null(read_file(f, ARTIFACT_COMPLETE));

	f->measure.done = WARMUP; /* nothing measured */
	assert_int_equal(metrics_write(&f->segment, &files, error, sizeof(error)), -ENODATA);
	assert_null(read_file(f, ARTIFACT_COMPLETE));
}

static void test_step_log(void **state)
{
	static const char head[] =
		"timestamp,global_step,step_time_s,loss,tokens_per_sec,gpu_max_mem_mb,";
	struct fixture *f = *state;
	struct metrics_files files;
	char *text, *line;
	int lines = 0, commas = 0;
	size_t i;

	f->measure.slowest[1].loss = (double)NAN;
	write_all(f, &files);
	text = read_file(f, ARTIFACT_STEP_LOG);
	assert_memory_equal(text, head, strlen(head));
	for (i = 0; text[i] != '\n'; i++)
		commas += text[i] == ',';
	for (line = strchr(text, '\n') + 1; *line != '\0'; line = strchr(line, '\n') + 1) {
		int here = 0;

		for (i = 0; line[i] != '\n'; i++)
			here += line[i] == ',';
		assert_int_equal(here, commas);
		lines++;
	}
	assert_int_equal(lines, STEPS);
	assert_non_null(
		strstr(text, "\n2023-11-14T22:13:20.123Z,1,2.000000000,5,512,,0.001000000,"));
	assert_non_null(strstr(text, ",2,2.000000000,,512,,")); /* not finite: empty */
	assert_non_null(strstr(text, ",3,0.500000000,4.8,2048,,"));
	assert_non_null(strstr(text, ",1.5,0.0001,1,0,0\n"));
	free(text);
}

static void test_other_files(void **state)
{
	struct fixture *f = *state;
	struct metrics_files files;
	json_t *launcher;
	char *text;
	size_t i;

	setenv("UCX_TLS", "self,sm", 1);
	metrics_log_add(&f->log, "%2000s", "a line that was too long");
	write_all(f, &files);
	text = read_file(f, ARTIFACT_SPEC);
	assert_string_equal(text, spec_text);
	free(text);
	text = read_file(f, ARTIFACT_LOG);
	assert_non_null(strstr(text, "Z step 1 loss 5.0\n1 lines were left out\n"));
	free(text);
	launcher = read_json(f, ARTIFACT_LAUNCHER);
	assert_string_equal(json_string_value(at(launcher, "checkpoint_path")), f->dir);
	assert_int_equal(json_integer_value(at(launcher, "world_size")), WORLD);
	assert_true(json_is_null(at(launcher, "slurm")));
	assert_true(json_is_null(at(launcher, "env.MASTER_ADDR")));
	assert_true(json_is_object(at(launcher, "nccl_env")));
	assert_string_equal(json_string_value(at(launcher, "library_env.UCX_TLS")), "self,sm");
	json_decref(launcher);
	assert_int_equal(files.n, METRICS_FILES);
	assert_string_equal(files.file[METRICS_FILES - 1].name, ARTIFACT_COMPLETE);
	for (i = 0; i < files.n; i++) {
		text = read_file(f, files.file[i].name);
		assert_int_equal(strlen(text), files.file[i].bytes);
		free(text);
	}
}

static void test_slurm(void **state)
{
	struct fixture *f = *state;
	struct metrics_files files;
	json_t *root;

	setenv("SLURM_JOB_ID", "4711", 1);
	setenv("SLURM_JOB_NODELIST", "n[1-2]", 1);
	setenv("SLURM_JOB_NUM_NODES", "2", 1);
	setenv("SLURM_PROCID", "0", 1);
	setenv("SLURM_JOB_PARTITION", "short", 1);
	snprintf(f->ranks[0].hostname, sizeof(f->ranks[0].hostname), "n1");
	snprintf(f->ranks[1].hostname, sizeof(f->ranks[1].hostname), "n2");
	write_all(f, &files);
	root = read_json(f, ARTIFACT_METRICS);
	assert_string_equal(json_string_value(at(root, "scheduler.type")), "slurm");
	assert_string_equal(json_string_value(at(root, "scheduler.job_id")), "4711");
	assert_string_equal(json_string_value(at(root, "scheduler.nnodes")), "2");
	assert_string_equal(json_string_value(at(root, "scheduler.partition")), "short");
	assert_true(json_is_null(at(root, "scheduler.localid")));
	json_decref(root);
	root = read_json(f, ARTIFACT_LAUNCHER);
	assert_string_equal(json_string_value(at(root, "slurm.hosts")), "n1\nn2");
	json_decref(root);
	unsetenv("SLURM_JOB_ID");
}

static void test_summary(void **state)
{
	static const char *const keys[] = {"tokens_measured", "tokens_total", "seconds_measured",
		"tok_s_global", "tok_s_per_gpu", "step_time_ns", "step_median_ns", "step_p95_ns",
		"exposed_comm_mean_s", "forward_mean_s", "backward_mean_s", "optimizer_mean_s",
		"data_mean_s", "losses", "loss_last", "loss_hash", "val_loss", "grad_norm_last",
		"steps_attempted", "steps_applied", "steps_skipped", "plan", "init_ns", "switch_ns",
		"nonfinite", "artifacts"};
	struct fixture *f = *state;
	struct metrics_files files;
	json_t *s;
	size_t i;

	write_all(f, &files);
	s = metrics_summary(&f->segment, &files);
	assert_non_null(s);
	for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (json_object_get(s, keys[i]) == NULL)
			fail_msg("%s is missing", keys[i]);
	}
	assert_int_equal(json_object_size(s), sizeof(keys) / sizeof(keys[0]));
	assert_int_equal(json_integer_value(at(s, "step_p95_ns")), 500000000);
	assert_int_equal(json_object_size(at(s, "plan")), 6);
	assert_int_equal(json_array_size(at(s, "artifacts")), METRICS_FILES);
	assert_string_equal(json_string_value(at(s, "artifacts.0.path")), ARTIFACT_SPEC);
	assert_int_equal(json_integer_value(at(s, "switch_ns")), 5000000);
	json_decref(s);

	/* under 20 samples there is no p95; the first segment has no switch */
	f->measure.done = WARMUP + 19;
	f->segment.switch_ns = -1;
	f->segment.validated = false;
	s = metrics_summary(&f->segment, &files);
	assert_true(json_is_null(at(s, "step_p95_ns")));
	assert_true(json_is_null(at(s, "switch_ns")));
	assert_true(json_is_null(at(s, "val_loss")));
	json_decref(s);
}

static void test_loss_hash_tells_losses_apart(void **state)
{
	struct fixture *f = *state;
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
	struct fixture *f = *state;
	struct metrics_files files = {0};
	struct measure m;
	json_t *s;
	int64_t i;

	assert_int_equal(measure_init(&m, METRICS_REPORT_STEPS_MAX + 1, 0, 1, 1), 0);
	m.done = m.steps;
	for (i = 0; i < m.done; i++)
		m.slowest[i].step_ns = 1000;
	f->segment.measure = &m;
	s = metrics_summary(&f->segment, &files);
	assert_true(json_is_null(at(s, "step_time_ns")));
	assert_true(json_is_null(at(s, "losses")));
	assert_non_null(strstr(json_string_value(at(s, "step_time_note")), "100001 steps"));
	json_decref(s);
	measure_finish(&m);
}

/* numbers in files do not depend on the language of the machine */
static void test_locale(void **state)
{
	struct fixture *f = *state;
	struct metrics_files files;
	json_t *root;
	char *text;

	if (setlocale(LC_ALL, "de_DE.UTF-8") == NULL)
		skip();
	write_all(f, &files);
	setlocale(LC_ALL, "C");
	text = read_file(f, ARTIFACT_STEP_LOG);
	assert_non_null(strstr(text, ",1.5,0.0001"));
	free(text);
	text = read_file(f, ARTIFACT_COMPLETE);
	assert_non_null(strstr(text, "total_wall_time_sec=20.5 "));
	free(text);
	root = read_json(f, ARTIFACT_METRICS);
	assert_true(json_real_value(at(root, "summary.total_wall_time_sec")) == 20.5);
	json_decref(root);
}

static void test_log_is_bounded(void **state)
{
	struct metrics_log log;
	int i;

	(void)state;
	metrics_log_init(&log);
	for (i = 0; i < 20000; i++)
		metrics_log_add(&log, "%900d", i);
	assert_true(log.n < METRICS_LOG_BYTES_MAX);
	assert_true(log.capacity <= METRICS_LOG_BYTES_MAX);
	assert_true(log.dropped > 0);
	assert_int_equal(log.text[log.n - 1], '\n');
	metrics_log_finish(&log);
}

#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_DIR(test_schema),
		WITH_DIR(test_ours),
		WITH_DIR(test_nonfinite),
		WITH_DIR(test_overflow_in_fp32),
		WITH_DIR(test_nonfinite_list_is_bounded),
		WITH_DIR(test_marker),
		WITH_DIR(test_no_marker_without_the_files),
		WITH_DIR(test_step_log),
		WITH_DIR(test_other_files),
		WITH_DIR(test_slurm),
		WITH_DIR(test_summary),
		WITH_DIR(test_loss_hash_tells_losses_apart),
		WITH_DIR(test_many_steps_are_not_listed),
		WITH_DIR(test_locale),
		cmocka_unit_test(test_log_is_bounded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
