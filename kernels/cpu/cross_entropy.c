#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/stream.h"
#include "kernels/cpu/vec.h"

/* PIECE: sums across pieces are in double. */
enum { CHUNK_ROWS = 4, PIECE = 2048 };

struct cross_entropy {
	struct k_context *ctx;
	k_real *losses, *logits;
	const int32_t *targets;
	int64_t R, V, Vp;
	double scale;
	const double *times;
};

/* The row stays in the cache for its passes: maximum, exponentials and their sum, gradient. */
static void do_row(const struct cross_entropy *a, int64_t r)
{
	const struct vec *vec = a->ctx->vec;
	k_real *x = a->logits + r * a->Vp;
	int64_t target = a->targets[r];
	k_real max = vec->max(x, a->V), logit = x[target];
	double sum = 0;

	for (int64_t i = 0; i < a->V; i += PIECE) {
		int64_t n = a->V - i < PIECE ? a->V - i : PIECE;

		sum += (double)(a->scale == 0 ? vec->exp_sum(x + i, n, 1, max)
						: vec->exp(x + i, x + i, n, 1, max));
	}
	a->losses[r] = (k_real)(log(sum) + (double)max - (double)logit);
	if (a->scale == 0)
		return;
	vec->scale(x, a->V, (k_real)(a->scale / sum));
	x[target] -= (k_real)a->scale;
	memset(x + a->V, 0, (size_t)(a->Vp - a->V) * sizeof *x);
}

static void do_chunk(void *arg, int64_t chunk, void *scratch)
{
	const struct cross_entropy *a = arg;
	int64_t first = chunk * CHUNK_ROWS;
	int64_t end = first + CHUNK_ROWS < a->R ? first + CHUNK_ROWS : a->R;

	for (int64_t r = first; r < end; r++)
		do_row(a, r);
}

static int run(struct k_stream *s, const void *args)
{
	struct cross_entropy a = *(const struct cross_entropy *)args;

	for (int64_t r = 0; r < a.R; r++) {
		if (a.targets[r] >= 0 && a.targets[r] < a.V)
			continue;
		context_fail(s->ctx,
			"k_cross_entropy: target %" PRId32 " in row %" PRId64 ", 0..%" PRId64
			" expected",
			a.targets[r], r, a.V - 1);
		return -EINVAL;
	}
	if (a.times)
		a.scale *= *a.times;
	pool_run(s->pool, (a.R + CHUNK_ROWS - 1) / CHUNK_ROWS, do_chunk, &a);
	return 0;
}

void k_cross_entropy(struct k_stream *s, k_real *losses, void *logits, const int32_t *targets,
	int64_t R, int64_t V, int64_t Vp, double scale, const double *times)
{
	struct cross_entropy a = {s->ctx, losses, logits, targets, R, V, Vp, scale, times};

	stream_submit(s, "k_cross_entropy", run, &a, sizeof a);
}
