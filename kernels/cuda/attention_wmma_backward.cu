#include <math.h>

#include "kernels/cuda/attention_wmma.cuh"

/* As in attention_mma_backward.cu: one kernel owns 64 keys, one 64 queries. */
enum { TILES = 4, ROW_FLOATS = 2 * WMMA_SIDE };
enum { BYTES = TILES * WMMA_TILE_BYTES + WMMA_SCORES_BYTES + ROW_FLOATS * 4 };

/* A block's shared memory. */
template <typename E> struct tiles {
	E *q, *k, *v, *dout;
	float *scores, *rows;
};

template <typename E> static __device__ __forceinline__ struct tiles<E> place(char *memory)
{
	E *q = (E *)memory;
	float *scores = (float *)(memory + TILES * WMMA_TILE_BYTES);

	return {q, q + WMMA_TILE_ELEMS, q + 2 * WMMA_TILE_ELEMS, q + 3 * WMMA_TILE_ELEMS, scores,
		scores + WMMA_TILE_ELEMS};
}

/* A head's rows in memory. */
template <typename E> struct head {
	int64_t number, stride, dout_stride;
	const E *q, *k, *v, *dout;
	E *dq;
};

template <typename E>
static __device__ __forceinline__ struct head<E> find(const struct attention<E> &a)
{
	int64_t head = attention_head(), b = head / a.NH, C = a.NH * a.HS;
	int64_t column = head % a.NH * a.HS;
	const E *q = a.qkv + b * a.T * 3 * C + column;

	return {head, 3 * C, C, q, q + C, q + 2 * C, a.dout + b * a.T * C + column,
		a.dqkv + b * a.T * 3 * C + column};
}

/*
 * Log-sum-exp (base 2) and delta of 64 queries; beyond the last query log-sum-exp is inf, so the
 * probability is 0.
 */
template <typename E>
static __device__ __forceinline__ void fetch_rows(
	float *to, const struct attention<E> &a, int64_t head, int64_t first)
{
	int i = threadIdx.x % WMMA_SIDE;
	bool there = first + i < a.T;
	int64_t at = head * a.T + first + i;

	if (threadIdx.x < WMMA_SIDE)
		to[i] = there ? a.lse[at] * attention_log2_e : INFINITY;
	else
		to[WMMA_SIDE + i] = there ? a.delta[at] : 0;
}

/* The warp's rows of the product of tile a with the transpose of tile b. */
template <typename E>
static __device__ __forceinline__ void multiply(
	float (&x)[8][4], const E *a, const E *b, float *scores)
{
	wmma_sum d[WMMA_UNITS];

	wmma_zero(d);
	wmma_times_rows(d, a, b);
	wmma_take(x, scores, d);
}

/*
 * For 64 keys (rows) and 64 queries: writes the factors of dout to p and the scores' gradients to
 * dp.
 */
template <typename E>
static __device__ __forceinline__ void gradients_turned(float (&p)[8][4], float (&dp)[8][4],
	const struct attention<E> &a, const struct tiles<E> &m, bool diagonal, int64_t at)
{
	const float scale = a.scale * attention_log2_e;

	multiply(p, m.k, m.q, m.scores);
	multiply(dp, m.v, m.dout, m.scores);
#pragma unroll
	for (int j = 0; j < 8; j++) {
		float mask[4] = {1, 1, 1, 1};
		int64_t drops[4];

#pragma unroll
		for (int i = 0; i < 4; i++)
			drops[i] = at + (8 * j + i) * a.T;
		if (a.drop.on) /* neighbouring rows are two lanes apart */
			philox_mask_turned<2>(mask, a.drop, drops, a.T % 4 == 0);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			int query = 8 * j + wmma_column() + i;
			float prob = element_exp2(fmaf(p[j][i], scale, -m.rows[query]));

			if (diagonal && wmma_row() > query)
				prob = 0;
			dp[j][i] = prob * (dp[j][i] * mask[i] - m.rows[WMMA_SIDE + query]);
			p[j][i] = prob * mask[i];
		}
	}
}

/* dk and dv of 64 keys. */
template <typename E> static __device__ __forceinline__ void own_keys(const struct attention<E> &a)
{
	extern __shared__ __align__(128) char memory[];
	const struct tiles<E> m = place<E>(memory);
	const struct head<E> h = find(a);
	int64_t first = (int64_t)blockIdx.x * WMMA_SIDE;
	int there = wmma_there(a.T, first);
	E *to = h.dq + first * h.stride;
	wmma_sum dk[WMMA_UNITS], dv[WMMA_UNITS];
	float p[8][4], dp[8][4];

	if (h.number >= a.B * a.NH)
		return;
	wmma_fetch(m.k, h.k + first * h.stride, h.stride, there);
	wmma_fetch(m.v, h.v + first * h.stride, h.stride, there);
	wmma_zero(dk);
	wmma_zero(dv);
	for (int64_t here = first; here < a.T; here += WMMA_SIDE) {
		int now = wmma_there(a.T, here);

		__syncthreads();
		wmma_fetch(m.q, h.q + here * h.stride, h.stride, now);
		wmma_fetch(m.dout, h.dout + here * h.dout_stride, h.dout_stride, now);
		fetch_rows(m.rows, a, h.number, here);
		__syncthreads();
		gradients_turned(p, dp, a, m, here == first,
			(h.number * a.T + here + wmma_column()) * a.T + first + wmma_row());
		wmma_put_rounded(m.scores, 0, p, E());
		wmma_put_rounded(m.scores, 1, dp, E());
		__syncwarp();
		wmma_times_tile(dv, m.scores, 0, m.dout);
		wmma_times_tile(dk, m.scores, 1, m.q);
	}
	wmma_take(p, m.scores, dk);
	wmma_store(to + h.dout_stride, h.stride, p, there, a.scale);
	wmma_take(p, m.scores, dv);
	wmma_store(to + 2 * h.dout_stride, h.stride, p, there, 1);
}

