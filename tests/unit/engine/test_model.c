/* Loss, every gradient and five AdamW steps of the model beside those of torch (tests/golden). */
#include <math.h>

#include "engine/train/model.h"
#include "engine/train/optimizer.h"
#include "tests/unit/engine/golden.h"
#include "tests/unit/test.h"

#ifdef K_DOUBLE
/* losses and gradients were stored in double, parameters in single precision */
static const double TOLERANCE = 1e-11, PARAM_TOLERANCE = 1e-7;
#else
static const double TOLERANCE = 1e-5, PARAM_TOLERANCE = 1e-4;
#endif

static struct golden golden;

struct fixture {
	struct k_context *ctx;
	struct k_stream *stream;
	struct spec_config config;
	struct arena arena;
	struct plan plan;
	struct timeline time;
	struct zero zero;
	struct optimizer optimizer;
	struct activations_shape shape;
	struct model model;
	int32_t *inputs, *targets;
	k_real *losses, *params, *grads;
	struct optimizer_buffers buffers;
	void *acts;
	char variant[32];
};

static double number(const char *name, int64_t i)
{
	const struct golden_record *r = golden_find(&golden, name);

	assert_non_null(r);
	assert_true(i < r->n);
	return r->values[i];
}

static int64_t config_number(int64_t i)
{
	return (int64_t)number("config", i);
}

static void make_config(
	struct spec_config *c, bool tied, enum spec_gelu gelu, enum spec_decay decay)
{
	*c = (struct spec_config){
		.model =
			{
				.n_layer = config_number(0),
				.n_head = config_number(1),
				.n_embd = config_number(2),
				.vocab_size = config_number(3),
				.n_positions = config_number(4),
				.tied_head = tied,
				.gelu = gelu,
			},
		.micro_batch = config_number(5),
		.seq_len = config_number(6),
		.accumulation = 1,
		.gpus = 1,
		.batch = config_number(5),
		.lr = number("adamw", 0),
		.beta1 = number("adamw", 1),
		.beta2 = number("adamw", 2),
		.eps = number("adamw", 3),
		.weight_decay = number("adamw", 4),
		.gradient_clipping = number("adamw", 5),
		.decay = decay,
	};
}

static void full_name(const struct arena_entry *e, char *out, size_t bytes)
{
	if (e->tensor < ARENA_PER_BLOCK)
		snprintf(out, bytes, "h.%d.%s", (int)e->layer, arena_tensor_name(e->tensor));
	else
		snprintf(out, bytes, "%s", arena_tensor_name(e->tensor));
}

static void load_weights(struct fixture *f)
{
	for (int64_t i = 0; i < f->arena.n_entries; i++) {
		const struct arena_entry *e = &f->arena.entries[i];
		const struct golden_record *r;
		char name[64], key[96];

		full_name(e, name, sizeof(name));
		snprintf(key, sizeof(key), "w/%s", name);
		r = golden_find(&golden, key);
		assert_non_null(r);
		assert_true(r->n <= e->rows * e->cols);
		for (int64_t j = 0; j < r->n; j++)
			f->params[e->first + j] = (k_real)r->values[j];
	}
}

static void make_buffers(struct fixture *f)
{
	size_t arena_bytes = (size_t)f->plan.arena_elems * sizeof(k_real);
	struct model_buffers mb;

	f->params = k_alloc(f->ctx, arena_bytes);
	f->grads = k_alloc(f->ctx, arena_bytes);
	f->shape = (struct activations_shape){.model = &f->config.model,
		.recompute = f->config.recompute,
		.B = f->config.micro_batch,
		.T = f->config.seq_len,
		.elem_bytes = sizeof(k_real),
		.real_bytes = sizeof(k_real)};
	f->acts = k_alloc(f->ctx, (size_t)activations_bytes(&f->shape));
	f->buffers = (struct optimizer_buffers){
		.params = f->params,
		.grads = f->grads,
		.master = f->params,
		.m = k_alloc(f->ctx, arena_bytes),
		.v = k_alloc(f->ctx, arena_bytes),
		.small = k_alloc(f->ctx, (size_t)optimizer_small_bytes(&f->arena, &f->plan, 0)),
	};
	mb = (struct model_buffers){.params = f->params, .grads = f->grads, .acts = f->acts};
	model_init(&f->model, f->ctx, f->stream, &f->arena, &f->shape, &mb);
}

