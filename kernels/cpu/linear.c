#include "kernels/cpu/gemm.h"
#include "kernels/cpu/stream.h"
#include "kernels/cpu/vec.h"

/*
 * A matrix product is split into tiles of the result; each is one call of BLAS and its epilogue
 * while the tile is in the cache. The split depends only on the shape. Large tiles keep BLAS near
 * its peak (512 x 768 within 2%, 512 x 128 within 8%); smaller ones give every thread some work.
 */
struct tiles {
	int64_t rows, cols;     /* per tile */
	int64_t across, number; /* tiles per row; in all */
};

enum { TILE_ROWS_MAX = 512, TILE_COLS_MAX = 768, TILE_MIN = 64, TILES_WANTED = 8 };

static int64_t parts(int64_t whole, int64_t part)
{
	return (whole + part - 1) / part;
}

static int64_t at_most(int64_t x, int64_t limit)
{
	return x < limit ? x : limit;
}

/* Halves the longer side until there are enough tiles or they have the minimum size. */
static struct tiles cut(int64_t rows, int64_t cols, int64_t wanted)
{
	struct tiles t = {
		.rows = at_most(rows, TILE_ROWS_MAX), .cols = at_most(cols, TILE_COLS_MAX)};

	while (parts(rows, t.rows) * parts(cols, t.cols) < wanted) {
		int64_t *longer = t.cols > t.rows ? &t.cols : &t.rows;

		if (*longer < 2 * TILE_MIN)
			break;
		*longer = parts(*longer, 2);
	}
	t.across = parts(cols, t.cols);
	t.number = t.across * parts(rows, t.rows);
	return t;
}

/* ---- forward ---- */

struct forward {
	const struct vec *vec;
	k_real *out;
	k_real *pre; /* NULL: no GELU */
	const k_real *inp, *weight, *bias;
	int64_t R, C, OC;
	enum k_gelu gelu;
	struct tiles tiles;
};

static void forward_tile(void *arg, int64_t chunk, void *scratch)
{
	const struct forward *a = arg;
	int64_t r = chunk / a->tiles.across * a->tiles.rows,
		c = chunk % a->tiles.across * a->tiles.cols;
	int64_t rows = at_most(a->R - r, a->tiles.rows), cols = at_most(a->OC - c, a->tiles.cols);
	k_real *product = (a->pre ? a->pre : a->out) + r * a->OC + c;

	gemm(product, a->OC, rows, cols, a->C, 1,
		(struct gemm_matrix){a->inp + r * a->C, a->C, GEMM_N},
		(struct gemm_matrix){a->weight + c * a->C, a->C, GEMM_T}, 0);
	for (int64_t i = 0; i < rows; i++) {
		k_real *row = product + i * a->OC;

		if (a->bias)
			a->vec->add(row, row, a->bias + c, cols);
		if (a->pre)
			a->vec->gelu(a->out + (r + i) * a->OC + c, row, cols, a->gelu);
	}
}

static int run_forward(struct k_stream *s, const void *args)
{
	struct forward a = *(const struct forward *)args;

	a.tiles = cut(a.R, a.OC, TILES_WANTED);
	pool_run(s->pool, a.tiles.number, forward_tile, &a);
	return 0;
}

/* pre: NULL where there is no GELU. */
static void submit_forward(struct k_stream *s, const char *name, void *out, void *pre,
	const void *inp, const void *weight, const void *bias, int64_t R, int64_t C, int64_t OC,
	enum k_gelu gelu)
{
	const struct forward a = {.vec = s->ctx->vec,
		.out = out,
		.pre = pre,
		.inp = inp,
		.weight = weight,
		.bias = bias,
		.R = R,
		.C = C,
		.OC = OC,
		.gelu = gelu};

	stream_submit(s, name, run_forward, &a, sizeof a);
}

void k_linear_forward(struct k_stream *s, void *out, const void *inp, const void *weight,
	const void *bias, int64_t R, int64_t C, int64_t OC)
{
	submit_forward(
		s, "k_linear_forward", out, NULL, inp, weight, bias, R, C, OC, K_GELU_TANH);
}

void k_linear_gelu_forward(struct k_stream *s, void *out, void *pre, const void *inp,
	const void *weight, const void *bias, int64_t R, int64_t C, int64_t OC, enum k_gelu gelu)
{
	submit_forward(s, "k_linear_gelu_forward", out, pre, inp, weight, bias, R, C, OC, gelu);
}

/* With the product's tiles, so that the same instructions compute each element. */
static void gelu_tile(void *arg, int64_t chunk, void *scratch)
{
	const struct forward *a = arg;
	int64_t r = chunk / a->tiles.across * a->tiles.rows,
		c = chunk % a->tiles.across * a->tiles.cols;
	int64_t rows = at_most(a->R - r, a->tiles.rows), cols = at_most(a->OC - c, a->tiles.cols);

	for (int64_t i = r; i < r + rows; i++)
		a->vec->gelu(a->out + i * a->OC + c, a->pre + i * a->OC + c, cols, a->gelu);
}

static int run_gelu(struct k_stream *s, const void *args)
{
	struct forward a = *(const struct forward *)args;

	a.tiles = cut(a.R, a.OC, TILES_WANTED);
	pool_run(s->pool, a.tiles.number, gelu_tile, &a);
	return 0;
}

void k_linear_gelu_again(struct k_stream *s, void *out, void *pre, const void *inp,
	const void *weight, const void *bias, int64_t R, int64_t C, int64_t OC, enum k_gelu gelu)
{
	struct forward a = {
		.vec = s->ctx->vec, .out = out, .pre = pre, .R = R, .OC = OC, .gelu = gelu};

	stream_submit(s, "k_linear_gelu_again", run_gelu, &a, sizeof a);
}

