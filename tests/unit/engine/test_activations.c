/* Where activations lie, and what each activation_checkpointing takes, by sums of its own. */
#include "engine/train/activations.h"
#include "tests/unit/test.h"

enum { SPANS_MAX = 400 };

static const struct {
	struct spec_model model;
	int64_t B, T, elem_bytes;
} shapes[] = {
	{{.n_layer = 1, .n_head = 1, .n_embd = 8, .vocab_size = 5}, 1, 1, 4},
	{{.n_layer = 2, .n_head = 2, .n_embd = 16, .vocab_size = 61}, 3, 7, 4},
	{{.n_layer = 5, .n_head = 3, .n_embd = 33, .vocab_size = 257}, 2, 19, 2},
	{{.n_layer = 12, .n_head = 12, .n_embd = 768, .vocab_size = 50257}, 2, 512, 2},
	{{.n_layer = 12, .n_head = 12, .n_embd = 768, .vocab_size = 50257}, 64, 1024, 2},
	{{.n_layer = 48, .n_head = 25, .n_embd = 1600, .vocab_size = 50257}, 4, 1024, 4},
};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static struct activations_shape make_shape(size_t i, enum spec_recompute recompute)
{
	return (struct activations_shape){.model = &shapes[i].model,
		.recompute = recompute,
		.B = shapes[i].B,
		.T = shapes[i].T,
		.elem_bytes = shapes[i].elem_bytes,
		.real_bytes = 4};
}

static int64_t up(int64_t bytes)
{
	return (bytes + 255) / 256 * 256;
}

/* As DESIGN and the spec's manual say it: per block, and once. */
static int64_t expected_bytes(const struct activations_shape *s)
{
	const struct spec_model *m = s->model;
	int64_t rows = s->B * s->T, narrow = up(rows * m->n_embd * s->elem_bytes);
	int64_t wide = up(rows * 4 * m->n_embd * s->elem_bytes);
	int64_t stat = up(rows * s->real_bytes);
	/* q|k|v, attention, the residual after it, what GELU reads; statistics, log-sum-exp */
	int64_t kept = up(rows * 3 * m->n_embd * s->elem_bytes) + 2 * narrow + wide + 4 * stat +
		up(rows * m->n_head * s->real_bytes);
	int64_t vocab = (m->vocab_size + 127) / 128 * 128;
	/* final residual, the norm, three gradients of a residual's size and a wide one */
	int64_t once = 5 * narrow + 2 * stat + wide + up(rows * vocab * s->elem_bytes);

	switch (s->recompute) {
	case SPEC_RECOMPUTE_NONE:
		return m->n_layer * (narrow + kept + 2 * narrow + wide) + once;
	case SPEC_RECOMPUTE_SELECTIVE:
		return m->n_layer * (narrow + kept) + wide + once;
	default:
		return m->n_layer * narrow + kept + wide + once;
	}
}

static void bytes_are_the_formulas(void **state)
{
	for (size_t i = 0; i < SHAPES; i++)
		for (int r = 0; r <= SPEC_RECOMPUTE_FULL; r++) {
			struct activations_shape s = make_shape(i, (enum spec_recompute)r);
			struct activations_shape other = make_shape(i, SPEC_RECOMPUTE_NONE);

			assert_int_equal(activations_bytes(&s), expected_bytes(&s));
			assert_int_equal(
				activations_bytes_with(&other, s.recompute), expected_bytes(&s));
		}
}

static void each_setting_takes_less(void **state)
{
	for (size_t i = 0; i < SHAPES; i++) {
		struct activations_shape s = make_shape(i, SPEC_RECOMPUTE_NONE);
		int64_t none = activations_bytes(&s);
		int64_t selective = activations_bytes_with(&s, SPEC_RECOMPUTE_SELECTIVE);
		int64_t full = activations_bytes_with(&s, SPEC_RECOMPUTE_FULL);

		assert_true(selective < none);
		if (s.model->n_layer > 1)
			assert_true(full < selective);
		else
			assert_int_equal(full, selective);
	}
}

/* GPT-2 124M in bf16 at B 64, T 1024: the figures of the manual. */
static void the_figures_of_gpt2(void **state)
{
	struct activations_shape s = make_shape(4, SPEC_RECOMPUTE_NONE);
	int64_t logits = activations_logits_bytes(&s);

	assert_true(logits == INT64_C(6593445888));
	assert_true(activations_bytes(&s) - logits == INT64_C(20284178432));
	s.recompute = SPEC_RECOMPUTE_SELECTIVE;
	assert_true(activations_bytes(&s) - logits == INT64_C(13439074304));
	s.recompute = SPEC_RECOMPUTE_FULL;
	assert_true(activations_bytes(&s) - logits == INT64_C(3427270656));
}

/* ---- no two things that are wanted at a time lie in one place ---- */