static void setup(struct fixture *f, bool tied, enum spec_gelu gelu, enum spec_decay decay)
{
	struct k_context_options options = {.threads = 2};
	struct optimizer_options optimizer;
	size_t tokens;
	char error[256];
	int rc;

	memset(f, 0, sizeof(*f));
	snprintf(f->variant, sizeof(f->variant), "%s_%s",
		gelu == SPEC_GELU_EXACT ? "exact" : "tanh", tied ? "tied" : "untied");
	make_config(&f->config, tied, gelu, decay);
	assert_int_equal(k_context_create(&options, &f->ctx), 0);
	assert_int_equal(k_stream_create(f->ctx, K_STREAM_COMPUTE, "compute", &f->stream), 0);
	arena_init(&f->arena, &f->config.model);
	rc = plan_make(&f->plan, f->arena.param_elems, 1, 1 << 20, 1 << 20, error, sizeof(error));
	assert_int_equal(rc, 0);
	make_buffers(f);
	assert_int_equal(timeline_init(&f->time, f->ctx, f->stream), 0);
	zero_init(&f->zero, f->ctx, f->stream, NULL, &f->time);
	optimizer = (struct optimizer_options){
		.ctx = f->ctx,
		.stream = f->stream,
		.config = &f->config,
		.arena = &f->arena,
		.plan = &f->plan,
	};
	assert_int_equal(optimizer_init(&f->optimizer, &optimizer, &f->buffers), 0);
	tokens = (size_t)(f->config.micro_batch * f->config.seq_len);
	f->inputs = calloc(tokens, sizeof(int32_t));
	f->targets = calloc(tokens, sizeof(int32_t));
	f->losses = k_alloc(f->ctx, tokens * sizeof(k_real));
	load_weights(f);
}

static void teardown(struct fixture *f)
{
	assert_null(k_context_error(f->ctx));
	zero_finish(&f->zero);
	timeline_finish(&f->time);
	arena_finish(&f->arena);
	k_free(f->ctx, f->params);
	k_free(f->ctx, f->grads);
	k_free(f->ctx, f->acts);
	k_free(f->ctx, f->buffers.m);
	k_free(f->ctx, f->buffers.v);
	k_free(f->ctx, f->buffers.small);
	k_free(f->ctx, f->losses);
	free(f->inputs);
	free(f->targets);
	k_stream_destroy(f->stream);
	k_context_destroy(f->ctx);
}

static void take_batch(struct fixture *f, int64_t step)
{
	const struct golden_record *tokens = golden_find(&golden, "tokens");
	int64_t B = f->config.micro_batch, T = f->config.seq_len;

	assert_non_null(tokens);
	for (int64_t b = 0; b < B; b++)
		for (int64_t t = 0; t < T; t++) {
			const double *at = &tokens->values[(step * B + b) * (T + 1) + t];

			f->inputs[b * T + t] = (int32_t)at[0];
			f->targets[b * T + t] = (int32_t)at[1];
		}
}

static struct model_pass make_pass(const struct fixture *f)
{
	return (struct model_pass){
		.tokens = f->inputs,
		.dropout = f->config.model.dropout,
		.seed = 11,
		.first_sample = 5,
	};
}

/* Gradients of one batch, from zero; the mean loss. */
static double run_batch(struct fixture *f, const struct model_hooks *hooks)
{
	int64_t R = f->config.micro_batch * f->config.seq_len;
	struct model_pass pass = make_pass(f);
	double sum = 0;

	k_zero(f->stream, f->grads, (size_t)f->plan.arena_elems * sizeof(k_real));
	model_forward(&f->model, &pass, hooks);
	model_loss(&f->model, f->losses, f->targets, 1.0 / (double)R, NULL);
	model_backward(&f->model, &pass, hooks);
	assert_int_equal(k_stream_sync(f->stream, INT64_MAX), 0);
	for (int64_t i = 0; i < R; i++)
		sum += (double)f->losses[i];
	return sum / (double)R;
}

