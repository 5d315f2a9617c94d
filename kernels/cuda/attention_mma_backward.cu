#include <math.h>

#include "kernels/cuda/attention_lanes.cuh"

/*
 * Two kernels, so each gradient element has one owner and one order of additions: one kernel owns
 * 64 keys and visits the queries from the diagonal on; the other owns 64 queries and visits the
 * keys up to it. Both recompute the scores. Each of the four warps has 16 rows.
 */
enum { THREADS = 128, TILE = 64, TILE_BYTES = TILE * MMA_ROW_BYTES, ROW_FLOATS = 2 * TILE };

#if MMA_THERE

static __device__ __forceinline__ void zero(float (&d)[1][8][4])
{
#pragma unroll
	for (int n = 0; n < 8; n++)
		d[0][n][0] = d[0][n][1] = d[0][n][2] = d[0][n][3] = 0;
}

static __device__ __forceinline__ int rows_there(int64_t T, int64_t first)
{
	return (int)(T - first < TILE ? T - first : TILE);
}

static __device__ __forceinline__ void load_fragments(uint32_t (&a)[1][4][4], uint32_t tile)
{
	int row = (int)(threadIdx.x / REDUCE_WARP) * 16;

#pragma unroll
	for (int k = 0; k < 4; k++)
		mma_load_a(a[0][k], tile, row, k);
}

/* Scores of keys (rows) by queries become probabilities; diagonal: mask some keys. */
static __device__ __forceinline__ void turned_softmax(
	float (&p)[8][4], const float *lse, float scale, int row, bool diagonal)
{
	int column = 2 * (threadIdx.x & 3);

#pragma unroll
	for (int n = 0; n < 8; n++) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			int query = 8 * n + column + (i & 1), key = row + 8 * (i >> 1);

			p[n][i] = element_exp2(fmaf(p[n][i], scale, -lse[query]));
			if (diagonal && key > query)
				p[n][i] = 0;
		}
	}
}

#endif

