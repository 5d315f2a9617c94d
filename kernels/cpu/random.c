#include "kernels/cpu/stream.h"
#include "kernels/cpu/vec.h"

enum { CHUNK_ELEMS = 1 << 16 };
static const uint64_t init_place = UINT64_C(0x696e6974) << 32; /* apart from dropout's offsets */

struct init {
	const struct vec *vec;
	k_real *out;
	int64_t n, first;
	struct vec_key key;
	double mean, std;
};

static void init_chunk(void *arg, int64_t chunk, void *scratch)
{
	const struct init *a = arg;
	int64_t at = chunk * CHUNK_ELEMS, n = a->n - at < CHUNK_ELEMS ? a->n - at : CHUNK_ELEMS;

	a->vec->normal(a->out + at, n, a->key, a->first + at, a->mean, a->std);
}

static int run_init(struct k_stream *s, const void *args)
{
	struct init a = *(const struct init *)args;

	pool_run(s->pool, (a.n + CHUNK_ELEMS - 1) / CHUNK_ELEMS, init_chunk, &a);
	return 0;
}

void k_init_normal(struct k_stream *s, k_real *out, int64_t n, uint64_t seed, uint32_t stream,
	int64_t first, double mean, double std)
{
	struct init a = {s->ctx->vec, out, n, first, {seed, init_place | stream}, mean, std};

	stream_submit(s, "k_init_normal", run_init, &a, sizeof a);
}