/* Writes the scores' gradient to dp; rows are queries. */
template <typename E>
static __device__ __forceinline__ void gradients(float (&p)[8][4], float (&dp)[8][4],
	const struct attention<E> &a, const struct tiles<E> &m, bool diagonal, int64_t at)
{
	const float scale = a.scale * attention_log2_e;
	float lse = m.rows[wmma_row()], delta = m.rows[WMMA_SIDE + wmma_row()];

	multiply(p, m.q, m.k, m.scores);
	multiply(dp, m.dout, m.v, m.scores);
#pragma unroll
	for (int j = 0; j < 8; j++) {
		float mask[4] = {1, 1, 1, 1};

		if (a.drop.on)
			wmma_mask(mask, a.drop, at + 8 * j, a.T % 4 == 0);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			float prob = element_exp2(fmaf(p[j][i], scale, -lse));

			if (diagonal && 8 * j + wmma_column() + i > wmma_row())
				prob = 0;
			dp[j][i] = prob * (dp[j][i] * mask[i] - delta);
		}
	}
}

/* dq of 64 queries. */
template <typename E>
static __device__ __forceinline__ void own_queries(const struct attention<E> &a)
{
	extern __shared__ __align__(128) char memory[];
	const struct tiles<E> m = place<E>(memory);
	const struct head<E> h = find(a);
	int64_t tile = gridDim.x - 1 - blockIdx.x, first = tile * WMMA_SIDE;
	int there = wmma_there(a.T, first);
	wmma_sum dq[WMMA_UNITS];
	float p[8][4], dp[8][4];

	if (h.number >= a.B * a.NH)
		return;
	wmma_fetch(m.q, h.q + first * h.stride, h.stride, there);
	wmma_fetch(m.dout, h.dout + first * h.dout_stride, h.dout_stride, there);
	fetch_rows(m.rows, a, h.number, first);
	wmma_zero(dq);
	for (int64_t here = 0; here <= first; here += WMMA_SIDE) {
		int now = wmma_there(a.T, here);

		__syncthreads();
		wmma_fetch(m.k, h.k + here * h.stride, h.stride, now);
		wmma_fetch(m.v, h.v + here * h.stride, h.stride, now);
		__syncthreads();
		gradients(p, dp, a, m, here == first,
			(h.number * a.T + first + wmma_row()) * a.T + here + wmma_column());
		wmma_put_rounded(m.scores, 0, dp, E());
		__syncwarp();
		wmma_times_tile(dq, m.scores, 0, m.k);
	}
	wmma_take(p, m.scores, dq);
	wmma_store(h.dq + first * h.stride, h.stride, p, there, a.scale);
}

template <typename E>
static __global__ void __launch_bounds__(WMMA_THREADS)
	attention_backward_keys_by_wmma(const __grid_constant__ struct attention<E> a)
{
	if constexpr ((int)WMMA_ARCH >= (int)wmma_asks<E>::arch)
		own_keys(a);
}

template <typename E>
static __global__ void __launch_bounds__(WMMA_THREADS)
	attention_backward_queries_by_wmma(const __grid_constant__ struct attention<E> a)
{
	if constexpr ((int)WMMA_ARCH >= (int)wmma_asks<E>::arch)
		own_queries(a);
}

template <typename E>
static void launch(
	struct k_stream *s, void (*kernel)(const struct attention<E>), const struct attention<E> &a)
{
	dim3 grid = attention_grid((a.T + WMMA_SIDE - 1) / WMMA_SIDE, a.B * a.NH);

	context_check(s->ctx, "attention",
		cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
	kernel<<<grid, WMMA_THREADS, BYTES, s->cuda>>>(a);
}

template <typename E> void attention_wmma_backward(struct k_stream *s, const struct attention<E> &a)
{
	launch(s, attention_backward_keys_by_wmma<E>, a);
	launch(s, attention_backward_queries_by_wmma<E>, a);
}

template void attention_wmma_backward(struct k_stream *s, const struct attention<__nv_bfloat16> &a);
template void attention_wmma_backward(struct k_stream *s, const struct attention<__half> &a);