/* dk and dv of 64 keys. Scores are transposed: rows are keys, columns queries. */
template <typename E>
static __global__ void __launch_bounds__(THREADS)
	attention_backward_keys_by_units(const __grid_constant__ struct attention<E> a)
{
#if MMA_THERE
	extern __shared__ __align__(128) char memory[];
	const float scale = a.scale * attention_log2_e;
	int64_t head = attention_head(), b = head / a.NH, h = head % a.NH, C = a.NH * a.HS;
	int64_t first = (int64_t)blockIdx.x * TILE;
	int row = (int)(threadIdx.x / REDUCE_WARP) * 16 + ((threadIdx.x & 31) >> 2);
	int column = 2 * (threadIdx.x & 3), tiles = (int)((a.T + TILE - 1) / TILE);
	const E *q = a.qkv + b * a.T * 3 * C + h * a.HS, *k = q + C, *v = k + C;
	const E *dout = a.dout + b * a.T * C + h * a.HS;
	int64_t stride = 3 * C * (int64_t)sizeof(E), dout_stride = C * (int64_t)sizeof(E);
	uint32_t base = (uint32_t)__cvta_generic_to_shared(memory);
	float *rows = (float *)(memory + 4 * TILE_BYTES);
	uint32_t k_fragments[1][4][4], v_fragments[1][4][4];
	float dk[1][8][4], dv[1][8][4];
	E *to = a.dqkv + (b * a.T + first) * 3 * C + h * a.HS;

	if (head >= a.B * a.NH)
		return;
	/* through the second pair of tiles, which is free until the loop prefetches */
	mma_fetch<TILE, THREADS>(
		base + 2 * TILE_BYTES, k + first * 3 * C, stride, rows_there(a.T, first));
	mma_fetch<TILE, THREADS>(
		base + 3 * TILE_BYTES, v + first * 3 * C, stride, rows_there(a.T, first));
	mma_fetch_end();
	mma_fetch<TILE, THREADS>(base, q + first * 3 * C, stride, rows_there(a.T, first));
	mma_fetch<TILE, THREADS>(
		base + TILE_BYTES, dout + first * C, dout_stride, rows_there(a.T, first));
	mma_fetch_end();
	attention_fetch_queries(rows, a, head, first);
	mma_fetch_wait<1>();
	__syncthreads();
	load_fragments(k_fragments, base + 2 * TILE_BYTES);
	load_fragments(v_fragments, base + 3 * TILE_BYTES);
	__syncthreads();
	zero(dk);
	zero(dv);
	for (int t = (int)blockIdx.x, odd = 0; t < tiles; t++, odd ^= 1) {
		uint32_t q_tile = base + (uint32_t)odd * 2 * TILE_BYTES;
		const float *lse = rows + odd * ROW_FLOATS, *delta = lse + TILE;
		int64_t here = (int64_t)t * TILE, next = here + TILE;
		float p[1][8][4], dp[1][8][4];

		if (t + 1 < tiles) {
			uint32_t at = base + (uint32_t)(odd ^ 1) * 2 * TILE_BYTES;

			mma_fetch<TILE, THREADS>(
				at, q + next * 3 * C, stride, rows_there(a.T, next));
			mma_fetch<TILE, THREADS>(at + TILE_BYTES, dout + next * C, dout_stride,
				rows_there(a.T, next));
			mma_fetch_end();
			attention_fetch_queries(rows + (odd ^ 1) * ROW_FLOATS, a, head, next);
			mma_fetch_wait<1>();
		} else {
			mma_fetch_wait<0>();
		}
		__syncthreads();
		zero(p);
		mma_times_rows(p, k_fragments, q_tile, E());
		turned_softmax(p[0], lse, scale, row, t == (int)blockIdx.x);
		zero(dp);
		mma_times_rows(dp, v_fragments, q_tile + TILE_BYTES, E());
#pragma unroll
		for (int n = 0; n < 8; n++) {
			float mask[4] = {1, 1, 1, 1};
			int64_t at = (head * a.T + here + 8 * n + column) * a.T + first + row;
			const int64_t drops[4] = {at, at + a.T, at + 8, at + a.T + 8};

			if (a.drop.on)
				philox_mask_turned(mask, a.drop, drops, a.T % 4 == 0);
#pragma unroll
			for (int i = 0; i < 4; i++) {
				int query = 8 * n + column + (i & 1);

				dp[0][n][i] = p[0][n][i] * (dp[0][n][i] * mask[i] - delta[query]);
				p[0][n][i] *= mask[i];
			}
		}
		mma_times_tile(dv, p, q_tile + TILE_BYTES, E());
		mma_times_tile(dk, dp, q_tile, E());
		__syncthreads();
	}
	mma_store(to + C, 3 * C, dk[0], row, rows_there(a.T, first), a.scale, a.scale);
	mma_store(to + 2 * C, 3 * C, dv[0], row, rows_there(a.T, first), 1.0f, 1.0f);
#endif
}

