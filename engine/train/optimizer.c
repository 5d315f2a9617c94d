#include "engine/train/optimizer.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum { ALIGN_BYTES = 256 };
/* Random streams reserved for each layer: each tensor has its own (enum arena_tensor). */
enum { STREAMS_PER_LAYER = 64 };
static_assert((int)ARENA_HEAD < (int)STREAMS_PER_LAYER, "no two tensors draw from one stream");

static const double INIT_STD = 0.02;

static int64_t aligned(int64_t bytes)
{
	return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

int64_t optimizer_small_bytes(const struct arena *arena, const struct plan *plan, int64_t stage)
{
	int64_t range = (int64_t)sizeof(struct k_range);

	return aligned((int64_t)sizeof(struct k_step_state)) +
		aligned((int64_t)sizeof(struct k_exact_sum)) +
		aligned(zero_owned_ranges(plan, stage) * range) +
		aligned((arena->n_entries + 1) * range);
}

static bool is_matrix(enum arena_tensor tensor)
{
	switch (tensor) {
	case ARENA_QKV_W:
	case ARENA_PROJ_W:
	case ARENA_FC_W:
	case ARENA_FCPROJ_W:
	case ARENA_WPE:
	case ARENA_WTE:
	case ARENA_HEAD:
		return true;
	default:
		return false;
	}
}

static bool is_norm_weight(enum arena_tensor tensor)
{
	return tensor == ARENA_LN1_W || tensor == ARENA_LN2_W || tensor == ARENA_LNF_W;
}

static int64_t owned_ranges(const struct plan *plan, int64_t stage, int rank, struct k_range *out)
{
	int64_t n = zero_owned_ranges(plan, stage);

	for (int64_t i = 0; i < n; i++)
		out[i] = zero_owned_range(plan, stage, rank, i);
	return n;
}

static int64_t decayed_ranges(const struct arena *arena, const struct plan *plan,
	enum spec_decay rule, struct k_range *out)
{
	int64_t n = 0;

	if (rule == SPEC_DECAY_ALL) {
		out[0] = (struct k_range){.first = 0, .n = plan->arena_elems};
		return 1;
	}
	for (int64_t i = 0; i < arena->n_entries; i++) {
		const struct arena_entry *e = &arena->entries[i];

		if (is_matrix(e->tensor))
			out[n++] = (struct k_range){.first = e->first, .n = e->rows * e->cols};
	}
	return n;
}

int optimizer_init(struct optimizer *o, const struct optimizer_options *options,
	const struct optimizer_buffers *buffers)
{
	const struct spec_config *c = options->config;
	int64_t max =
		zero_owned_ranges(options->plan, c->zero_stage) + options->arena->n_entries + 1;
	struct k_range *ranges = malloc((size_t)max * sizeof(*ranges)), *decayed;
	char *small = buffers->small;
	int rc;

	if (!ranges)
		return -ENOMEM;
	*o = (struct optimizer){
		.ctx = options->ctx,
		.stream = options->stream,
		.plan = options->plan,
		.stage = c->zero_stage,
		.rank = options->rank,
		.summed = -1,
		.owned_elems = zero_owned_elems(options->plan, c->zero_stage, options->rank),
		.scratch = buffers->scratch,
		.scratch_elems = buffers->scratch_elems,
	};
	o->adamw = (struct k_adamw){
		.beta1 = c->beta1,
		.beta2 = c->beta2,
		.eps = c->eps,
		.weight_decay = c->weight_decay,
		.master = buffers->master,
		.master_compact = (void *)buffers->master != buffers->params,
		.params = buffers->params,
		.grads = buffers->grads,
		.m = buffers->m,
		.v = buffers->v,
	};
	o->adamw.n_ranges = owned_ranges(o->plan, o->stage, o->rank, ranges);
	decayed = ranges + o->adamw.n_ranges;
	o->adamw.n_decayed = decayed_ranges(options->arena, o->plan, c->decay, decayed);

	o->state = (struct k_step_state *)(void *)small;
	small += aligned((int64_t)sizeof(struct k_step_state));
	o->sum = (struct k_exact_sum *)(void *)small;
	small += aligned((int64_t)sizeof(struct k_exact_sum));
	o->adamw.ranges = (const struct k_range *)(void *)small;
	k_copy_in(o->stream, small, ranges, (size_t)o->adamw.n_ranges * sizeof(*ranges));
	small += aligned(o->adamw.n_ranges * (int64_t)sizeof(*ranges));
	o->adamw.decayed = (const struct k_range *)(void *)small;
	k_copy_in(o->stream, small, decayed, (size_t)o->adamw.n_decayed * sizeof(*decayed));
	/* the host copy is freed, but not while it may still be read */
	rc = k_stream_sync(o->stream, K_WAIT_NS);
	if (rc != -ETIMEDOUT)
		free(ranges);
	return rc;
}

/* Values of a tensor, and how many of its elements are not zero: none, or those from its start. */
struct initial {
	const struct arena_entry *entry;
	int64_t elems;
	double std; /* 0: all are 1 */
	uint64_t seed;
	uint32_t stream;
};

static struct initial initial_values(
	const struct arena_entry *e, const struct spec_model *model, uint64_t seed)
{
	bool vocabulary = e->tensor == ARENA_WTE || e->tensor == ARENA_HEAD;
	struct initial i = {
		.entry = e,
		.seed = seed,
		.stream = (uint32_t)(e->layer * STREAMS_PER_LAYER + (int64_t)e->tensor),
	};

	if (is_norm_weight(e->tensor)) {
		i.elems = e->rows * e->cols;
	} else if (is_matrix(e->tensor)) {
		i.elems = (vocabulary ? model->vocab_size : e->rows) * e->cols;
		i.std = INIT_STD;
		if (e->tensor == ARENA_PROJ_W || e->tensor == ARENA_FCPROJ_W)
			i.std /= sqrt(2 * (double)model->n_layer);
	}
	return i;
}

static void draw(
	struct optimizer *o, const struct initial *i, k_real *out, int64_t first, int64_t n)
{
	if (i->std > 0)
		k_init_normal(o->stream, out, n, i->seed, i->stream, first, 0, i->std);
	else
		k_fill(o->stream, out, n, 1);
}

/* The arena of the compute type, through fp32. */
static void init_params(struct optimizer *o, const struct initial *i)
{
	char *params = (char *)o->adamw.params + (size_t)i->entry->first * k_elem_bytes(o->ctx);

	for (int64_t first = 0; first < i->elems; first += o->scratch_elems) {
		int64_t left = i->elems - first;
		int64_t n = left < o->scratch_elems ? left : o->scratch_elems;

		draw(o, i, o->scratch, first, n);
		k_cast(o->stream, params + (size_t)first * k_elem_bytes(o->ctx), o->scratch, n);
	}
}

/* The owned part of a tensor, drawn again into the compact master. */
static void init_master(struct optimizer *o, const struct initial *i)
{
	int64_t begin = i->entry->first, end = begin + i->elems, compact = 0;

	for (int64_t j = 0; j < o->adamw.n_ranges; j++) {
		struct k_range r = zero_owned_range(o->plan, o->stage, o->rank, j);
		int64_t from = r.first > begin ? r.first : begin;
		int64_t to = r.first + r.n < end ? r.first + r.n : end;

		if (from < to)
			draw(o, i, o->adamw.master + compact + from - r.first, from - begin,
				to - from);
		compact += r.n;
	}
}

void optimizer_reset(struct optimizer *o, const struct arena *arena, const struct spec_model *model,
	uint64_t seed)
{
	struct k_adamw *a = &o->adamw;
	size_t owned_bytes = (size_t)o->owned_elems * sizeof(k_real);

	k_zero(o->stream, a->params, (size_t)o->plan->arena_elems * k_elem_bytes(o->ctx));
	if (a->master_compact)
		k_zero(o->stream, a->master, owned_bytes);
	for (int64_t j = 0; j < arena->n_entries; j++) {
		struct initial i = initial_values(&arena->entries[j], model, seed);

		if (i.elems == 0)
			continue;
		if (!a->master_compact) {
			draw(o, &i, a->master + i.entry->first, 0, i.elems);
		} else {
			init_params(o, &i);
			init_master(o, &i);
		}
	}
	k_zero(o->stream, a->m, owned_bytes);
	k_zero(o->stream, a->v, owned_bytes);
}

/* Copies the owned part of [first, first + n) to the compact master, from scratch. */
static void put_master(struct optimizer *o, int64_t first, int64_t n)
{
	int64_t compact = 0;

	for (int64_t j = 0; j < o->adamw.n_ranges; j++) {
		struct k_range r = zero_owned_range(o->plan, o->stage, o->rank, j);
		int64_t from = r.first > first ? r.first : first;
		int64_t to = r.first + r.n < first + n ? r.first + r.n : first + n;

		if (from < to)
			k_copy(o->stream, o->adamw.master + compact + from - r.first,
				o->scratch + from - first, (size_t)(to - from) * sizeof(k_real));
		compact += r.n;
	}
}

int optimizer_put(struct optimizer *o, int64_t first, const k_real *values, int64_t n)
{
	struct k_adamw *a = &o->adamw;
	int64_t piece;

	if (!a->master_compact)
		k_copy_in(o->stream, a->master + first, values, (size_t)n * sizeof(k_real));
	for (int64_t done = 0; a->master_compact && done < n; done += piece) {
		const int64_t at = first + done;

		piece = n - done < o->scratch_elems ? n - done : o->scratch_elems;
		k_copy_in(o->stream, o->scratch, values + done, (size_t)piece * sizeof(k_real));
		k_cast(o->stream, (char *)a->params + (size_t)at * k_elem_bytes(o->ctx), o->scratch,
			piece);
		put_master(o, at, piece);
	}
	return k_stream_sync(o->stream, K_WAIT_NS);
}

static void sum_squares(struct optimizer *o, struct k_stream *s, int64_t first, int64_t n)
{
	const char *grads = o->adamw.grads;

	k_sum_squares(s, o->sum, grads + (size_t)first * k_elem_bytes(o->ctx), n);
}

static void on_done(void *arg, int64_t complete, struct k_stream *on)
{
	struct optimizer *o = arg;
	int64_t end = complete / K_SUM_BLOCK_ELEMS * K_SUM_BLOCK_ELEMS;

	if (end > o->summed_from)
		end = o->summed_from;
	sum_squares(o, on, o->summed, end - o->summed);
	o->summed = end;
}

static void on_last(void *arg, int64_t first, struct k_stream *on)
{
	struct optimizer *o = arg;
	int64_t from = (first + K_SUM_BLOCK_ELEMS - 1) / K_SUM_BLOCK_ELEMS * K_SUM_BLOCK_ELEMS;

	sum_squares(o, on, from, o->plan->arena_elems - from);
	o->summed_from = from;
}

struct model_hooks optimizer_backward_hooks(struct optimizer *o)
{
	assert(o->plan->world == 1);
	k_zero(o->stream, o->sum, sizeof(*o->sum));
	o->summed = 0;
	o->summed_from = o->plan->arena_elems;
	return (struct model_hooks){.arg = o, .done = on_done, .last = on_last};
}

static void sum_owned(struct optimizer *o)
{
	if (o->summed < 0) {
		k_zero(o->stream, o->sum, sizeof(*o->sum));
		o->summed_from = o->plan->arena_elems;
	}
	for (int64_t i = 0; i < o->adamw.n_ranges; i++) {
		struct k_range r = zero_owned_range(o->plan, o->stage, o->rank, i);
		int64_t first = r.first > o->summed ? r.first : o->summed, end = r.first + r.n;

		if (end > o->summed_from)
			end = o->summed_from;
		sum_squares(o, o->stream, first, end - first);
	}
	o->summed = -1;
}

void optimizer_try(struct optimizer *o, const struct k_step_state *state)
{
	k_copy_in(o->stream, o->state, state, sizeof(*state));
	sum_owned(o);
	optimizer_update(o);
}

void optimizer_norm(struct optimizer *o, struct zero *zero)
{
	sum_owned(o);
	zero_sum_owned(zero, o->sum->limb, K_EXACT_LIMBS + 1);
}

void optimizer_update(struct optimizer *o)
{
	k_step_prepare(o->stream, o->state, o->sum);
	k_adamw_step(o->stream, &o->adamw, o->state);
}