static void check_close(const char *what, double found, double expected, double allowed)
{
	if (!(fabs(found - expected) <= allowed))
		fail_msg("%s: %.12g, expected %.12g, off by %.3g, allowed %.3g", what, found,
			expected, fabs(found - expected), allowed);
}

/* Every tensor of an arena beside its record, to a fraction of the tensor's largest magnitude. */
static void check_tensors(
	const struct fixture *f, const k_real *base, const char *prefix, double tolerance)
{
	for (int64_t i = 0; i < f->arena.n_entries; i++) {
		const struct arena_entry *e = &f->arena.entries[i];
		const struct golden_record *r;
		char name[64], key[128];
		double largest = 0;

		full_name(e, name, sizeof(name));
		snprintf(key, sizeof(key), "%s/%s%s", f->variant, prefix, name);
		r = golden_find(&golden, key);
		if (!r)
			fail_msg("%s: not in the golden file", key);
		for (int64_t j = 0; j < r->n; j++)
			largest = fmax(largest, fabs(r->values[j]));
		for (int64_t j = 0; j < r->n; j++)
			check_close(
				key, (double)base[e->first + j], r->values[j], tolerance * largest);
		for (int64_t j = r->n; j < e->rows * e->cols; j++)
			if (base[e->first + j] != 0)
				fail_msg("%s: row beyond the vocabulary is not zero", key);
	}
}

static void check_gradients(bool tied, enum spec_gelu gelu)
{
	struct fixture f;
	char key[64];
	double loss;

	setup(&f, tied, gelu, SPEC_DECAY_ALL);
	take_batch(&f, 0);
	loss = run_batch(&f, NULL);
	snprintf(key, sizeof(key), "%s/loss", f.variant);
	check_close(key, loss, number(key, 0), TOLERANCE * number(key, 0));
	check_tensors(&f, f.grads, "g/", TOLERANCE);
	teardown(&f);
}

static void gradients_match_torch(void **state)
{
	check_gradients(true, SPEC_GELU_TANH);
	check_gradients(true, SPEC_GELU_EXACT);
	check_gradients(false, SPEC_GELU_TANH);
	check_gradients(false, SPEC_GELU_EXACT);
}

/* The first pass of a step gives the same result with any content of the tensors as with zeros. */
static void first_pass_takes_no_account_of_what_was(void **state)
{
	for (int tied = 0; tied < 2; tied++) {
		struct model_pass pass;
		struct fixture f;
		size_t bytes;
		k_real *onto_zeros;

		setup(&f, tied, SPEC_GELU_TANH, SPEC_DECAY_ALL);
		take_batch(&f, 0);
		run_batch(&f, NULL);
		bytes = (size_t)f.plan.arena_elems * sizeof(k_real);
		onto_zeros = malloc(bytes);
		assert_non_null(onto_zeros);
		memcpy(onto_zeros, f.grads, bytes);
		for (int64_t i = 0; i < f.arena.n_entries; i++) {
			const struct arena_entry *e = &f.arena.entries[i];

			for (int64_t j = 0; j < e->rows * e->cols; j++)
				f.grads[e->first + j] = NAN;
		}
		pass = make_pass(&f);
		pass.first = true;
		model_begin_gradients(&f.model, f.stream);
		model_forward(&f.model, &pass, NULL);
		model_loss(&f.model, f.losses, f.targets,
			1.0 / (double)(f.config.micro_batch * f.config.seq_len), NULL);
		model_backward(&f.model, &pass, NULL);
		assert_int_equal(k_stream_sync(f.stream, INT64_MAX), 0);
		assert_memory_equal(f.grads, onto_zeros, bytes);
		free(onto_zeros);
		teardown(&f);
	}
}