/* dq of 64 queries. */
template <typename E>
static __global__ void __launch_bounds__(THREADS)
	attention_backward_queries_by_units(const __grid_constant__ struct attention<E> a)
{
#if MMA_THERE
	extern __shared__ __align__(128) char memory[];
	const float scale = a.scale * attention_log2_e;
	int64_t head = attention_head(), b = head / a.NH, h = head % a.NH, C = a.NH * a.HS;
	int64_t first = (int64_t)(gridDim.x - 1 - blockIdx.x) * TILE;
	int row = (int)(threadIdx.x / REDUCE_WARP) * 16 + ((threadIdx.x & 31) >> 2);
	int column = 2 * (threadIdx.x & 3), tiles = (int)(first / TILE) + 1;
	const E *q = a.qkv + b * a.T * 3 * C + h * a.HS, *k = q + C, *v = k + C;
	const E *dout = a.dout + (b * a.T + first) * C + h * a.HS;
	int64_t stride = 3 * C * (int64_t)sizeof(E);
	uint32_t base = (uint32_t)__cvta_generic_to_shared(memory);
	uint32_t q_fragments[1][4][4], dout_fragments[1][4][4];
	float dq[1][8][4], lse[2], delta[2];
	int64_t at = (head * a.T + first + row) * a.T + column; /* index of the dropout element */

	if (head >= a.B * a.NH)
		return;
	mma_fetch<TILE, THREADS>(
		base + 2 * TILE_BYTES, q + first * 3 * C, stride, rows_there(a.T, first));
	mma_fetch<TILE, THREADS>(
		base + 3 * TILE_BYTES, dout, C * (int64_t)sizeof(E), rows_there(a.T, first));
	mma_fetch_end();
	mma_fetch<TILE, THREADS>(base, k, stride, rows_there(a.T, 0));
	mma_fetch<TILE, THREADS>(base + TILE_BYTES, v, stride, rows_there(a.T, 0));
	mma_fetch_end();
#pragma unroll
	for (int half = 0; half < 2; half++) {
		int64_t query = first + row + 8 * half, at = head * a.T + query;

		lse[half] = query < a.T ? a.lse[at] * attention_log2_e : INFINITY;
		delta[half] = query < a.T ? a.delta[at] : 0;
	}
	mma_fetch_wait<1>();
	__syncthreads();
	load_fragments(q_fragments, base + 2 * TILE_BYTES);
	load_fragments(dout_fragments, base + 3 * TILE_BYTES);
	__syncthreads();
	zero(dq);
	for (int t = 0; t < tiles; t++) {
		uint32_t k_tile = base + (uint32_t)(t & 1) * 2 * TILE_BYTES;
		int64_t here = (int64_t)t * TILE, next = here + TILE;
		float p[1][8][4], dp[1][8][4];

		if (t + 1 < tiles) {
			uint32_t to = base + (uint32_t)(~t & 1) * 2 * TILE_BYTES;

			mma_fetch<TILE, THREADS>(
				to, k + next * 3 * C, stride, rows_there(a.T, next));
			mma_fetch<TILE, THREADS>(
				to + TILE_BYTES, v + next * 3 * C, stride, rows_there(a.T, next));
			mma_fetch_end();
			mma_fetch_wait<1>();
		} else {
			mma_fetch_wait<0>();
		}
		__syncthreads();
		zero(p);
		zero(dp);
		mma_times_rows(p, q_fragments, k_tile, E());
		mma_times_rows(dp, dout_fragments, k_tile + TILE_BYTES, E());
#pragma unroll
		for (int n = 0; n < 8; n++) {
			float mask[4] = {1, 1, 1, 1};

#pragma unroll
			for (int i = 0; i < 4; i++) {
				int half = i >> 1, key = 8 * n + column + (i & 1);

				p[0][n][i] = element_exp2(fmaf(p[0][n][i], scale, -lse[half]));
				if (here + key > first + row + 8 * half)
					p[0][n][i] = 0;
			}
			if (a.drop.on)
				philox_mask_tile(mask, a.drop, at + here + 8 * n,
					at + here + 8 * n + 8 * a.T, a.T % 4 == 0);
#pragma unroll
			for (int i = 0; i < 4; i++)
				dp[0][n][i] = p[0][n][i] * (dp[0][n][i] * mask[i] - delta[i >> 1]);
		}
		mma_times_tile(dq, dp, k_tile, E());
		__syncthreads();
	}
	mma_store(a.dqkv + (b * a.T + first) * 3 * C + h * a.HS, 3 * C, dq[0], row,
		rows_there(a.T, first), a.scale, a.scale);
#endif
}

template <typename E> void attention_mma_backward(struct k_stream *s, const struct attention<E> &a)
{
	int bytes = 4 * TILE_BYTES + 2 * ROW_FLOATS * (int)sizeof(float);
	dim3 grid = attention_grid((a.T + TILE - 1) / TILE, a.B * a.NH);

	attention_backward_keys_by_units<<<grid, THREADS, (size_t)bytes, s->cuda>>>(a);
	attention_backward_queries_by_units<<<grid, THREADS, (size_t)bytes, s->cuda>>>(a);
}

template void attention_mma_backward(struct k_stream *s, const struct attention<__nv_bfloat16> &a);
template void attention_mma_backward(struct k_stream *s, const struct attention<__half> &a);
