#include <math.h>

#include "kernels/cuda/attention_tiled.cuh"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/reduce.cuh"

/*
 * A block has 64 queries and processes 64 keys at a time with a running softmax. It prefetches the
 * next keys while it uses the values, and the next values while it uses the scores. Exponentials
 * are of base 2.
 */
enum { BLOCKS = 3, TILES = 4, BYTES = TILES * TILED_FLOATS * (int)sizeof(float) };

#if MMA_THERE

/* max: of the row, in base 2; sum: this lane's part of the row's */
struct rows {
	float max[TILED_ROWS], sum[TILED_ROWS];
};

static __device__ __forceinline__ float max_of_row(float x)
{
#pragma unroll
	for (int apart = 8; apart > 0; apart /= 2)
		x = fmaxf(x, __shfl_xor_sync(reduce_all_lanes, x, apart));
	return x;
}

static __device__ __forceinline__ float sum_of_row(float x)
{
#pragma unroll
	for (int apart = 8; apart > 0; apart /= 2)
		x += __shfl_xor_sync(reduce_all_lanes, x, apart);
	return x;
}

/* scores become the values' weights; diagonal: mask the keys after the row's query */
static __device__ __forceinline__ void softmax(struct rows &r,
	float (&out)[TILED_ROWS][TILED_COLUMNS], float (&scores)[TILED_ROWS][TILED_COLUMNS],
	bool diagonal, float scale)
{
#pragma unroll
	for (int i = 0; i < TILED_ROWS; i++) {
		float max = -INFINITY, keep;

#pragma unroll
		for (int j = 0; j < TILED_COLUMNS; j++) {
			if (diagonal && tiled_lane() + 16 * j > tiled_row() + 2 * i)
				scores[i][j] = -INFINITY;
			max = fmaxf(max, scores[i][j]);
		}
		max = fmaxf(r.max[i], max_of_row(max) * scale);
		keep = element_exp2(r.max[i] - max);
		r.max[i] = max;
		r.sum[i] *= keep;
#pragma unroll
		for (int j = 0; j < TILED_COLUMNS; j++) {
			scores[i][j] = element_exp2(fmaf(scores[i][j], scale, -max));
			r.sum[i] += scores[i][j];
			out[i][j] *= keep;
		}
	}
}

/* at: the dropout's element of the lane's first row and column */
static __device__ __forceinline__ void drop_scores(
	float (&scores)[TILED_ROWS][TILED_COLUMNS], const struct attention<float> &a, int64_t at)
{
#pragma unroll
	for (int i = 0; i < TILED_ROWS; i++) {
		int64_t row = at + 2 * i * a.T;
		const int64_t each[4] = {row, row + 16, row + 32, row + 48};
		float mask[4];

		philox_mask_turned<1>(mask, a.drop, each, a.T % 4 == 0);
#pragma unroll
		for (int j = 0; j < TILED_COLUMNS; j++)
			scores[i][j] *= mask[j];
	}
}

static __device__ __forceinline__ void finish(const struct attention<float> &a,
	const struct tiled_place &p, const struct rows &r,
	float (&out)[TILED_ROWS][TILED_COLUMNS])
{
	int there = tiled_there(a.T, p.first);

#pragma unroll
	for (int i = 0; i < TILED_ROWS; i++) {
		float sum = sum_of_row(r.sum[i]);
		int row = tiled_row() + 2 * i;

		if (tiled_lane() == 0 && row < there)
			a.lse_out[p.head * a.T + p.first + row] =
				(r.max[i] + log2f(sum)) * attention_ln_2;
#pragma unroll
		for (int j = 0; j < TILED_COLUMNS; j++)
			out[i][j] *= 1 / sum;
	}
	tiled_store(a.out + p.at + p.first * p.width, p.width, out, there, 1);
}

#endif

static __global__ void __launch_bounds__(TILED_THREADS, BLOCKS)
	attention_forward_by_tiles(const __grid_constant__ struct attention<float> a)
{
#if MMA_THERE
	extern __shared__ __align__(16) float tiles[];
	float *q_tile = tiles, *k_tile = q_tile + TILED_FLOATS, *v_tile = k_tile + TILED_FLOATS;
	float *weights = v_tile + TILED_FLOATS;
	const float scale = a.scale * attention_log2_e;
	const struct tiled_place p = tiled_find(a, true);
	int64_t stride = 3 * p.width;
	const float *q = a.qkv + p.at3, *k = q + p.width, *v = k + p.width;
	int64_t drops = (p.head * a.T + p.first + tiled_row()) * a.T + tiled_lane();
	float out[TILED_ROWS][TILED_COLUMNS] = {};
	struct rows r;

#pragma unroll
	for (int i = 0; i < TILED_ROWS; i++) {
		r.max[i] = -INFINITY;
		r.sum[i] = 0;
	}
	tiled_fetch(q_tile, q + p.first * stride, stride, tiled_there(a.T, p.first));
	tiled_fetch(k_tile, k, stride, tiled_there(a.T, 0));
	mma_fetch_end();
	tiled_fetch(v_tile, v, stride, tiled_there(a.T, 0));
	mma_fetch_end();
	for (int t = 0; t <= p.tile; t++) {
		int64_t next = (int64_t)(t + 1) * TILED_SIDE;
		float scores[TILED_ROWS][TILED_COLUMNS] = {};
		bool last = t == p.tile;

		mma_fetch_wait<1>();
		__syncthreads();
		tiled_times_rows(scores, q_tile, k_tile);
		softmax(r, out, scores, last, scale);
		if (a.drop.on)
			drop_scores(scores, a, drops + (int64_t)t * TILED_SIDE);
		tiled_put(weights, scores);
		mma_fetch_wait<0>();
		__syncthreads();
		if (!last)
			tiled_fetch(k_tile, k + next * stride, stride, tiled_there(a.T, next));
		mma_fetch_end();
		tiled_times_tile(out, weights, v_tile, 0,
			last ? tiled_row() / TILED_WARP_ROWS * TILED_WARP_ROWS + TILED_WARP_ROWS
			     : TILED_SIDE);
		__syncthreads();
		if (!last)
			tiled_fetch(v_tile, v + next * stride, stride, tiled_there(a.T, next));
		mma_fetch_end();
	}
	finish(a, p, r, out);
#endif
}

void attention_tiled_forward(struct k_stream *s, const struct attention<float> &a)
{
	tiled_launch(s, attention_forward_by_tiles, a, BYTES);
}