static void check_training(bool tied, enum spec_gelu gelu, enum spec_decay decay)
{
	const char *rule = decay == SPEC_DECAY_ALL ? "all" : "matrices";
	int64_t steps = config_number(7);
	char key[64], prefix[32];
	struct fixture f;

	setup(&f, tied, gelu, decay);
	for (int64_t step = 0; step < steps; step++) {
		struct k_step_state *st = f.optimizer.state;
		double loss, expected;

		*st = (struct k_step_state){.lr = f.config.lr,
			.clip = f.config.gradient_clipping,
			.loss_scale = 1,
			.t = step + 1};
		take_batch(&f, step);
		loss = run_batch(&f, NULL);
		optimizer_norm(&f.optimizer, &f.zero);
		optimizer_update(&f.optimizer);
		snprintf(key, sizeof(key), "%s/%s/losses", f.variant, rule);
		expected = number(key, step);
		check_close(key, loss, expected, TOLERANCE * expected);
		snprintf(key, sizeof(key), "%s/%s/norms", f.variant, rule);
		expected = number(key, step);
		check_close(key, st->grad_norm, expected, 3 * TOLERANCE * expected);
		assert_true(st->grad_norm > f.config.gradient_clipping); /* clipping is at work */
	}
	snprintf(prefix, sizeof(prefix), "%s/p/", rule);
	check_tensors(&f, f.params, prefix, PARAM_TOLERANCE);
	teardown(&f);
}

static void five_steps_match_torch(void **state)
{
	for (int tied = 0; tied < 2; tied++) {
		check_training(tied, SPEC_GELU_TANH, SPEC_DECAY_ALL);
		check_training(tied, SPEC_GELU_EXACT, SPEC_DECAY_MATRICES);
		check_training(tied, SPEC_GELU_TANH, SPEC_DECAY_MATRICES);
		check_training(tied, SPEC_GELU_EXACT, SPEC_DECAY_ALL);
	}
}

#ifdef K_DOUBLE
static double loss_alone(struct fixture *f)
{
	int64_t R = f->config.micro_batch * f->config.seq_len;
	struct model_pass pass = make_pass(f);
	double sum = 0;

	model_forward(&f->model, &pass, NULL);
	model_loss(&f->model, f->losses, f->targets, 0, NULL);
	for (int64_t i = 0; i < R; i++)
		sum += f->losses[i];
	return sum / (double)R;
}

/* With dropout: the masks of backward are those of forward, in every place. */
static void gradients_match_differences_with_dropout(void **state)
{
	const double h = 1e-5;
	struct fixture f;
	double plain, dropped;

	setup(&f, true, SPEC_GELU_TANH, SPEC_DECAY_ALL);
	take_batch(&f, 0);
	plain = loss_alone(&f);
	f.config.model.dropout = 0.3;
	dropped = loss_alone(&f);
	assert_true(fabs(plain - dropped) > 1e-3);
	assert_true(run_batch(&f, NULL) == dropped);
	for (int64_t i = 0; i < f.arena.n_entries; i++) {
		const struct arena_entry *e = &f.arena.entries[i];

		for (int64_t j = 0; j < 3; j++) {
			k_real *p = &f.params[e->first + (j * 29) % (e->rows * e->cols)], was = *p;
			double up, down;

			*p = was + h;
			up = loss_alone(&f);
			*p = was - h;
			down = loss_alone(&f);
			*p = was;
			check_close(arena_tensor_name(e->tensor), f.grads[p - f.params],
				(up - down) / (2 * h), 1e-8);
		}
	}
	teardown(&f);
}
#endif

/* ---- the hooks ---- */

enum { CALLS_MAX = 16 };

struct watch {
	struct fixture *f;
	k_real *copies[CALLS_MAX];
	int64_t complete[CALLS_MAX], n_done;
	int64_t needed_below; /* parameters [needed_below, end) were asked for so far */
	int64_t n_need;
	k_real *last;                   /* [last_first, end) */
	int64_t last_first, last_after; /* n_done then */
};

static void on_need(void *arg, int64_t first, int64_t n)
{
	struct watch *w = arg;

	/* the parts join without a gap, from the end of the arena to its start */
	assert_int_equal(first + n, w->needed_below);
	w->needed_below = first;
	w->n_need++;
}

static void on_done(void *arg, int64_t complete, struct k_stream *on)
{
	struct watch *w = arg;
	size_t bytes = (size_t)complete * sizeof(k_real);

	assert_true(w->n_done < CALLS_MAX);
	w->copies[w->n_done] = malloc(bytes);
	assert_non_null(w->copies[w->n_done]);
	memcpy(w->copies[w->n_done], w->f->grads, bytes);
	w->complete[w->n_done++] = complete;
}

