#include <errno.h>
#include <string.h>

#include "kernels/cpu/dropout.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/stream.h"

enum { FORWARD_ROWS = 16, BACKWARD_ROWS_MIN = 32, BACKWARD_BLOCKS_MAX = 64 };

struct forward {
	const struct vec *vec;
	k_real *residual; /* NULL: inp1 is the input */
	k_real *out, *mean, *rstd;
	const k_real *inp1, *inp2, *weight, *bias;
	int64_t R, C;
	struct k_dropout drop;
};

static void forward_chunk(void *arg, int64_t chunk, void *scratch)
{
	const struct forward *a = arg;
	int64_t first = chunk * FORWARD_ROWS, C = a->C;
	int64_t end = first + FORWARD_ROWS < a->R ? first + FORWARD_ROWS : a->R;

	for (int64_t r = first; r < end; r++) {
		const k_real *inp = a->inp1 + r * C;

		if (a->residual) {
			const k_real *inp2 = a->inp2 + r * C;

			if (a->drop.p != 0) {
				dropout_apply(a->vec, scratch, inp2, C, &a->drop, r * C);
				inp2 = scratch;
			}
			a->vec->add(a->residual + r * C, inp, inp2, C);
			inp = a->residual + r * C;
		}
		a->vec->norm(a->out + r * C, &a->mean[r], &a->rstd[r], inp, a->weight, a->bias, C);
	}
}

size_t scratch_layernorm_bytes(int64_t C)
{
	return (size_t)C * sizeof(k_real);
}

static int run_forward(struct k_stream *s, const void *args)
{
	struct forward a = *(const struct forward *)args;
	int rc = pool_reserve(s->pool, scratch_layernorm_bytes(a.C));

	if (rc < 0)
		return rc;
	dropout_resolve(&a.drop);
	pool_run(s->pool, (a.R + FORWARD_ROWS - 1) / FORWARD_ROWS, forward_chunk, &a);
	return 0;
}

void k_layernorm_forward(struct k_stream *s, void *out, k_real *mean, k_real *rstd, const void *inp,
	const void *weight, const void *bias, int64_t R, int64_t C)
{
	struct forward a = {.vec = s->ctx->vec,
		.out = out,
		.mean = mean,
		.rstd = rstd,
		.inp1 = inp,
		.weight = weight,
		.bias = bias,
		.R = R,
		.C = C};

	stream_submit(s, "k_layernorm_forward", run_forward, &a, sizeof a);
}

void k_residual_layernorm_forward(struct k_stream *s, void *residual, void *out, k_real *mean,
	k_real *rstd, const void *inp1, const void *inp2, const void *weight, const void *bias,
	int64_t R, int64_t C, const struct k_dropout *drop)
{
	struct forward a = {s->ctx->vec, residual, out, mean, rstd, inp1, inp2, weight, bias, R, C,
		dropout_copy(drop)};

	stream_submit(s, "k_residual_layernorm_forward", run_forward, &a, sizeof a);
}

struct backward {
	const struct vec *vec;
	k_real *dinp, *dweight, *dbias, *dsum;
	k_real *partial; /* (blocks, 3, C): each block's dweight, dbias and dsum */
	const k_real *add, *dout, *inp, *weight, *mean, *rstd;
	int64_t R, C;
	int64_t rows; /* per block: from R alone, so that sums have one order */
};

static void backward_chunk(void *arg, int64_t chunk, void *scratch)
{
	const struct backward *a = arg;
	int64_t C = a->C, first = chunk * a->rows;
	int64_t end = first + a->rows < a->R ? first + a->rows : a->R;
	k_real *dweight = a->partial + chunk * 3 * C, *dbias = dweight + C, *dsum = dbias + C;

	memset(dweight, 0, (size_t)(3 * C) * sizeof *dweight);
	for (int64_t r = first; r < end; r++) {
		k_real *dinp = a->dinp + r * C;

		if (!a->add)
			memset(dinp, 0, (size_t)C * sizeof *dinp);
		else if (a->add != a->dinp)
			memcpy(dinp, a->add + r * C, (size_t)C * sizeof *dinp);
		a->vec->norm_backward(dinp, dweight, dbias, a->dout + r * C, a->inp + r * C,
			a->weight, a->mean[r], a->rstd[r], C);
		if (a->dsum)
			a->vec->add(dsum, dsum, dinp, C);
	}
}

static int64_t block_rows(int64_t R)
{
	int64_t rows = (R + BACKWARD_BLOCKS_MAX - 1) / BACKWARD_BLOCKS_MAX;

	return rows < BACKWARD_ROWS_MIN ? BACKWARD_ROWS_MIN : rows;
}

size_t scratch_layernorm_shared_bytes(int64_t R, int64_t C)
{
	int64_t rows = block_rows(R), blocks = (R + rows - 1) / rows;

	return (size_t)(blocks * 3 * C) * sizeof(k_real);
}

static int run_backward(struct k_stream *s, const void *args)
{
	struct backward a = *(const struct backward *)args;
	int64_t blocks;

	a.rows = block_rows(a.R);
	blocks = (a.R + a.rows - 1) / a.rows;
	a.partial = pool_shared(s->pool, scratch_layernorm_shared_bytes(a.R, a.C));
	if (!a.partial)
		return -ENOMEM;
	pool_run(s->pool, blocks, backward_chunk, &a);
	for (int64_t i = 0; i < blocks; i++) {
		const k_real *partial = a.partial + i * 3 * a.C;

		a.vec->add(a.dweight, a.dweight, partial, a.C);
		a.vec->add(a.dbias, a.dbias, partial + a.C, a.C);
		if (a.dsum)
			a.vec->add(a.dsum, a.dsum, partial + 2 * a.C, a.C);
	}
	return 0;
}

void k_layernorm_backward(struct k_stream *s, void *dinp, void *dweight, void *dbias, void *dsum,
	const void *add, const void *dout, const void *inp, const void *weight, const k_real *mean,
	const k_real *rstd, int64_t R, int64_t C)
{
	struct backward a = {.vec = s->ctx->vec,
		.dinp = dinp,
		.dweight = dweight,
		.dbias = dbias,
		.dsum = dsum,
		.add = add,
		.dout = dout,
		.inp = inp,
		.weight = weight,
		.mean = mean,
		.rstd = rstd,
		.R = R,
		.C = C};

	stream_submit(s, "k_layernorm_backward", run_backward, &a, sizeof a);
}
