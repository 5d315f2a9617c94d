#include <math.h>
#include <string.h>

#include "kernels/cpu/dropout.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/stream.h"

/*
 * A block of queries is computed against all keys up to its last row, so a thread holds block x T
 * scores (backward: twice) and nothing is T x T. Backward recomputes probabilities from the
 * log-sum-exp (Dao et al., arXiv:2205.14135). Dropout element: ((b*NH + h)*T + query)*T + key.
 */
enum { BLOCK_MAX = 64, BLOCK_SHORT = 32, T_SHORT = 128 };

struct attention {
	const struct vec *vec;
	k_real *out, *lse_out; /* forward */
	k_real *dqkv;          /* backward */
	const k_real *dout, *fwd_out, *lse, *qkv;
	int64_t B, T, NH, HS;
	k_real scale;
	struct k_dropout drop;
	int64_t block; /* rows: few for a short T, so that few are above the diagonal */
};

static void set_block(struct attention *a)
{
	a->block = a->T <= T_SHORT ? BLOCK_SHORT : BLOCK_MAX;
}

size_t scratch_attention_bytes(int64_t T)
{
	struct attention a = {.T = T};

	set_block(&a);
	return (size_t)((2 * a.block + 1) * T) * sizeof(k_real);
}

static int64_t count_blocks(const struct attention *a)
{
	return (a->T + a->block - 1) / a->block;
}

/* One head of one sample. */
struct head {
	const k_real *q, *k, *v;
	int64_t stride; /* of the rows of q, k and v */
	int64_t index;  /* b*NH + h */
	int64_t at;     /* of the head's first element in (B,T,C) */
	int64_t at3;    /* of its q in (B,T,3C) */
};

static struct head find_head(const struct attention *a, int64_t index)
{
	int64_t b = index / a->NH, h = index % a->NH, C = a->NH * a->HS;
	int64_t at3 = b * a->T * 3 * C + h * a->HS;
	const k_real *q = a->qkv + at3;

	return (struct head){q, q + C, q + 2 * C, 3 * C, index, b * a->T * C + h * a->HS, at3};
}

/* scores (rows, keys) = queries keys^T */
static void make_scores(const struct attention *a, const struct head *h, k_real *scores,
	int64_t first, int64_t rows)
{
	gemm(scores, a->T, rows, first + rows, a->HS, 1,
		(struct gemm_matrix){h->q + first * h->stride, h->stride, GEMM_N},
		(struct gemm_matrix){h->k, h->stride, GEMM_T}, 0);
}

static void apply_mask(
	const struct attention *a, const struct head *h, k_real *row, int64_t query, k_real *mask)
{
	if (a->drop.p == 0)
		return;
	dropout_mask(a->vec, mask, query + 1, &a->drop, (h->index * a->T + query) * a->T);
	a->vec->mul(row, row, mask, query + 1);
}

static void forward_block(void *arg, int64_t chunk, void *scratch)
{
	const struct attention *a = arg;
	int64_t blocks = count_blocks(a), C = a->NH * a->HS;
	int64_t first = chunk % blocks * a->block;
	int64_t rows = a->T - first < a->block ? a->T - first : a->block;
	struct head h = find_head(a, chunk / blocks);
	k_real *scores = scratch, *mask = scores + a->block * a->T;
	k_real *out = a->out + h.at + first * C;
	k_real inverse[BLOCK_MAX];

	make_scores(a, &h, scores, first, rows);
	for (int64_t i = 0; i < rows; i++) {
		k_real *row = scores + i * a->T;
		int64_t keys = first + i + 1;
		k_real shift = a->vec->max(row, keys) * a->scale;
		k_real sum = a->vec->exp(row, row, keys, a->scale, shift);

		a->lse_out[h.index * a->T + first + i] = shift + (k_real)log((double)sum);
		inverse[i] = 1 / sum;
		apply_mask(a, &h, row, first + i, mask);
		memset(row + keys, 0, (size_t)(rows - i - 1) * sizeof *row);
	}
	gemm(out, C, rows, a->HS, first + rows, 1, (struct gemm_matrix){scores, a->T, GEMM_N},
		(struct gemm_matrix){h.v, h.stride, GEMM_N}, 0);
	for (int64_t i = 0; i < rows; i++)
		a->vec->scale(out + i * C, a->HS, inverse[i]);
}

static int run_forward(struct k_stream *s, const void *args)
{
	struct attention a = *(const struct attention *)args;
	int rc;

	set_block(&a);
	dropout_resolve(&a.drop);
	rc = pool_reserve(s->pool, (size_t)((a.block + 1) * a.T) * sizeof(k_real));
	if (rc < 0)
		return rc;
	pool_run(s->pool, a.B * a.NH * count_blocks(&a), forward_block, &a);
	return 0;
}

