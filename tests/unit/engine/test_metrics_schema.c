#include <math.h>
#include <sys/mman.h>

#include "engine/report/metrics_host.h"
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

/* Every key of schema 2.0, those of an object behind its path; their types: test_schemas.py. */
static const char *const schema[] = {
	". schema_version run_id timestamp_utc git_commit command_line scheduler",
	"env. python_version torch_version transformers_version deepspeed_version cuda_version",
	"host. hostname os",
	"hardware. gpu_name gpu_count_visible world_size cuda_version cluster",
	"training_config. model_name model_size seq_len epochs micro_batch_size_per_gpu",
	"training_config. grad_accum_steps global_batch_size lr optimizer precision zero_stage",
	"training_config. deepspeed_enabled dataset_name",
	"training_config.dataset_subset_sizes. train val",
	"deepspeed_config. path sha256",
	"deepspeed_config.selected. fp16_enabled wall_clock_breakdown zero_stage",
	"schema_notes. steps",
	"epochs.0. epoch_idx epoch_wall_time_sec steps micro_steps optimizer_steps",
	"epochs.0. tokens_processed_global tokens_per_sec_global step_time_mean_sec",
	"epochs.0. train_loss_avg_global val_loss_avg_global dataload_time_mean_sec",
	"epochs.0. max_cuda_mem_allocated_bytes_rank0 max_cuda_mem_reserved_bytes_rank0",
	"epochs.0. max_cuda_mem_allocated_bytes_global max_cuda_mem_reserved_bytes_global",
	"epochs.0. step_time_p50_sec step_time_p95_sec",
	"summary. total_wall_time_sec best_val_loss mean_tokens_per_sec_global",
	"shutdown. destroy_process_group_called quiet_nccl_monitor",
	"completion. run_complete_file printed_marker timestamp_utc",
};

static void check_keys(json_t *root, const char *line)
{
	char words[256], path[256], *rest, *object;

	snprintf(words, sizeof(words), "%s", line);
	object = strtok_r(words, " ", &rest);
	object += *object == '.';
	for (char *key; (key = strtok_r(NULL, " ", &rest));) {
		snprintf(path, sizeof(path), "%s%s", object, key);
		if (!at(root, path))
			fail_msg("%s is missing", path);
	}
}

static void test_schema(void **state)
{
	struct metrics_fixture *f = *state;
	struct metrics_files files;
	json_t *root;

	metrics_fixture_write_all(f, &files);
	root = metrics_fixture_read_json(f, ARTIFACT_METRICS);
	for (size_t i = 0; i < sizeof(schema) / sizeof(schema[0]); i++)
		check_keys(root, schema[i]);
	has(root, "schema_version", "'2.0'");
	has(root, "run_id", "'17'");
	has(root, "timestamp_utc", "'2023-11-14T22:13:20Z'");
	has(root, "training_config.dataset_name", "'train_small'");
	has(root, "training_config.model_size", "'n_layer=2, n_head=2, n_embd=128'");
	assert_int_equal(json_integer_value(at(root, "epochs.0.optimizer_steps")), METRICS_STEPS);
	assert_int_equal(json_integer_value(at(root, "epochs.0.micro_steps")), METRICS_STEPS * 4);
	assert_int_equal(json_integer_value(at(root, "epochs.0.tokens_processed_global")),
		METRICS_STEPS * 1024);
	has(root, "epochs.0.tokens_per_sec_global", "2048.0");
	has(root, "epochs.0.epoch_wall_time_sec", "18.0");
	has(root, "epochs.0.step_time_p50_sec", "0.5");
	has(root, "summary.total_wall_time_sec", "20.5");
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
	has(ours, "status", "'completed'");
	has(ours, "arm", "'b'");
	has(ours, "segment", "3");
	assert_int_equal(json_array_size(at(ours, "step_time_ns")), METRICS_STEPS - METRICS_WARMUP);
	assert_int_equal(json_array_size(at(ours, "losses")), METRICS_STEPS);
	assert_int_equal(json_array_size(at(ours, "ranks")), METRICS_WORLD);
	has(ours, "nonfinite.#", "0");
	assert_int_equal(json_integer_value(at(ours, "plan.n_reduce")), f->segment.plan.n_reduce);
	has(ours, "plan.asked_reduce_elems", "60000");
	assert_int_equal(json_integer_value(at(ours, "traffic.planned_bytes.reduce_scatter")),
		f->segment.plan.arena_elems / 2 * 4 * METRICS_STEPS);
	has(ours, "traffic.sent_bytes.reduce_scatter", "123");
	has(ours, "batch.train_batch_size", "16");
	assert_true(json_real_value(at(ours, "tok_s_global")) ==
		METRICS_WORLD * json_real_value(at(ours, "tok_s_per_gpu")));
	assert_true(json_integer_value(at(ours, "ranks.0.peak_rss_bytes")) > 0);
	has(ours, "mfu", "null");
	has(ours, "tuning_cache_sha256", "null");
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
	has(root, "gpt2d.tuning_cache_sha256", "'00aa'");
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
	has(root, "scheduler.type", "'slurm'");
	has(root, "scheduler.job_id", "'4711'");
	has(root, "scheduler.nnodes", "'2'");
	has(root, "scheduler.partition", "'short'");
	has(root, "scheduler.localid", "null");
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

TEST_MAIN(WITH_DIR(test_schema), WITH_DIR(test_ours), WITH_DIR(test_tuning), WITH_DIR(test_slurm),
	WITH_DIR(test_energy), cmocka_unit_test(test_peak_starts_anew))
