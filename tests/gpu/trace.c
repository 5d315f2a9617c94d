/*
 * gpu_trace: losses of a training for tests/gpu/torch_trace.py, which trains the same from the same
 * parameters on the same tokens.
 *
 *   gpu_trace DIR [small]     GPT-2 124M; small: a model that a CPU trains in a second
 *
 * Writes DIR/params.f32 (the arena at the start), DIR/tokens.i32 (per step the inputs of its global
 * batch, then the targets) and DIR/trace.json: shapes, where each tensor lies in the arena, and per
 * precision the loss and the gradient norm of each step, as the engine launches them.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/small_training.h"

enum { STEPS = 20, PATH_BYTES = 512 };
static const int64_t wait_ns = INT64_C(60000000000);

static const struct {
	const char *name;
	enum spec_precision precision;
} types[] = {{"fp32", SPEC_FP32}, {"bf16", SPEC_BF16}, {"fp16", SPEC_FP16}};

static struct spec_config make_config(enum spec_precision precision, bool small)
{
	struct spec_config c = small_training_config(precision);

	if (!small) {
		c.model = (struct spec_model){.n_layer = 12,
			.n_head = 12,
			.n_embd = 768,
			.vocab_size = 50257,
			.n_positions = 1024,
			.tied_head = true};
		c.data_synthetic_tokens = 1 << 20;
		c.seq_len = 256;
		c.micro_batch = 4;
		c.lr = 3e-5; /* without a warm-up: more makes spikes, which roundings decide on */
	}
	c.accumulation = 2;
	c.batch = c.micro_batch * c.accumulation;
	c.optimizer_steps = STEPS;
	c.fp16_initial_scale_power = 12; /* no step is skipped: PyTorch is to scale by the same */
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

static int write_params(const struct warm *w, const struct training *t, const char *dir)
{
	size_t bytes = (size_t)t->arena.param_elems * sizeof(float);
	float *host = k_alloc_host(w->ctx, bytes);
	int rc = -1;

	if (host) {
		k_copy_out(w->compute, host, t->model.params, bytes);
		if (k_stream_sync(w->compute, wait_ns) == 0)
			rc = write_file(dir, "params.f32", host, bytes);
	}
	k_free_host(w->ctx, host);
	return rc;
}

static int write_tokens(const struct spec_config *c, const struct dataset *data, const char *dir)
{
	int64_t half = c->batch * c->seq_len, n = 2 * half * STEPS;
	int32_t *tokens = calloc((size_t)n, sizeof(*tokens));
	char error[512];
	int rc = tokens ? 0 : -1;

	for (int64_t i = 0; i < STEPS && !rc; i++)
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

	return json_pack("{sI sI sI sI sI sI sI sI si sf sf sf sf sf sf sf}", "n_layer",
		(json_int_t)m->n_layer, "n_head", (json_int_t)m->n_head, "n_embd",
		(json_int_t)m->n_embd, "vocab_size", (json_int_t)m->vocab_size, "n_positions",
		(json_int_t)m->n_positions, "seq_len", (json_int_t)c->seq_len, "micro_batch",
		(json_int_t)c->micro_batch, "accumulation", (json_int_t)c->accumulation, "steps",
		STEPS, "lr", c->lr, "beta1", c->beta1, "beta2", c->beta2, "eps", c->eps,
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

static int run_steps(struct training *t, json_t *losses, json_t *norms, char error[512])
{
	for (int i = 0; i < STEPS; i++) {
		struct step_result r;
		int rc = step_run(&t->step, false, &r, error, 512);

		if (rc)
			return rc;
		if (r.measure.skipped) {
			snprintf(error, 512, "step %d was skipped", i + 1);
			return -1;
		}
		json_array_append_new(losses, json_real(r.measure.loss));
		json_array_append_new(norms, json_real(r.measure.grad_norm));
	}
	return 0;
}

static int trace(struct warm *w, const struct spec_config *c, const char *type, const char *dir,
	json_t *root)
{
	json_t *losses = json_array(), *norms = json_array();
	struct dataset data;
	struct training t;
	char error[512] = "";
	int rc = dataset_open(&data, c, false, error, sizeof(error));

	if (rc)
		goto out;
	rc = training_init(&t, w, c, &data, error, sizeof(error));
	if (rc)
		goto out_data;
	rc = training_join(&t, NULL);
	training_reset(&t);
	if (!rc && c->precision == SPEC_FP32) {
		json_object_set_new(root, "config", pack_config(c));
		json_object_set_new(root, "tensors", pack_tensors(&t.arena));
		rc = write_params(w, &t, dir) || write_tokens(c, &data, dir);
	}
	if (!rc)
		rc = run_steps(&t, losses, norms, error);
	training_finish(&t);
out_data:
	dataset_close(&data);
out:
	if (rc)
		fprintf(stderr, "%s: %s\n", type, error);
	json_object_set_new(json_object_get(root, "traces"), type,
		json_pack("{so so}", "loss", losses, "norm", norms));
	return rc;
}

static int start(struct warm *w)
{
	struct k_context_options options = {.threads = 1};

	*w = (struct warm){.world = 1, .threads = 1};
	return k_context_create(&options, &w->ctx) ||
		k_stream_create(w->ctx, K_STREAM_COMPUTE, "compute", &w->compute) ||
		k_stream_create(w->ctx, K_STREAM_COMM, "comm", &w->comm) || warm_init(w);
}

int main(int argc, char **argv)
{
	json_t *root = json_pack("{s{}}", "traces");
	bool small = argc == 3 && strcmp(argv[2], "small") == 0;
	char path[PATH_BYTES];
	struct warm w;
	int rc = 0;

	if (argc < 2 || (argc > 2 && !small)) {
		fprintf(stderr, "usage: gpu_trace DIR [small]\n");
		return 2;
	}
	if (start(&w)) {
		fprintf(stderr, "trace: no device\n");
		return 1;
	}
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]) && !rc; i++) {
		struct spec_config c = make_config(types[i].precision, small);
		struct k_device_info info;

		k_context_info(w.ctx, &info);
		if (types[i].precision != SPEC_FP32 && strcmp(info.backend, "cpu") == 0)
			continue;
		rc = trace(&w, &c, types[i].name, argv[1], root);
	}
	snprintf(path, sizeof(path), "%s/trace.json", argv[1]);
	if (!rc)
		rc = json_dump_file(root, path, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
	json_decref(root);
	warm_finish(&w);
	k_stream_destroy(w.comm);
	k_stream_destroy(w.compute);
	k_context_destroy(w.ctx);
	return rc ? 1 : 0;
}
