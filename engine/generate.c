#include "engine/generate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sample.h"
#include "engine/train/model.h"
#include "engine/train/warm.h"
#include "proto/checkpoint.h"
#include "proto/half.h"
#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"
#include "proto/spec/spec.h"

enum { CHUNK_ELEMS = 1 << 20, POSITIONS_MIN = 64, ALIGN_BYTES = 256 };
#define PROGRESS_NS CLOCK_S_NS

/* A model whose weights are on the device. */
struct generate_model {
	struct checkpoint *checkpoint;
	struct spec *spec; /* of its arm; the model has this shape */
	const struct spec_config *config;
	struct arena arena;
	struct k_context *ctx;
	struct k_stream *stream;
	void *params;
	bool loaded;
};

struct generation {
	struct link *link;
	int64_t run, number;
	int64_t asked, stop; /* maximum of tokens to add; the one to end after, -1: none */
	struct sample sample;

	struct generate_model *m;
	void *acts;
	struct model model;
	int32_t *device_tokens;
	int32_t *tokens; /* prompt, then the added tokens */
	int64_t n, prompt;
	double *log_probs;
	void *row; /* logits in the device's type */
	float *logits, *scratch;

	int64_t begin_ns, loaded_ns, first_ns, end_ns;
	bool stopped, cancelled, refused;
	char error[1024];
};

