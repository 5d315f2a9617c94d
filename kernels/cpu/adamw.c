#include <math.h>

#include "kernels/cpu/stream.h"
#include "kernels/cpu/vec.h"

/* A chunk is so many owned elements, counted across all ranges. */
enum { CHUNK_ELEMS = 1 << 15 };

struct adamw {
	const struct vec *vec;
	struct k_adamw a;
	const struct k_step_state *state;
	struct vec_adamw_args scalars;
	int64_t owned;
};

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/*
 * Elements [first, end) of the arena; first is element compact of m and v. Splits them where weight
 * decay begins and ends.
 */
static void update(const struct adamw *w, int64_t first, int64_t end, int64_t compact)
{
	const struct k_adamw *a = &w->a;
	int64_t d = 0;

	while (first < end) {
		struct vec_adamw_args scalars = w->scalars;
		int64_t to = end, n;
		k_real *master, *params = (k_real *)a->params + first;

		while (d < a->n_decayed && a->decayed[d].first + a->decayed[d].n <= first)
			d++;
		if (d == a->n_decayed || a->decayed[d].first > first) {
			scalars.weight_decay = 0;
			if (d < a->n_decayed)
				to = least(end, a->decayed[d].first);
		} else {
			to = least(end, a->decayed[d].first + a->decayed[d].n);
		}
		n = to - first;
		master = a->master + (a->master_compact ? compact : first);
		w->vec->adamw(master, params == master ? NULL : params, a->m + compact,
			a->v + compact, (const k_real *)a->grads + first, n, &scalars);
		first += n;
		compact += n;
	}
}

static void update_chunk(void *arg, int64_t chunk, void *scratch)
{
	const struct adamw *w = arg;
	int64_t first = chunk * CHUNK_ELEMS, end = least(first + CHUNK_ELEMS, w->owned), before = 0;

	for (int64_t i = 0; i < w->a.n_ranges && before < end; i++) {
		const struct k_range *range = &w->a.ranges[i];
		int64_t to = least(end - before, range->n);

		if (before + range->n > first) {
			int64_t from = first > before ? first - before : 0;

			update(w, range->first + from, range->first + to, before + from);
		}
		before += range->n;
	}
}

static int run(struct k_stream *s, const void *args)
{
	struct adamw w = *(const struct adamw *)args;
	const struct k_step_state *state = w.state;

	if (state->skip)
		return 0;
	for (int64_t i = 0; i < w.a.n_ranges; i++)
		w.owned += w.a.ranges[i].n;
	w.scalars = (struct vec_adamw_args){
		.grad_mul = (k_real)state->grad_mul,
		.beta1 = (k_real)w.a.beta1,
		.beta2 = (k_real)w.a.beta2,
		.lr = (k_real)state->lr,
		.eps = (k_real)w.a.eps,
		.weight_decay = (k_real)w.a.weight_decay,
		.correct1 = (k_real)(1 / (1 - pow(w.a.beta1, (double)state->t))),
		.correct2 = (k_real)(1 / (1 - pow(w.a.beta2, (double)state->t))),
	};
	pool_run(s->pool, (w.owned + CHUNK_ELEMS - 1) / CHUNK_ELEMS, update_chunk, &w);
	return 0;
}

void k_adamw_step(struct k_stream *s, const struct k_adamw *args, const struct k_step_state *state)
{
	struct adamw w = {.vec = s->ctx->vec, .a = *args, .state = state};

	stream_submit(s, "k_adamw_step", run, &w, sizeof w);
}
