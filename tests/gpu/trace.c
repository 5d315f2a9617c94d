/*
 * gpu_trace: losses of a training for tests/gpu/torch_trace.py, which runs the same training from
 * the same parameters on the same tokens.
 *
 *   gpu_trace DIR [small] [steps STEPS]      20 steps on synthetic tokens, in each precision
 *   gpu_trace DIR [small] text FILE STEPS    steps on a token file, in bf16
 *
 * The model is GPT-2 124M; small: one that a CPU, which computes bf16 in fp32, trains in seconds.
 *
 * Writes DIR/params.f32 (the initial arena), DIR/tokens.i32 (per step the inputs of its global
 * batch, then the targets), per precision DIR/grads.TYPE (the arena of the first step's gradients,
 * in that type, times the loss scale) and DIR/trace.json: shapes, each tensor's place in the arena,
 * and per precision the loss, the gradient norm and the learning rate of each step, as the engine
 * launches them.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu/small_training.h"
#include "tests/unit/engine/gpt2_shape.h"
#include "tests/unit/engine/tiny.h"

enum { STEPS = 20, STEPS_MAX = 100000, TEXT_WARMUP_STEPS = 50 };
enum { PATH_BYTES = 512, THREADS_MAX = 16 };
static const int64_t wait_ns = INT64_C(60000000000);

static const struct {
	const char *name;
	enum spec_precision precision;
} types[] = {{"fp32", SPEC_FP32}, {"bf16", SPEC_BF16}, {"fp16", SPEC_FP16}};

struct asked {
	const char *dir;
	bool small;
	const char *text; /* NULL: synthetic tokens */
	int64_t steps;
};

static void set_text(struct spec_config *c, const struct asked *asked)
{
	c->data_kind = SPEC_DATA_FILE;
	snprintf(c->data_train, sizeof(c->data_train), "%s", asked->text);
	c->seq_len = asked->small ? 64 : 512;
	c->micro_batch = 16;
	c->accumulation = 1;
	c->schedule = SPEC_WARMUP_LR;
	c->warmup_type = SPEC_WARMUP_LINEAR;
	c->warmup_max_lr = 6e-4;
	c->warmup_num_steps = TEXT_WARMUP_STEPS;
}

static struct spec_config make_config(enum spec_precision precision, const struct asked *asked)
{
	struct spec_config c = small_training_config(precision);

	c.accumulation = 2;
	if (!asked->small) {
		c.model = gpt2_shape();
		c.data_synthetic_tokens = 1 << 20;
		c.seq_len = 256;
		c.micro_batch = 4;
		c.lr = 3e-5; /* without a warm-up: larger ones give spikes that rounding decides */
	}
	if (asked->text)
		set_text(&c, asked);
	c.batch = c.micro_batch * c.accumulation;
	c.optimizer_steps = asked->steps;
	c.fp16_initial_scale_power = 12; /* no step is skipped: PyTorch uses the same scale */
	c.fp16_loss_scale_window = 1000;
	return c;
}

static int write_file(const char *dir, const char *name, const void *bytes, size_t n)
{
	char path[PATH_BYTES];
	FILE *to;
	bool good;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	to = fopen(path, "we");
	good = to && fwrite(bytes, 1, n, to) == n;
	if (!to || fclose(to) || !good) {
		perror(path);
		return -1;
	}
	return 0;
}

/* From the device. */
static int write_arena(const struct warm *w, const void *arena, int64_t elems, size_t elem_bytes,
	const char *dir, const char *name)
{
	size_t bytes = (size_t)elems * elem_bytes;
	void *host = k_alloc_host(w->ctx, bytes);
	int rc = -1;

	if (host) {
		k_copy_out(w->compute, host, arena, bytes);
		if (k_stream_sync(w->compute, wait_ns) == 0)
			rc = write_file(dir, name, host, bytes);
	}
	k_free_host(w->ctx, host);
	return rc;
}

static int write_tokens(const struct spec_config *c, const struct dataset *data, const char *dir)
{
	int64_t half = c->batch * c->seq_len, n = 2 * half * c->optimizer_steps;
	int32_t *tokens = calloc((size_t)n, sizeof(*tokens));
	char error[512];
	int rc = tokens ? 0 : -1;

	for (int64_t i = 0; i < c->optimizer_steps && !rc; i++)
		rc = dataset_read(data, i * c->batch, c->batch, tokens + 2 * half * i,
			tokens + 2 * half * i + half, error, sizeof(error));
	if (!rc)
		rc = write_file(dir, "tokens.i32", tokens, (size_t)n * sizeof(*tokens));
	free(tokens);
	return rc;
}

static json_t *pack_config(const struct spec_config *c)
{
	const struct spec_model *m = &c->model;

	return json_pack("{sI sI sI sI sI sI sI sI sI sf sf sf sf sf sf}", "n_layer",
		(json_int_t)m->n_layer, "n_head", (json_int_t)m->n_head, "n_embd",
		(json_int_t)m->n_embd, "vocab_size", (json_int_t)m->vocab_size, "n_positions",
		(json_int_t)m->n_positions, "seq_len", (json_int_t)c->seq_len, "micro_batch",
		(json_int_t)c->micro_batch, "accumulation", (json_int_t)c->accumulation, "steps",
		(json_int_t)c->optimizer_steps, "beta1", c->beta1, "beta2", c->beta2, "eps", c->eps,
		"weight_decay", c->weight_decay, "clip", c->gradient_clipping, "loss_scale",
		(double)(1 << c->fp16_initial_scale_power));
}

