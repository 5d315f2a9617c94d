#include <math.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "engine/report/metrics_host.h"
#include "proto/artifact.h"
#include "tests/unit/engine/metrics_fixture.h"
#include "tests/unit/test.h"

static json_t *at(json_t *value, const char *path)
{
	return metrics_fixture_at(value, path);
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
	struct metrics_fixture *f = *state;
	struct metrics_files files;
	json_t *root;

	metrics_fixture_write_all(f, &files);
	root = metrics_fixture_read_json(f, ARTIFACT_METRICS);
	for (size_t i = 0; i < sizeof(schema) / sizeof(schema[0]); i++)
		check_type(root, schema[i].path, schema[i].type);
	assert_string_equal(json_string_value(at(root, "schema_version")), "2.0");
	assert_string_equal(json_string_value(at(root, "run_id")), "17");
	assert_string_equal(json_string_value(at(root, "timestamp_utc")), "2023-11-14T22:13:20Z");
	assert_string_equal(
		json_string_value(at(root, "training_config.dataset_name")), "train_small");
	assert_string_equal(json_string_value(at(root, "training_config.model_size")),
		"n_layer=2, n_head=2, n_embd=128");
	assert_int_equal(json_integer_value(at(root, "epochs.0.optimizer_steps")), METRICS_STEPS);
	assert_int_equal(json_integer_value(at(root, "epochs.0.micro_steps")), METRICS_STEPS * 4);
	assert_int_equal(json_integer_value(at(root, "epochs.0.tokens_processed_global")),
		METRICS_STEPS * 1024);
	assert_true(json_real_value(at(root, "epochs.0.tokens_per_sec_global")) == 2048.0);
	assert_true(json_real_value(at(root, "epochs.0.epoch_wall_time_sec")) == 18.0);
	assert_true(json_real_value(at(root, "epochs.0.step_time_p50_sec")) == 0.5);
	assert_true(json_real_value(at(root, "summary.total_wall_time_sec")) == 20.5);
	json_decref(root);
}

static void test_ours(void **state)
{
	struct metrics_fixture *f = *state;
	struct metrics_files files;
	json_t *root, *ours;

	metrics_fixture_write_all(f, &files);
	root = metrics_fixture_read_json(f, ARTIFACT_METRICS);
	ours = at(root, "gpt2d");
	assert_string_equal(json_string_value(at(ours, "status")), "completed");
	assert_string_equal(json_string_value(at(ours, "arm")), "b");
	assert_int_equal(json_integer_value(at(ours, "segment")), 3);
	assert_int_equal(json_array_size(at(ours, "step_time_ns")), METRICS_STEPS - METRICS_WARMUP);
	assert_int_equal(json_array_size(at(ours, "losses")), METRICS_STEPS);
	assert_int_equal(json_array_size(at(ours, "ranks")), METRICS_WORLD);
	assert_int_equal(json_array_size(at(ours, "nonfinite")), 0);
	assert_int_equal(json_integer_value(at(ours, "plan.n_reduce")), f->segment.plan.n_reduce);
	assert_int_equal(json_integer_value(at(ours, "plan.asked_reduce_elems")), 60000);
	assert_int_equal(json_integer_value(at(ours, "traffic.planned_bytes.reduce_scatter")),
		f->segment.plan.arena_elems / 2 * 4 * METRICS_STEPS);
	assert_int_equal(json_integer_value(at(ours, "traffic.sent_bytes.reduce_scatter")), 123);
	assert_int_equal(json_integer_value(at(ours, "batch.train_batch_size")), 16);
	assert_true(json_real_value(at(ours, "tok_s_global")) ==
		METRICS_WORLD * json_real_value(at(ours, "tok_s_per_gpu")));
	assert_true(json_integer_value(at(ours, "ranks.0.peak_rss_bytes")) > 0);
	assert_true(json_is_null(at(ours, "mfu")));
	assert_true(json_is_null(at(ours, "tuning_cache_sha256")));
	assert_non_null(strstr(json_string_value(at(ours, "determinism")), "rank order"));
	json_decref(root);
}

/* Where algorithms are chosen by timing, the same bits take the same choices. */
static void test_tuning(void **state)
{
	struct metrics_fixture *f = *state;
	struct metrics_files files;
	json_t *root;

	f->segment.tuning_sha256 = "00aa";
	metrics_fixture_write_all(f, &files);
	root = metrics_fixture_read_json(f, ARTIFACT_METRICS);
	assert_string_equal(json_string_value(at(root, "gpt2d.tuning_cache_sha256")), "00aa");
	assert_non_null(
		strstr(json_string_value(at(root, "gpt2d.determinism")), "tuning_cache_sha256"));
	json_decref(root);
}

