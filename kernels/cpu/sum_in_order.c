#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/stream.h"
#include "kernels/cpu/vec.h"

/* PIECE elements stay in the first-level cache while all sources are added. */
enum { CHUNK_ELEMS = 1 << 16, PIECE = 1 << 11 };

struct sum {
	const struct vec *vec;
	k_real *dst;
	int64_t n;
	int count;
	const k_real *srcs[];
};

static void sum_chunk(void *arg, int64_t chunk, void *scratch)
{
	const struct sum *a = arg;
	int64_t first = chunk * CHUNK_ELEMS;
	int64_t end = a->n - first < CHUNK_ELEMS ? a->n : first + CHUNK_ELEMS;
	k_real total[PIECE];

	for (int64_t i = first; i < end; i += PIECE) {
		int64_t n = end - i < PIECE ? end - i : PIECE;
		const k_real *so_far = a->srcs[0] + i;

		/* dst may be any of the sources: write it last */
		for (int k = 1; k + 1 < a->count; k++) {
			a->vec->add(total, so_far, a->srcs[k] + i, n);
			so_far = total;
		}
		if (a->count > 1)
			a->vec->add(a->dst + i, so_far, a->srcs[a->count - 1] + i, n);
		else if (a->dst != a->srcs[0])
			memcpy(a->dst + i, so_far, (size_t)n * sizeof *so_far);
	}
}

static int run(struct k_stream *s, const void *args)
{
	const struct sum *a = args;

	pool_run(s->pool, (a->n + CHUNK_ELEMS - 1) / CHUNK_ELEMS, sum_chunk, (void *)(uintptr_t)a);
	return 0;
}

void k_sum_in_order(struct k_stream *s, void *dst, const void *const *srcs, int count, int64_t n)
{
	size_t bytes = sizeof(struct sum) + (size_t)count * sizeof *srcs;
	struct sum *a = malloc(bytes);

	if (!a) {
		context_fail(s->ctx, "k_sum_in_order: no memory for %d pointers", count);
		return;
	}
	*a = (struct sum){s->ctx->vec, dst, n, count};
	memcpy(a->srcs, srcs, (size_t)count * sizeof *srcs);
	stream_submit(s, "k_sum_in_order", run, a, bytes);
	free(a);
}