static json_t *pack_tensors(const struct arena *a)
{
	json_t *list = json_array();

	for (int64_t i = 0; i < a->n_entries; i++) {
		const struct arena_entry *e = &a->entries[i];

		json_array_append_new(list,
			json_pack("{ss sI sI sI sI}", "name", arena_tensor_name(e->tensor), "layer",
				(json_int_t)e->layer, "first", (json_int_t)e->first, "rows",
				(json_int_t)e->rows, "cols", (json_int_t)e->cols));
	}
	return list;
}

static int write_gradients(const struct training *t, const char *type, const char *dir)
{
	char name[32];

	snprintf(name, sizeof(name), "grads.%s", type);
	return write_arena(
		t->warm, t->model.grads, t->arena.param_elems, (size_t)t->elem_bytes, dir, name);
}

static int run_steps(
	struct training *t, const char *type, const char *dir, json_t *into, char error[512])
{
	json_t *losses = json_array(), *norms = json_array(), *rates = json_array();
	int rc = 0;

	json_object_set_new(into, "loss", losses);
	json_object_set_new(into, "norm", norms);
	json_object_set_new(into, "lr", rates);
	for (int64_t i = 0; i < t->config->optimizer_steps && !rc; i++) {
		struct step_result r;

		rc = step_run(&t->step, false, &r, error, 512);
		if (rc)
			break;
		if (r.measure.skipped) {
			snprintf(error, 512, "step %" PRId64 " was skipped", i + 1);
			rc = -1;
		}
		if (i == 0 && !rc)
			rc = write_gradients(t, type, dir);
		json_array_append_new(losses, json_real(r.measure.loss));
		json_array_append_new(norms, json_real(r.measure.grad_norm));
		json_array_append_new(rates, json_real(r.measure.lr));
	}
	return rc;
}

/* Members that all precisions share: from the first one. */
static int write_start(
	const struct training *t, const struct dataset *data, const char *dir, json_t *root)
{
	if (json_object_get(root, "config"))
		return 0;
	json_object_set_new(root, "config", pack_config(t->config));
	json_object_set_new(root, "tensors", pack_tensors(&t->arena));
	if (write_arena(t->warm, t->optimizer.adamw.master, t->arena.param_elems, sizeof(float),
		    dir, "params.f32"))
		return -1;
	return write_tokens(t->config, data, dir);
}

static int trace(struct warm *w, const struct spec_config *c, const char *type, const char *dir,
	json_t *root)
{
	json_t *steps = json_object();
	struct dataset data;
	struct training t;
	char error[512] = "";
	int rc = tiny_open(&t, &data, w, NULL, c);

	json_object_set_new(json_object_get(root, "traces"), type, steps);
	if (rc)
		return rc;
	training_reset(&t);
	rc = write_start(&t, &data, dir, root);
	if (!rc)
		rc = run_steps(&t, type, dir, steps, error);
	if (rc)
		fprintf(stderr, "%s: %s\n", type, error);
	tiny_close(&t, &data);
	return rc;
}

static int start(struct warm *w)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	int threads = processors < THREADS_MAX ? (int)processors : THREADS_MAX;
	struct k_context_options options = {.threads = threads < 1 ? 1 : threads};

	*w = (struct warm){.world = 1, .threads = options.threads};
	return k_context_create(&options, &w->ctx) ||
		k_stream_create(w->ctx, K_STREAM_COMPUTE, "compute", &w->compute) ||
		k_stream_create(w->ctx, K_STREAM_COMM, "comm", &w->comm) || warm_init(w);
}

static int read_arguments(int argc, char **argv, struct asked *asked)
{
	int at = 2;
	char *end;

	if (argc < at)
		return -1;
	*asked = (struct asked){.dir = argv[1], .steps = STEPS};
	if (argc > at && strcmp(argv[at], "small") == 0) {
		asked->small = true;
		at++;
	}
	if (argc == at)
		return 0;
	if (argc == at + 3 && strcmp(argv[at], "text") == 0)
		asked->text = argv[at + 1];
	else if (argc != at + 2 || strcmp(argv[at], "steps") != 0)
		return -1;
	asked->steps = strtoll(argv[argc - 1], &end, 10);
	return *end || asked->steps < 1 || asked->steps > STEPS_MAX ? -1 : 0;
}

/* A CPU trains only in fp32; text trains in one precision. */
static bool wanted(enum spec_precision precision, const struct asked *asked, bool cpu)
{
	if (cpu)
		return precision == SPEC_FP32;
	return !asked->text || precision == SPEC_BF16;
}

int main(int argc, char **argv)
{
	json_t *root = json_pack("{s{}}", "traces");
	struct k_device_info info;
	char path[PATH_BYTES];
	struct asked asked;
	struct warm w;
	int rc = 0;

	if (read_arguments(argc, argv, &asked)) {
		fprintf(stderr, "usage: gpu_trace DIR [small] [steps STEPS | text FILE STEPS]\n");
		return 2;
	}
	if (start(&w)) {
		fprintf(stderr, "trace: no device\n");
		return 1;
	}
	k_context_info(w.ctx, &info);
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]) && !rc; i++) {
		struct spec_config c = make_config(types[i].precision, &asked);

		if (wanted(c.precision, &asked, strcmp(info.backend, "cpu") == 0))
			rc = trace(&w, &c, types[i].name, asked.dir, root);
	}
	snprintf(path, sizeof(path), "%s/trace.json", asked.dir);
	if (!rc)
		rc = json_dump_file(root, path, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
	json_decref(root);
	warm_finish(&w);
	k_stream_destroy(w.comm);
	k_stream_destroy(w.compute);
	k_context_destroy(w.ctx);
	return rc ? 1 : 0;
}