void k_attention_forward(struct k_stream *s, void *out, k_real *lse, const void *qkv, int64_t B,
	int64_t T, int64_t NH, int64_t HS, const struct k_dropout *drop)
{
	struct attention a = {.vec = s->ctx->vec,
		.out = out,
		.lse_out = lse,
		.qkv = qkv,
		.B = B,
		.T = T,
		.NH = NH,
		.HS = HS,
		.scale = (k_real)(1 / sqrt((double)HS)),
		.drop = dropout_copy(drop)};

	stream_submit(s, "k_attention_forward", run_forward, &a, sizeof a);
}

/*
 * prob: scores on entry, the values' weights (after dropout) on return. dprob: the weights'
 * gradient on entry, the unscaled scores' gradient on return.
 */
static void backward_row(const struct attention *a, const struct head *h, k_real *prob,
	k_real *dprob, int64_t query, k_real *mask)
{
	int64_t keys = query + 1, C = a->NH * a->HS;
	k_real mean =
		a->vec->dot(a->dout + h->at + query * C, a->fwd_out + h->at + query * C, a->HS);

	a->vec->exp(prob, prob, keys, a->scale, a->lse[h->index * a->T + query]);
	if (a->drop.p != 0) {
		dropout_mask(a->vec, mask, keys, &a->drop, (h->index * a->T + query) * a->T);
		a->vec->mul(dprob, dprob, mask, keys);
	}
	a->vec->softmax_backward(dprob, prob, keys, mean, a->scale);
	if (a->drop.p != 0)
		a->vec->mul(prob, prob, mask, keys);
}

/* The values' weights and the scores' gradients of queries first .. first + rows - 1. */
static void backward_scores(const struct attention *a, const struct head *h, k_real *prob,
	k_real *dprob, int64_t first, int64_t rows)
{
	int64_t C = a->NH * a->HS;
	k_real *mask = dprob + a->block * a->T;

	make_scores(a, h, prob, first, rows);
	gemm(dprob, a->T, rows, first + rows, a->HS, 1,
		(struct gemm_matrix){a->dout + h->at + first * C, C, GEMM_N},
		(struct gemm_matrix){h->v, h->stride, GEMM_T}, 0);
	for (int64_t i = 0; i < rows; i++) {
		k_real *p = prob + i * a->T, *dp = dprob + i * a->T;
		size_t beyond = (size_t)(rows - i - 1) * sizeof *p;

		backward_row(a, h, p, dp, first + i, mask);
		memset(p + first + i + 1, 0, beyond);
		memset(dp + first + i + 1, 0, beyond);
	}
}

/*
 * Blocks run from last to first: the last one reaches every key and writes dk and dv, the others
 * add to them.
 */
static void backward_head(void *arg, int64_t chunk, void *scratch)
{
	const struct attention *a = arg;
	struct head h = find_head(a, chunk);
	int64_t C = a->NH * a->HS;
	k_real *prob = scratch, *dprob = prob + a->block * a->T;
	k_real *dq = a->dqkv + h.at3, *dk = dq + C, *dv = dq + 2 * C, beta = 0;

	for (int64_t i = count_blocks(a) - 1; i >= 0; i--, beta = 1) {
		int64_t first = i * a->block;
		int64_t rows = a->T - first < a->block ? a->T - first : a->block;
		int64_t keys = first + rows;

		backward_scores(a, &h, prob, dprob, first, rows);
		gemm(dq + first * h.stride, h.stride, rows, a->HS, keys, 1,
			(struct gemm_matrix){dprob, a->T, GEMM_N},
			(struct gemm_matrix){h.k, h.stride, GEMM_N}, 0);
		gemm(dk, h.stride, keys, a->HS, rows, 1, (struct gemm_matrix){dprob, a->T, GEMM_T},
			(struct gemm_matrix){h.q + first * h.stride, h.stride, GEMM_N}, beta);
		gemm(dv, h.stride, keys, a->HS, rows, 1, (struct gemm_matrix){prob, a->T, GEMM_T},
			(struct gemm_matrix){a->dout + h.at + first * C, C, GEMM_N}, beta);
	}
}

static int run_backward(struct k_stream *s, const void *args)
{
	struct attention a = *(const struct attention *)args;
	int rc;

	set_block(&a);
	dropout_resolve(&a.drop);
	rc = pool_reserve(s->pool, scratch_attention_bytes(a.T));
	if (rc < 0)
		return rc;
	pool_run(s->pool, a.B * a.NH, backward_head, &a);
	return 0;
}

bool k_attention_backward(struct k_stream *s, void *dqkv, void *dbias, const void *dout,
	const void *out, const k_real *lse, const void *qkv, int64_t B, int64_t T, int64_t NH,
	int64_t HS, const struct k_dropout *drop)
{
	struct attention a = {.vec = s->ctx->vec,
		.dqkv = dqkv,
		.dout = dout,
		.fwd_out = out,
		.lse = lse,
		.qkv = qkv,
		.B = B,
		.T = T,
		.NH = NH,
		.HS = HS,
		.scale = (k_real)(1 / sqrt((double)HS)),
		.drop = dropout_copy(drop)};

	stream_submit(s, "k_attention_backward", run_backward, &a, sizeof a);
	return false; /* the layer sums the columns beside its product, without an extra pass */
}
