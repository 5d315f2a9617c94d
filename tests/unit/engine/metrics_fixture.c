#include <dirent.h>

#include "tests/unit/engine/metrics_fixture.h"
#include "tests/unit/test.h"

const char metrics_fixture_spec_text[] = "{\"name\": \"run\"}\n";

static void fill_steps(struct measure *m)
{
	struct measure_step *all = calloc(METRICS_WORLD * METRICS_STEPS, sizeof(*all));

	assert_non_null(all);
	for (int64_t i = 0; i < METRICS_STEPS; i++) {
		all[i] = (struct measure_step){
			.step_ns = i < METRICS_WARMUP ? 2000000000 : 500000000,
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
		all[METRICS_STEPS + i] = all[i];
		all[METRICS_STEPS + i].backward_ns -= 40000000; /* for which it waits */
		all[METRICS_STEPS + i].exposed_comm_ns += 40000000;
	}
	m->done = METRICS_STEPS;
	measure_merge(m, all);
}

static void fill_config(struct spec_config *c)
{
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
		.gpus = METRICS_WORLD,
		.micro_batch = 2,
		.accumulation = 4,
		.batch = 16,
		.zero_stage = 1,
		.reduce_bucket_elems = 60000,
		.allgather_bucket_elems = 60000,
		.reduce_scatter = true,
		.overlap_comm = true,
		.lr = 1e-4,
		.optimizer_steps = METRICS_STEPS,
		.warmup_steps = METRICS_WARMUP,
	};
}

/* What it points to is filled in already. */
static void fill_segment(struct metrics_fixture *f)
{
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
		.spec_text = metrics_fixture_spec_text,
		.spec_sha256 = "00ff",
		.command_line = "engine --role rank",
		.config = &f->config,
		.world = METRICS_WORLD,
		.model_params = 462592,
		.plan = {.param_elems = 479104,
			.arena_elems = 479232,
			.reduce_elems = 60416,
			.n_reduce = 8,
			.gather_elems = 60416,
			.n_gather = 8},
		.planned_elems = {.reduce_scatter = 239616, .all_gather = 239616},
		.activations_bytes = 3000000,
		.logits_bytes = 200000,
		.measure = &f->measure,
		.elem_bytes = 4,
		.device_bytes = 7000000,
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
		.sent_bytes = {.reduce_scatter = 123},
	};
}

int metrics_fixture_setup(void **state)
{
	struct metrics_fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	snprintf(f->dir, sizeof(f->dir), "%s", "/tmp/test_metrics.XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	fill_config(&f->config);
	assert_int_equal(
		measure_init(&f->measure, METRICS_STEPS, METRICS_WARMUP, 16 * 64, METRICS_WORLD),
		0);
	fill_steps(&f->measure);
	metrics_log_init(&f->log);
	metrics_log_add(&f->log, "step %d loss %.1f", 1, 5.0);
	metrics_host_read(&f->ranks[0]);
	f->ranks[1] = f->ranks[0];
	f->device = (struct k_device_info){.backend = "cpu",
		.name = "a processor",
		.library = "OpenBLAS 0.3.21",
		.memory_total_bytes = 1 << 30};
	fill_segment(f);
	unsetenv("SLURM_JOB_ID");
	*state = f;
	return 0;
}

int metrics_fixture_teardown(void **state)
{
	struct metrics_fixture *f = *state;
	struct dirent *entry;
	DIR *dir = opendir(f->dir);

	assert_non_null(dir);
	while ((entry = readdir(dir)) != NULL)
		unlinkat(dirfd(dir), entry->d_name, 0);
	closedir(dir);
	rmdir(f->dir);
	metrics_log_finish(&f->log);
	measure_finish(&f->measure);
	free(f);
	return 0;
}

char *metrics_fixture_read_file(const struct metrics_fixture *f, const char *name)
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

json_t *metrics_fixture_read_json(const struct metrics_fixture *f, const char *name)
{
	char *text = metrics_fixture_read_file(f, name);
	json_error_t error;
	json_t *value;

	assert_non_null(text);
	value = json_loads(text, JSON_REJECT_DUPLICATES, &error);
	if (value == NULL)
		fail_msg("%s:%d: %s", name, error.line, error.text);
	free(text);
	return value;
}

void metrics_fixture_write_all(struct metrics_fixture *f, struct metrics_files *files)
{
	char error[512] = "";

	assert_int_equal(metrics_begin(f->dir), 0);
	if (metrics_write(&f->segment, files, error, sizeof(error)) != 0)
		fail_msg("%s", error);
}

/* "a.b.0.c" */
json_t *metrics_fixture_at(json_t *value, const char *path)
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

void metrics_fixture_has(json_t *value, const char *path, const char *text)
{
	size_t n = strlen(path);
	char where[128], *found;
	json_t *at;

	snprintf(where, sizeof(where), "%s", path);
	if (n > 2 && strcmp(where + n - 2, ".#") == 0)
		where[n - 2] = '\0';
	at = metrics_fixture_at(value, where);
	if (strcmp(where, path) != 0)
		assert_int_equal(
			json_is_array(at) ? json_array_size(at) : json_object_size(at), atoi(text));
	else {
		found = json_dumps(at, JSON_ENCODE_ANY | JSON_COMPACT);
		for (char *c = found; c && *c; c++)
			*c = *c == '"' ? '\'' : *c;
		if (found == NULL || strcmp(found, text) != 0)
			fail_msg("%s: %s expected, found %s", path, text, found ? found : "none");
		free(found);
	}
}