static void test_slurm(void **state)
{
	struct metrics_fixture *f = *state;
	struct metrics_files files;
	json_t *root;

	setenv("SLURM_JOB_ID", "4711", 1);
	setenv("SLURM_JOB_NODELIST", "n[1-2]", 1);
	setenv("SLURM_JOB_NUM_NODES", "2", 1);
	setenv("SLURM_PROCID", "0", 1);
	setenv("SLURM_JOB_PARTITION", "short", 1);
	snprintf(f->ranks[0].hostname, sizeof(f->ranks[0].hostname), "n1");
	snprintf(f->ranks[1].hostname, sizeof(f->ranks[1].hostname), "n2");
	metrics_fixture_write_all(f, &files);
	root = metrics_fixture_read_json(f, ARTIFACT_METRICS);
	assert_string_equal(json_string_value(at(root, "scheduler.type")), "slurm");
	assert_string_equal(json_string_value(at(root, "scheduler.job_id")), "4711");
	assert_string_equal(json_string_value(at(root, "scheduler.nnodes")), "2");
	assert_string_equal(json_string_value(at(root, "scheduler.partition")), "short");
	assert_true(json_is_null(at(root, "scheduler.localid")));
	json_decref(root);
	root = metrics_fixture_read_json(f, ARTIFACT_LAUNCHER);
	assert_string_equal(json_string_value(at(root, "slurm.hosts")), "n1\nn2");
	json_decref(root);
	unsetenv("SLURM_JOB_ID");
}

static void put_count(const char *root, int package, const char *name, long long value)
{
	char path[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s/intel-rapl:%d", root, package);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/intel-rapl:%d/%s", root, package, name);
	file = fopen(path, "w");
	assert_non_null(file);
	fprintf(file, "%lld\n", value);
	fclose(file);
}

static void remove_counts(const char *root, int package)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/intel-rapl:%d/energy_uj", root, package);
	unlink(path);
	snprintf(path, sizeof(path), "%s/intel-rapl:%d/max_energy_range_uj", root, package);
	unlink(path);
	snprintf(path, sizeof(path), "%s/intel-rapl:%d", root, package);
	rmdir(path);
}

/* Two packages; the second one's counter wraps. */
static void test_energy(void **state)
{
	struct metrics_fixture *f = *state;
	struct metrics_host_energy before, after;

	metrics_host_read_energy(f->dir, &before);
	assert_int_equal(before.n, 0);
	assert_true(isnan(metrics_host_energy_between(&before, &before)));
	for (int i = 0; i < 2; i++) {
		put_count(f->dir, i, "energy_uj", 9000000);
		put_count(f->dir, i, "max_energy_range_uj", 10000000);
	}
	metrics_host_read_energy(f->dir, &before);
	put_count(f->dir, 0, "energy_uj", 9500000);
	put_count(f->dir, 1, "energy_uj", 1000000);
	metrics_host_read_energy(f->dir, &after);
	assert_int_equal(after.n, 2);
	assert_float_equal(metrics_host_energy_between(&before, &after), 2.5, 1e-9);
	for (int i = 0; i < 2; i++)
		remove_counts(f->dir, i);
}

static void test_peak_starts_anew(void **state)
{
	const size_t bytes = (size_t)64 << 20;
	struct metrics_host_rank before, after;
	char *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(block, MAP_FAILED);
	memset(block, 1, bytes);
	munmap(block, bytes);
	metrics_host_read(&before);
	assert_true(before.peak_rss_bytes >= (int64_t)bytes);
	if (metrics_host_reset_peak() == -EACCES)
		skip(); /* no right to it in some containers */
	metrics_host_read(&after);
	assert_true(after.peak_rss_bytes < before.peak_rss_bytes - (int64_t)bytes / 2);
}

#define WITH_DIR(test)                                                                             \
	cmocka_unit_test_setup_teardown(test, metrics_fixture_setup, metrics_fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_DIR(test_schema),
		WITH_DIR(test_ours),
		WITH_DIR(test_tuning),
		WITH_DIR(test_slurm),
		WITH_DIR(test_energy),
		cmocka_unit_test(test_peak_starts_anew),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