static bool fail(struct generation *g, bool refused, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Always false. */
static bool fail(struct generation *g, bool refused, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(g->error, sizeof(g->error), format, args);
	va_end(args);
	g->refused = refused;
	return false;
}

static bool device_failed(struct generation *g, int rc)
{
	const char *why = g->m->ctx ? k_context_error(g->m->ctx) : NULL;

	return fail(g, false, "device: %s", why ? why : strerror(-rc));
}

/* ---- the checkpoint ---- */

static void finish_model(struct generate_model *m)
{
	if (m->ctx)
		k_free(m->ctx, m->params);
	k_stream_destroy(m->stream);
	k_context_destroy(m->ctx);
	if (m->spec)
		arena_finish(&m->arena);
	spec_free(m->spec);
	checkpoint_close(m->checkpoint);
	*m = (struct generate_model){0};
}

/* The model of the generation before stays if it is of the same checkpoint. */
static bool open_checkpoint(struct generation *g, const char *dir)
{
	struct spec_errors *errors = memory_zeroed(1, sizeof(*errors));
	struct spec_options options = {0};
	struct checkpoint *c = NULL;
	const json_t *manifest;
	char *text;
	bool parsed;
	int rc = checkpoint_open(dir, &c, g->error, sizeof(g->error));

	if (rc || (g->m->loaded && strcmp(g->m->checkpoint->sha256, c->sha256) == 0)) {
		checkpoint_close(c);
		free(errors);
		return rc == 0;
	}
	finish_model(g->m);
	g->m->checkpoint = c;
	manifest = g->m->checkpoint->manifest;
	options.world = (int)json_integer_value(json_object_get(manifest, "world"));
	text = json_dumps(json_object_get(manifest, "spec"), JSON_REAL_PRECISION(17));
	parsed = text && spec_parse(text, strlen(text), &options, &g->m->spec, errors) == 0;
	if (!parsed)
		fail(g, false, "%s: spec: %s: %s", dir, text ? errors->error[0].key : "",
			text ? errors->error[0].message : "it has none");
	free(text);
	free(errors);
	if (!parsed)
		return false;
	g->m->config = &g->m->spec->arms[0].config;
	arena_init(&g->m->arena, &g->m->config->model);
	if (g->m->arena.param_elems != g->m->checkpoint->param_elems)
		return fail(g, false,
			"%s: %" PRId64 " parameters with padding, its model has %" PRId64, dir,
			g->m->checkpoint->param_elems, g->m->arena.param_elems);
	return true;
}

static bool check_request(struct generation *g, const json_t *params)
{
	const json_t *prompt = json_object_get(params, "prompt"), *token;
	const struct spec_model *m = &g->m->config->model;
	size_t i;

	g->prompt = (int64_t)json_array_size(prompt);
	if (g->prompt >= m->n_positions)
		return fail(g, true,
			"a prompt of %" PRId64 " tokens is too long: the model has %" PRId64
			" positions (at most %" PRId64 " tokens, and one to add)",
			g->prompt, m->n_positions, m->n_positions - 1);
	if (g->prompt + g->asked > m->n_positions)
		return fail(g, true,
			"a prompt of %" PRId64 " tokens and %" PRId64
			" more: the model has %" PRId64 " positions\n"
			"add at most %" PRId64 ": --tokens %" PRId64,
			g->prompt, g->asked, m->n_positions, m->n_positions - g->prompt,
			m->n_positions - g->prompt);
	g->tokens = memory_zeroed((size_t)m->n_positions, sizeof(*g->tokens));
	json_array_foreach(prompt, i, token) {
		const json_int_t id = json_integer_value(token);

		if (id < 0 || id >= m->vocab_size)
			return fail(g, true,
				"token %" PRId64 " of the prompt: the model has %" PRId64
				" tokens (0 to %" PRId64 ")",
				(int64_t)id, m->vocab_size, m->vocab_size - 1);
		g->tokens[i] = (int32_t)id;
	}
	g->n = g->prompt;
	return true;
}

/* ---- memory ---- */

/* Positions of a pass over this many tokens. */
static int64_t positions_for(const struct generation *g, int64_t tokens)
{
	int64_t t = POSITIONS_MIN;

	while (t < tokens)
		t *= 2;
	return t < g->m->config->model.n_positions ? t : g->m->config->model.n_positions;
}

static struct activations_shape shape_of(const struct generation *g, int64_t positions)
{
	return (struct activations_shape){
		.model = &g->m->config->model,
		.recompute = SPEC_RECOMPUTE_FULL,
		.B = 1,
		.T = positions,
		.elem_bytes = (int64_t)k_elem_bytes(g->m->ctx),
		.real_bytes = (int64_t)sizeof(k_real),
	};
}

static enum k_dtype dtype_of(enum spec_precision precision)
{
	return precision == SPEC_BF16    ? K_BF16
		: precision == SPEC_FP16 ? K_FP16
		: precision == SPEC_TF32 ? K_TF32
					 : K_FP32;
}

static bool make_device(struct generation *g, const struct warm *w)
{
	struct k_context_options options = {.device = w->local_rank,
		.threads = w->threads,
		.error = g->error,
		.error_bytes = sizeof(g->error)};
	int rc;

	if (g->m->loaded)
		return true;
	rc = k_context_create(&options, &g->m->ctx);
	if (rc)
		return g->error[0] ? false : device_failed(g, rc);
	if (k_context_set_dtype(g->m->ctx, dtype_of(g->m->config->precision)))
		return fail(g, true, "this engine does not compute in %s, as the run did",
			spec_precision_name(g->m->config->precision));
	rc = k_stream_create(g->m->ctx, K_STREAM_COMPUTE, "generate", &g->m->stream);
	return rc ? device_failed(g, rc) : true;
}

/* The keys and values of each block lie after the activations, which the blocks share. */
static bool take_memory(struct generation *g)
{
	const struct activations_shape shape = shape_of(g, positions_for(g, g->prompt + g->asked));
	const struct spec_model *model = &g->m->config->model;
	const int64_t elem = shape.elem_bytes, vocab = g->m->arena.vocab_padded;
	const int64_t shared = activations_bytes(&shape), qkv = shape.T * 3 * model->n_embd * elem;
	const int64_t stride = (qkv + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
	struct model_buffers buffers;

	if (!g->m->loaded)
		g->m->params = k_alloc(g->m->ctx, (size_t)(g->m->arena.param_elems * elem));
	g->acts = k_alloc(g->m->ctx, (size_t)(shared + model->n_layer * stride));
	g->device_tokens = k_alloc(g->m->ctx, (size_t)shape.T * sizeof(*g->device_tokens));
	if (!g->m->params || !g->acts || !g->device_tokens)
		return fail(g, false,
			"no memory on the device for the model beside the engine's buffers\n"
			"free it: gpt2ctl release, then gpt2ctl warm");
	buffers = (struct model_buffers){.params = g->m->params, .acts = g->acts};
	model_init(&g->model, g->m->ctx, g->m->stream, &g->m->arena, &shape, &buffers);
	g->model.layout.qkv = (struct activations_tensor){.first = shared, .stride = stride};
	g->row = k_alloc_host(g->m->ctx, (size_t)(vocab * elem));
	g->logits = memory_zeroed((size_t)vocab, sizeof(*g->logits));
	g->scratch = memory_zeroed((size_t)vocab, sizeof(*g->scratch));
	g->log_probs = memory_zeroed((size_t)g->asked, sizeof(*g->log_probs));
	return g->row ? true : fail(g, false, "no memory");
}

/* The checkpoint's fp32 weights in the compute type, through the activations' memory. */
static bool load(struct generation *g)
{
	const size_t elem = k_elem_bytes(g->m->ctx);
	void *staging;
	float *host;
	bool loaded;
	int64_t n;
	int rc = 0;

	if (g->m->loaded)
		return true;
	host = k_alloc_host(g->m->ctx, CHUNK_ELEMS * sizeof(*host));
	staging = k_alloc(g->m->ctx, CHUNK_ELEMS * sizeof(k_real));
	loaded = host && staging;
	if (!loaded)
		fail(g, false, "no memory to load the weights");
	loaded = loaded &&
		checkpoint_verify(
			g->m->checkpoint, CHECKPOINT_MASTER, g->error, sizeof(g->error)) == 0;
	for (int64_t first = 0; loaded && first < g->m->arena.param_elems; first += n) {
		n = g->m->arena.param_elems - first;
		n = n < CHUNK_ELEMS ? n : CHUNK_ELEMS;
		loaded = checkpoint_read(g->m->checkpoint, CHECKPOINT_MASTER, first, n, host,
				 g->error, sizeof(g->error)) == 0;
		if (!loaded)
			break;
		k_copy_in(g->m->stream, staging, host, (size_t)n * sizeof(*host));
		k_cast(g->m->stream, (char *)g->m->params + (size_t)first * elem, staging, n);
		rc = k_stream_sync(g->m->stream, K_WAIT_NS);
		if (rc)
			loaded = device_failed(g, rc);
	}
	k_free(g->m->ctx, staging);
	k_free_host(g->m->ctx, host);
	g->m->loaded = loaded;
	return loaded;
}

/* ---- tokens ---- */

static void widen(struct generation *g)
{
	const uint16_t *narrow = g->row;
	const enum k_dtype dtype = k_context_dtype(g->m->ctx);
	const int64_t vocab = g->m->config->model.vocab_size;

	if (dtype != K_BF16 && dtype != K_FP16) {
		memcpy(g->logits, g->row, (size_t)vocab * sizeof(*g->logits));
		return;
	}
	for (int64_t i = 0; i < vocab; i++)
		g->logits[i] =
			dtype == K_BF16 ? half_from_bf16(narrow[i]) : half_from_f16(narrow[i]);
}

/* The logits of the next token. */
static bool forward(struct generation *g)
{
	const bool prompt = g->n == g->prompt;
	struct model *m = &g->model;
	struct model_pass pass = {.tokens = g->device_tokens};
	const void *logits;
	int rc;

	k_copy_in(g->m->stream, g->device_tokens, g->tokens, (size_t)g->n * sizeof(*g->tokens));
	m->T = positions_for(g, g->n);
	if (!prompt) {
		m->T = 1;
		pass.past = g->n - 1;
		pass.tokens += pass.past;
	}
	logits = model_forward_row(m, &pass, prompt ? g->n - 1 : 0);
	k_copy_out(g->m->stream, g->row, logits,
		(size_t)g->m->config->model.vocab_size * k_elem_bytes(g->m->ctx));
	rc = k_stream_sync(g->m->stream, K_WAIT_NS);
	if (rc)
		return device_failed(g, rc);
	widen(g);
	return true;
}

static bool add_token(struct generation *g)
{
	int64_t token;

	if (!forward(g))
		return false;
	token = sample_next(&g->sample, g->logits, g->m->config->model.vocab_size, g->scratch,
		&g->log_probs[g->n - g->prompt]);
	if (token < 0)
		return fail(g, false, "after %" PRId64 " tokens the model's logits are not finite",
			g->n);
	g->tokens[g->n++] = (int32_t)token;
	g->stopped = token == g->stop;
	return true;
}

static bool add_tokens(struct generation *g)
{
	int64_t told_ns = g->loaded_ns, now;

	while (g->n < g->prompt + g->asked && !g->stopped) {
		if (link_stop_asked(g->link, g->run, 0)) {
			g->cancelled = true;
			return fail(g, false, "the generation was cancelled");
		}
		if (!add_token(g))
			return false;
		now = clock_mono_ns();
		if (g->n == g->prompt + 1)
			g->first_ns = now;
		if (now - told_ns >= PROGRESS_NS) {
			link_send_lossy(g->link, GENERATE_PROGRESS,
				json_pack("{s:I, s:I, s:I}", "run", (json_int_t)g->run, "number",
					(json_int_t)g->number, "tokens",
					(json_int_t)(g->n - g->prompt)));
			told_ns = now;
		}
	}
	g->end_ns = clock_mono_ns();
	return true;
}

/* ---- reports ---- */

static void send_done(const struct generation *g)
{
	const int64_t n = g->n - g->prompt;
	const double all_s = (double)(g->end_ns - g->loaded_ns) / 1e9;
	json_t *tokens = json_array(), *log_probs = json_array();

	for (int64_t i = 0; i < n; i++) {
		json_array_append_new(tokens, json_integer(g->tokens[g->prompt + i]));
		json_array_append_new(log_probs, json_real(g->log_probs[i]));
	}
	link_send(g->link, GENERATE_DONE,
		json_pack("{s:I, s:I, s:I, s:I, s:o, s:o, s:b, s:f, s:f, s:o, s:f}", "run",
			(json_int_t)g->run, "number", (json_int_t)g->number, "step",
			(json_int_t)g->m->checkpoint->step, "vocab_size",
			(json_int_t)g->m->config->model.vocab_size, "tokens", tokens, "log_probs",
			log_probs, "stopped", g->stopped, "load_s",
			(double)(g->loaded_ns - g->begin_ns) / 1e9, "first_token_s",
			(double)(g->first_ns - g->loaded_ns) / 1e9, "token_s",
			n > 1 ? json_real((double)(g->end_ns - g->first_ns) / 1e9 / (double)(n - 1))
			      : json_null(),
			"tokens_per_sec", all_s > 0 ? (double)n / all_s : 0.0));
}

static void send_failed(const struct generation *g)
{
	link_send(g->link, GENERATE_FAILED,
		json_pack("{s:I, s:I, s:s, s:b}", "run", (json_int_t)g->run, "number",
			(json_int_t)g->number, "message", g->error, "refused", g->refused));
}

static void finish(struct generation *g)
{
	if (g->m->ctx) {
		k_free(g->m->ctx, g->acts);
		k_free(g->m->ctx, g->device_tokens);
		k_free_host(g->m->ctx, g->row);
	}
	free(g->tokens);
	free(g->log_probs);
	free(g->logits);
	free(g->scratch);
}

static int64_t integer(const json_t *params, const char *key, int64_t standard)
{
	const json_t *value = json_object_get(params, key);

	return json_is_integer(value) ? json_integer_value(value) : standard;
}

void generate_drop(struct generate_model **kept)
{
	if (*kept)
		finish_model(*kept);
	free(*kept);
	*kept = NULL;
}

bool generate_run(
	struct link *link, const struct warm *w, struct generate_model **kept, const json_t *params)
{
	struct generation g = {
		.link = link,
		.m = *kept ? *kept : memory_zeroed(1, sizeof(*g.m)),
		.run = integer(params, "run", 0),
		.number = integer(params, "number", 0),
		.asked = integer(params, "tokens", 1),
		.stop = integer(params, "stop", -1),
		.sample = {.temperature = json_number_value(json_object_get(params, "temperature")),
			.top_k = integer(params, "top_k", 0),
			.random = (uint64_t)integer(params, "seed", 0)},
		.begin_ns = clock_mono_ns(),
	};
	const char *dir = json_string_value(json_object_get(params, "dir"));
	bool done, lost;

	done = open_checkpoint(&g, dir ? dir : "") && check_request(&g, params) &&
		make_device(&g, w) && take_memory(&g) && load(&g);
	g.loaded_ns = clock_mono_ns();
	done = done && add_tokens(&g);
	lost = g.m->ctx && k_context_error(g.m->ctx);
	if (done)
		send_done(&g);
	else
		send_failed(&g);
	finish(&g);
	*kept = g.m;
	if (lost || !g.m->loaded)
		generate_drop(kept);
	return !lost;
}