/* ---- backward: tiles of dinp and tiles of dweight in one run ---- */

struct backward {
	const struct vec *vec;
	k_real *dinp, *dweight, *dbias;
	k_real *dsum; /* NULL: not wanted */
	const k_real *dout, *inp, *weight;
	const k_real *pre; /* NULL: no GELU before this layer */
	int64_t R, C, OC;
	enum k_gelu gelu;
	bool first; /* dweight holds nothing yet */
	struct tiles dinp_tiles, dweight_tiles;
};

static void dinp_tile(const struct backward *a, int64_t chunk)
{
	const struct tiles *t = &a->dinp_tiles;
	int64_t r = chunk / t->across * t->rows, c = chunk % t->across * t->cols;
	int64_t rows = at_most(a->R - r, t->rows), cols = at_most(a->C - c, t->cols);
	k_real *dinp = a->dinp + r * a->C + c;

	gemm(dinp, a->C, rows, cols, a->OC, 1,
		(struct gemm_matrix){a->dout + r * a->OC, a->OC, GEMM_N},
		(struct gemm_matrix){a->weight + c, a->C, GEMM_N}, 0);
	if (!a->pre)
		return;
	for (int64_t i = 0; i < rows; i++)
		a->vec->gelu_backward(dinp + i * a->C, a->pre + (r + i) * a->C + c, cols, a->gelu);
}

/* The tiles of the first column also sum their part of dbias, over all rows in order. */
static void dweight_tile(const struct backward *a, int64_t chunk)
{
	const struct tiles *t = &a->dweight_tiles;
	int64_t o = chunk / t->across * t->rows, c = chunk % t->across * t->cols;
	int64_t rows = at_most(a->OC - o, t->rows), cols = at_most(a->C - c, t->cols);

	gemm(a->dweight + o * a->C + c, a->C, rows, cols, a->R, 1,
		(struct gemm_matrix){a->dout + o, a->OC, GEMM_T},
		(struct gemm_matrix){a->inp + c, a->C, GEMM_N}, a->first ? 0 : 1);
	if (!a->dbias || c != 0)
		return;
	for (int64_t r = 0; r < a->R; r++)
		a->vec->add(a->dbias + o, a->dbias + o, a->dout + r * a->OC + o, rows);
}

static void backward_tile(void *arg, int64_t chunk, void *scratch)
{
	const struct backward *a = arg;

	if (chunk < a->dweight_tiles.number)
		dweight_tile(a, chunk);
	else
		dinp_tile(a, chunk - a->dweight_tiles.number);
}

enum { DSUM_STRIPE = 256 };

/* Columns of dinp, over all rows in order. */
static void dsum_stripe(void *arg, int64_t chunk, void *scratch)
{
	const struct backward *a = arg;
	int64_t c = chunk * DSUM_STRIPE, cols = at_most(a->C - c, DSUM_STRIPE);

	for (int64_t r = 0; r < a->R; r++)
		a->vec->add(a->dsum + c, a->dsum + c, a->dinp + r * a->C + c, cols);
}

static int run_backward(struct k_stream *s, const void *args)
{
	struct backward a = *(const struct backward *)args;

	if (a.dweight)
		a.dweight_tiles = cut(a.OC, a.C, TILES_WANTED / 2);
	if (a.dinp)
		a.dinp_tiles = cut(a.R, a.C, TILES_WANTED / 2);
	pool_run(s->pool, a.dweight_tiles.number + a.dinp_tiles.number, backward_tile, &a);
	if (a.dsum)
		pool_run(s->pool, (a.C + DSUM_STRIPE - 1) / DSUM_STRIPE, dsum_stripe, &a);
	return 0;
}

/* dsum, pre: NULL where there is none. */
static void submit_backward(struct k_stream *s, const char *name, bool first, void *dinp,
	void *dweight, void *dbias, void *dsum, const void *dout, const void *inp, const void *pre,
	const void *weight, int64_t R, int64_t C, int64_t OC, enum k_gelu gelu)
{
	const struct backward a = {.vec = s->ctx->vec,
		.dinp = dinp,
		.dweight = dweight,
		.dbias = dbias,
		.dsum = dsum,
		.dout = dout,
		.inp = inp,
		.pre = pre,
		.weight = weight,
		.R = R,
		.C = C,
		.OC = OC,
		.gelu = gelu,
		.first = first};

	stream_submit(s, name, run_backward, &a, sizeof a);
}

void k_linear_backward(struct k_stream *s, void *dinp, void *dweight, void *dbias, const void *dout,
	const void *inp, const void *weight, int64_t R, int64_t C, int64_t OC)
{
	submit_backward(s, "k_linear_backward", false, dinp, dweight, dbias, NULL, dout, inp, NULL,
		weight, R, C, OC, K_GELU_TANH);
}

void k_linear_backward_gelu(struct k_stream *s, void *dinp, void *dweight, void *dbias, void *dsum,
	const void *dout, const void *inp, const void *pre, const void *weight, int64_t R,
	int64_t C, int64_t OC, enum k_gelu gelu)
{
	submit_backward(s, "k_linear_backward_gelu", false, dinp, dweight, dbias, dsum, dout, inp,
		pre, weight, R, C, OC, gelu);
}

void k_linear_backward_first(struct k_stream *s, void *dinp, void *dweight, void *dbias, void *dsum,
	const void *dout, const void *inp, const void *pre, const void *weight, int64_t R,
	int64_t C, int64_t OC, enum k_gelu gelu)
{
	submit_backward(s, "k_linear_backward_first", true, dinp, dweight, dbias, dsum, dout, inp,
		pre, weight, R, C, OC, gelu);
}