struct spans {
	int n;
	struct {
		int64_t from, to;
	} span[SPANS_MAX];
};

static void add_span(struct spans *all, int64_t from, int64_t bytes)
{
	assert_true(all->n < SPANS_MAX);
	assert_int_equal(from % 256, 0);
	all->span[all->n].from = from;
	all->span[all->n++].to = from + bytes;
}

/* Those of all blocks, or of one that all use. */
static void add_tensor(
	struct spans *all, const struct activations_tensor *t, int64_t bytes, int64_t layers)
{
	for (int64_t i = 0; i < (t->stride ? layers : 1); i++)
		add_span(all, t->first + i * t->stride, bytes);
}

static void find_spans(
	struct spans *all, const struct activations *a, const struct activations_shape *s)
{
	int64_t rows = s->B * s->T, n = s->model->n_layer, stat = rows * s->real_bytes;
	int64_t narrow = rows * s->model->n_embd * s->elem_bytes;

	add_tensor(all, &a->residual, narrow, n);
	add_tensor(all, &a->ln1_mean, stat, n);
	add_tensor(all, &a->ln1_rstd, stat, n);
	add_tensor(all, &a->qkv, 3 * narrow, n);
	add_tensor(all, &a->attention, narrow, n);
	add_tensor(all, &a->lse, stat * s->model->n_head, n);
	add_tensor(all, &a->residual_mid, narrow, n);
	add_tensor(all, &a->ln2_mean, stat, n);
	add_tensor(all, &a->ln2_rstd, stat, n);
	add_tensor(all, &a->fc_pre, 4 * narrow, n);
	add_tensor(all, &a->fc, 4 * narrow, n);
	if (s->recompute == SPEC_RECOMPUTE_NONE) {
		add_tensor(all, &a->ln1, narrow, n);
		add_tensor(all, &a->ln2, narrow, n);
	}
	add_span(all, a->lnf, narrow);
	add_span(all, a->residual_final, narrow);
	add_span(all, a->lnf_mean, stat);
	add_span(all, a->lnf_rstd, stat);
	add_span(all, a->logits, activations_logits_bytes(s));
	add_span(all, a->branch, narrow);
	add_span(all, a->d_residual, narrow);
	add_span(all, a->d_narrow, narrow);
	add_span(all, a->d_wide, 4 * narrow);
}

static void nothing_lies_on_another(void **state)
{
	static struct spans all;

	for (size_t i = 0; i < SHAPES - 1; i++)
		for (int r = 0; r <= SPEC_RECOMPUTE_FULL; r++) {
			struct activations_shape s = make_shape(i, (enum spec_recompute)r);
			struct activations a;

			activations_place(&a, &s);
			all.n = 0;
			find_spans(&all, &a, &s);
			for (int j = 0; j < all.n; j++) {
				assert_true(all.span[j].to <= a.total_bytes);
				for (int k = 0; k < j; k++)
					assert_true(all.span[j].from >= all.span[k].to ||
						all.span[k].from >= all.span[j].to);
			}
		}
}

/* Gradients of blocks lie where the logits were, apart from each other, where there is room. */
static void gradients_are_apart(void **state)
{
	static const bool expected[SHAPES] = {false, false, false, true, true, true};

	for (size_t i = 0; i < SHAPES; i++) {
		struct activations_shape s = make_shape(i, SPEC_RECOMPUTE_NONE);
		int64_t rows = s.B * s.T, narrow = rows * s.model->n_embd * s.elem_bytes;
		int64_t end;
		struct spans all = {0};
		struct activations a;

		activations_place(&a, &s);
		end = a.logits + activations_logits_bytes(&s);
		assert_int_equal(a.apart, expected[i]);
		for (int j = 0; j < 2; j++) {
			const struct activations_gradients *g = &a.gradients[j];

			add_span(&all, g->wide, 4 * narrow);
			add_span(&all, g->residual_mid, narrow);
			add_span(&all, g->qkv, 3 * narrow);
			add_span(&all, g->residual, narrow);
			if (a.apart)
				continue;
			assert_true(g->wide == a.d_wide && g->qkv == a.d_wide);
			assert_true(g->residual == a.d_residual);
			assert_true(g->residual_mid == a.d_residual);
		}
		add_span(&all, a.token_order, rows * 8);
		for (int j = 0; a.apart && j < all.n; j++) {
			assert_true(all.span[j].from >= a.logits && all.span[j].to <= end);
			for (int k = 0; k < j; k++)
				assert_true(all.span[j].from >= all.span[k].to ||
					all.span[k].from >= all.span[j].to);
		}
	}
}

TEST_MAIN(cmocka_unit_test(bytes_are_the_formulas), cmocka_unit_test(each_setting_takes_less),
	cmocka_unit_test(the_figures_of_gpt2), cmocka_unit_test(nothing_lies_on_another),
	cmocka_unit_test(gradients_are_apart))