static void on_last(void *arg, int64_t first, struct k_stream *on)
{
	struct watch *w = arg;
	size_t bytes = (size_t)(w->f->arena.param_elems - first) * sizeof(k_real);

	assert_null(w->last);
	w->last = malloc(bytes);
	assert_non_null(w->last);
	memcpy(w->last, (const k_real *)w->f->grads + first, bytes);
	w->last_first = first;
	w->last_after = w->n_done;
}

/* What backward calls final does not change any more, and forward asks for every parameter once. */
static void hooks_tell_the_truth(void **state)
{
	for (int tied = 0; tied < 2; tied++) {
		struct fixture f;
		struct watch w = {.f = &f};
		struct model_hooks hooks = {
			.arg = &w, .need = on_need, .done = on_done, .last = on_last};

		setup(&f, tied, SPEC_GELU_TANH, SPEC_DECAY_ALL);
		w.needed_below = f.arena.param_elems;
		take_batch(&f, 0);
		run_batch(&f, &hooks);
		assert_int_equal(w.needed_below, 0);
		assert_int_equal(w.n_need, f.config.model.n_layer + 2);
		assert_int_equal(w.n_done, f.config.model.n_layer + 2);
		assert_int_equal(w.complete[w.n_done - 1], f.arena.param_elems);
		for (int64_t i = 0; i < w.n_done; i++) {
			assert_memory_equal(
				w.copies[i], f.grads, (size_t)w.complete[i] * sizeof(k_real));
			free(w.copies[i]);
		}
		assert_int_equal(w.last_after, w.n_done - 1);
		assert_int_equal(w.last_first, w.complete[w.n_done - 2]);
		assert_memory_equal(w.last, f.grads + w.last_first,
			(size_t)(f.arena.param_elems - w.last_first) * sizeof(k_real));
		free(w.last);
		teardown(&f);
	}
}

/* ---- initial values ---- */

static void init_is_gpt2s(void **state)
{
	struct fixture f;
	const struct arena_entry *e;
	k_real *before;
	size_t bytes;

	setup(&f, true, SPEC_GELU_TANH, SPEC_DECAY_ALL);
	bytes = (size_t)f.plan.arena_elems * sizeof(k_real);
	optimizer_reset(&f.optimizer, &f.arena, &f.config.model, 7);
	before = malloc(bytes);
	assert_non_null(before);
	memcpy(before, f.params, bytes);
	e = arena_find(&f.arena, ARENA_LN2_W, 1);
	assert_true(f.params[e->first] == 1);
	e = arena_find(&f.arena, ARENA_FC_B, 0);
	assert_true(f.params[e->first] == 0);
	e = arena_find(&f.arena, ARENA_WTE, 0);
	assert_true(f.params[e->first] != 0);
	assert_true(f.params[e->first + f.config.model.vocab_size * e->cols] == 0);

	memset(f.params, 0x55, bytes);
	memset(f.buffers.m, 0x55, bytes);
	optimizer_reset(&f.optimizer, &f.arena, &f.config.model, 7);
	assert_memory_equal(before, f.params, bytes);
	assert_true(f.buffers.m[0] == 0 && f.buffers.m[f.plan.arena_elems - 1] == 0);
	optimizer_reset(&f.optimizer, &f.arena, &f.config.model, 8);
	assert_memory_not_equal(before, f.params, bytes);
	free(before);
	teardown(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gradients_match_torch),
		cmocka_unit_test(first_pass_takes_no_account_of_what_was),
		cmocka_unit_test(five_steps_match_torch),
#ifdef K_DOUBLE
		cmocka_unit_test(gradients_match_differences_with_dropout),
#endif
		cmocka_unit_test(hooks_tell_the_truth),
		cmocka_unit_test(init_is_gpt2s),
	};
	const char *path = getenv("GOLDEN");
	int rc;

	if (!path || golden_read(&golden, path)) {
		fprintf(stderr, "GOLDEN: %s: no golden file\n", path ? path : "not set");
		return 1;
	}
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	golden_free(&golden);
	return rc;
}
