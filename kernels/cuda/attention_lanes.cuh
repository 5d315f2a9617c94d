/*
 * attention_lanes.cuh: shared by attention with mma.sync in 16 bits and tf32, and partly by
 * Hopper's forward: scores of a warp's 16 rows by 64 columns as accumulators; mma.cuh describes
 * their layout. For sm_80 and up; for older devices its users compile to nothing.
 */
#ifndef GPT2D_KERNELS_CUDA_ATTENTION_LANES_CUH
#define GPT2D_KERNELS_CUDA_ATTENTION_LANES_CUH

#include <math.h>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/reduce.cuh"

/* Threads per tile; a block of backward has twice as many. */
enum { ATTENTION_QUERIES = 64 };

#if MMA_THERE

/* Over the four lanes that share rows. */
static __device__ __forceinline__ float attention_max_of_four(float x)
{
	x = fmaxf(x, __shfl_xor_sync(reduce_all_lanes, x, 1));
	return fmaxf(x, __shfl_xor_sync(reduce_all_lanes, x, 2));
}

static __device__ __forceinline__ float attention_sum_of_four(float x)
{
	x += __shfl_xor_sync(reduce_all_lanes, x, 1);
	return x + __shfl_xor_sync(reduce_all_lanes, x, 2);
}

/* A lane's part of rows l / 4 and l / 4 + 8: maximum score, in base 2, and partial sum. */
struct attention_rows {
	float max[2], sum[2];
};

/* Masks the keys after the row's query; first: the first key less the first row. */
static __device__ __forceinline__ void attention_hide_later_keys(
	float (&scores)[8][4], int first, int row)
{
	int column = 2 * (threadIdx.x & 3);

#pragma unroll
	for (int n = 0; n < 8; n++) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			if (first + 8 * n + column + (i & 1) > row + 8 * (i >> 1))
				scores[n][i] = -INFINITY;
		}
	}
}

/* scores become the values' weights */
static __device__ __forceinline__ void attention_softmax(
	struct attention_rows &r, float (&out)[8][4], float (&scores)[8][4], float scale)
{
#pragma unroll
	for (int half = 0; half < 2; half++) {
		float max = -INFINITY, sum = 0, keep;

#pragma unroll
		for (int n = 0; n < 8; n++)
			max = fmaxf(max, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
		max = fmaxf(r.max[half], attention_max_of_four(max) * scale);
		keep = element_exp2(r.max[half] - max);
#pragma unroll
		for (int n = 0; n < 8; n++) {
#pragma unroll
			for (int i = 2 * half; i < 2 * half + 2; i++) {
				scores[n][i] = element_exp2(fmaf(scores[n][i], scale, -max));
				sum += scores[n][i];
				out[n][i] *= keep;
			}
		}
		r.sum[half] = r.sum[half] * keep + sum;
		r.max[half] = max;
	}
}

/* at: the dropout's element of the lane's first row and column */
template <typename E>
static __device__ __forceinline__ void attention_drop_scores(
	float (&scores)[8][4], const struct attention<E> &a, int64_t at)
{
#pragma unroll
	for (int n = 0; n < 8; n++) {
		float mask[4];

		philox_mask_tile(mask, a.drop, at + 8 * n, at + 8 * a.T + 8 * n, a.T % 4 == 0);
#pragma unroll
		for (int i = 0; i < 4; i++)
			scores[n][i] *= mask[i];
	}
}

/*
 * Log-sum-exp (base 2) and delta of 64 queries, each by half the block; beyond the last query
 * log-sum-exp is inf, so the probability is 0.
 */
template <typename E>
static __device__ __forceinline__ void attention_fetch_queries(
	float *to, const struct attention<E> &a, int64_t head, int64_t first)
{
	int i = threadIdx.x % ATTENTION_QUERIES;
	bool there = first + i < a.T;
	int64_t at = head * a.T + first + i;

	if (threadIdx.x < ATTENTION_QUERIES)
		to[i] = there ? a.lse[at] * attention_log2_e : INFINITY;
	else
		to[ATTENTION_QUERIES + i] = there ? a.delta[at] : 0;
}

#endif

#endif
