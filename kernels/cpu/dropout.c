#include "kernels/cpu/dropout.h"

#include <string.h>

#include "kernels/cpu/stream.h"

enum { PIECE = 1024, CHUNK_ELEMS = 16 * PIECE };

struct k_dropout dropout_copy(const struct k_dropout *drop)
{
	return drop ? *drop : (struct k_dropout){0};
}

void dropout_resolve(struct k_dropout *drop)
{
	if (drop->offset_from)
		drop->offset += *drop->offset_from;
	drop->offset_from = NULL;
}

void dropout_mask(
	const struct vec *vec, k_real *mask, int64_t n, const struct k_dropout *drop, int64_t first)
{
	struct vec_key key = {drop->seed, drop->offset};

	vec->dropout_mask(mask, n, key, first, drop->p);
}

void dropout_apply(const struct vec *vec, k_real *out, const k_real *in, int64_t n,
	const struct k_dropout *drop, int64_t first)
{
	k_real mask[PIECE];

	if (drop->p == 0) {
		if (out != in)
			memcpy(out, in, (size_t)n * sizeof *out);
		return;
	}
	for (int64_t i = 0; i < n; i += PIECE) {
		int64_t m = n - i < PIECE ? n - i : PIECE;

		dropout_mask(vec, mask, m, drop, first + i);
		vec->mul(out + i, in + i, mask, m);
	}
}

struct backward {
	const struct vec *vec;
	k_real *dinp;
	const k_real *dout;
	int64_t n;
	struct k_dropout drop;
};

static void backward_chunk(void *arg, int64_t chunk, void *scratch)
{
	const struct backward *a = arg;
	int64_t first = chunk * CHUNK_ELEMS;
	int64_t n = a->n - first < CHUNK_ELEMS ? a->n - first : CHUNK_ELEMS;

	dropout_apply(a->vec, a->dinp + first, a->dout + first, n, &a->drop, first);
}

static int run_backward(struct k_stream *s, const void *args)
{
	struct backward a = *(const struct backward *)args;

	dropout_resolve(&a.drop);
	if (a.drop.p != 0 || a.dinp != a.dout)
		pool_run(s->pool, (a.n + CHUNK_ELEMS - 1) / CHUNK_ELEMS, backward_chunk, &a);
	return 0;
}

void k_dropout_backward(
	struct k_stream *s, void *dinp, const void *dout, int64_t n, const struct k_dropout *drop)
{
	struct backward a = {s->ctx->vec, dinp, dout, n, dropout_copy(drop)};

	stream_submit(s, "k_dropout_backward", run_backward, &a, sizeof a);
}
