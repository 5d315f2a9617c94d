#include "engine/train/activations.h"

#include "engine/train/arena.h"

enum { ALIGN_BYTES = 256 };

static int64_t aligned(int64_t bytes)
{
	return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

static int64_t once(int64_t *at, int64_t bytes)
{
	int64_t here = *at;

	*at += aligned(bytes);
	return here;
}

/* Room for one block, or for each of this many. */
static struct activations_tensor blocks(int64_t *at, int64_t bytes, int64_t n)
{
	struct activations_tensor t = {.first = *at, .stride = n > 1 ? aligned(bytes) : 0};

	*at += n * aligned(bytes);
	return t;
}

static struct activations_tensor everywhere(int64_t first)
{
	return (struct activations_tensor){.first = first};
}

/* One buffer for all norms: forward and backward finish with each before the next. */
static void place_norms(struct activations *a, int64_t *at, int64_t bytes, int64_t kept)
{
	if (kept > 0) {
		a->ln1 = blocks(at, bytes, kept);
		a->ln2 = blocks(at, bytes, kept);
	}
	a->lnf = once(at, bytes);
	if (kept == 0)
		a->ln1 = a->ln2 = everywhere(a->lnf);
}

static struct activations_gradients place_gradients(int64_t *at, int64_t narrow)
{
	struct activations_gradients g = {.wide = once(at, 4 * narrow)};

	g.residual_mid = once(at, narrow);
	g.qkv = once(at, 3 * narrow);
	g.residual = once(at, narrow);
	return g;
}

static void place_all_gradients(struct activations *a, int64_t rows, int64_t narrow, int64_t logits)
{
	int64_t at = a->logits;

	for (int i = 0; i < 2; i++)
		a->gradients[i] = place_gradients(&at, narrow);
	a->token_order = once(&at, 2 * rows * (int64_t)sizeof(int32_t));
	a->apart = at <= a->logits + logits;
	for (int i = 0; i < 2 && !a->apart; i++)
		a->gradients[i] = (struct activations_gradients){
			a->d_wide, a->d_residual, a->d_wide, a->d_residual};
}

void activations_place(struct activations *a, const struct activations_shape *shape)
{
	const struct spec_model *m = shape->model;
	int64_t R = shape->B * shape->T, C = m->n_embd, at = 0;
	int64_t narrow = R * C * shape->elem_bytes, stat = R * shape->real_bytes;
	int64_t kept = shape->recompute == SPEC_RECOMPUTE_FULL ? 1 : m->n_layer;
	bool all = shape->recompute == SPEC_RECOMPUTE_NONE;

	a->residual = blocks(&at, narrow, m->n_layer);
	a->ln1_mean = blocks(&at, stat, kept);
	a->ln1_rstd = blocks(&at, stat, kept);
	a->qkv = blocks(&at, 3 * narrow, kept);
	a->attention = blocks(&at, narrow, kept);
	a->lse = blocks(&at, stat * m->n_head, kept);
	a->residual_mid = blocks(&at, narrow, kept);
	a->ln2_mean = blocks(&at, stat, kept);
	a->ln2_rstd = blocks(&at, stat, kept);
	a->fc_pre = blocks(&at, 4 * narrow, kept);
	a->fc = blocks(&at, 4 * narrow, all ? kept : 1);
	place_norms(a, &at, narrow, all ? kept : 0);

	a->residual_final = once(&at, narrow);
	a->lnf_mean = once(&at, stat);
	a->lnf_rstd = once(&at, stat);
	a->logits = once(&at, activations_logits_bytes(shape));
	a->branch = once(&at, narrow);
	a->d_residual = once(&at, narrow);
	a->d_narrow = once(&at, narrow);
	a->d_wide = once(&at, 4 * narrow);
	place_all_gradients(a, R, narrow, activations_logits_bytes(shape));
	a->total_bytes = at;
}

int64_t activations_bytes(const struct activations_shape *shape)
{
	struct activations a;

	activations_place(&a, shape);
	return a.total_bytes;
}

int64_t activations_bytes_with(const struct activations_shape *shape, enum spec_recompute recompute)
{
	struct activations_shape other = *shape;

	other.recompute = recompute;
	return activations_bytes(&other);
}

int64_t activations_logits_bytes(const struct activations_shape *shape)
{
	return shape->B * shape->T * arena_vocab_padded(shape->model->vocab_size) *
		shape->elem_bytes;
}
