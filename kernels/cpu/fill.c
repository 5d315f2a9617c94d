#include <string.h>

#include "kernels/cpu/stream.h"

enum { CHUNK_ELEMS = 1 << 16 };

struct fill {
	k_real *out;
	const k_real *in; /* NULL: value */
	int64_t n;
	k_real value;
};

static void fill_chunk(void *arg, int64_t chunk, void *scratch)
{
	const struct fill *a = arg;
	int64_t at = chunk * CHUNK_ELEMS, n = a->n - at < CHUNK_ELEMS ? a->n - at : CHUNK_ELEMS;

	if (a->in) {
		memcpy(a->out + at, a->in + at, (size_t)n * sizeof *a->out);
	} else {
		for (int64_t i = 0; i < n; i++)
			a->out[at + i] = a->value;
	}
}

static int run_fill(struct k_stream *s, const void *args)
{
	struct fill a = *(const struct fill *)args;

	pool_run(s->pool, (a.n + CHUNK_ELEMS - 1) / CHUNK_ELEMS, fill_chunk, &a);
	return 0;
}

void k_fill(struct k_stream *s, k_real *out, int64_t n, double value)
{
	struct fill a = {out, NULL, n, (k_real)value};

	stream_submit(s, "k_fill", run_fill, &a, sizeof a);
}

/* Compute type and k_real are equal here: a copy. */
void k_cast(struct k_stream *s, void *out, const k_real *in, int64_t n)
{
	struct fill a = {out, in, n, 0};

	if (out != in)
		stream_submit(s, "k_cast", run_fill, &a, sizeof a);
}
