#include <math.h>

#include "kernels/cpu/pool.h"
#include "kernels/cpu/stream.h"
#include "kernels/cpu/vec.h"

struct row {
	const struct vec *vec;
	k_real *out;
	const k_real *qkv;
	int64_t T, NH, HS;
	k_real scale;
};

static void attend(void *arg, int64_t head, void *scratch)
{
	const struct row *a = arg;
	const int64_t C = a->NH * a->HS, stride = 3 * C;
	const k_real *q = a->qkv + (a->T - 1) * stride + head * a->HS;
	const k_real *k = a->qkv + C + head * a->HS, *v = k + C;
	k_real *scores = scratch, *out = a->out + head * a->HS, sum;

	for (int64_t i = 0; i < a->T; i++)
		scores[i] = a->vec->dot(q, k + i * stride, a->HS);
	sum = a->vec->exp(scores, scores, a->T, a->scale, a->vec->max(scores, a->T) * a->scale);
	for (int64_t d = 0; d < a->HS; d++)
		out[d] = 0;
	for (int64_t i = 0; i < a->T; i++)
		for (int64_t d = 0; d < a->HS; d++)
			out[d] += scores[i] * v[i * stride + d];
	a->vec->scale(out, a->HS, 1 / sum);
}

static int run(struct k_stream *s, const void *args)
{
	struct row a = *(const struct row *)args;
	int rc = pool_reserve(s->pool, (size_t)a.T * sizeof(k_real));

	if (rc < 0)
		return rc;
	pool_run(s->pool, a.NH, attend, &a);
	return 0;
}

void k_attention_row(
	struct k_stream *s, void *out, const void *qkv, int64_t T, int64_t NH, int64_t HS)
{
	struct row a = {.vec = s->ctx->vec,
		.out = out,
		.qkv = qkv,
		.T = T,
		.NH = NH,
		.HS = HS,
		.scale = (k_real)(1 / sqrt((double)HS))};

	stream_submit(s, "k_attention_row", run, &a, sizeof a);
}
