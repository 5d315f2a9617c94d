#include <math.h>

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/mma_tf32.cuh"
#include "kernels/cuda/reduce.cuh"

/*
 * A block has 64 queries and goes over the keys 64 at a time, with the softmax of those so far; a
 * warp has 16 queries, and scores stay in registers. The next keys are fetched while the values are
 * worked on, and the next values with the scores. Exponentials are of base 2.
 */
enum { BLOCKS = 4, FINE_BLOCKS = 3, TILES = 3, BYTES = TILES * TILED_FLOATS * (int)sizeof(float) };

#if MMA_THERE

static __device__ __forceinline__ float max_of_four(float x)
{
	x = fmaxf(x, __shfl_xor_sync(reduce_all_lanes, x, 1));
	return fmaxf(x, __shfl_xor_sync(reduce_all_lanes, x, 2));
}

static __device__ __forceinline__ float sum_of_four(float x)
{
	x += __shfl_xor_sync(reduce_all_lanes, x, 1);
	return x + __shfl_xor_sync(reduce_all_lanes, x, 2);
}

/* A lane's part of rows l / 4 and l / 4 + 8: the highest score, in base 2, and its own sum. */
struct rows {
	float max[2], sum[2];
};

/* diagonal: keys are to come before the row's query */
static __device__ __forceinline__ void hide_later_keys(float (&scores)[8][4])
{
	int row = tf32_warp_row() + ((threadIdx.x & 31) >> 2), column = 2 * (threadIdx.x & 3);

#pragma unroll
	for (int n = 0; n < 8; n++) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			if (8 * n + column + (i & 1) > row + 8 * (i >> 1))
				scores[n][i] = -INFINITY;
		}
	}
}

/* scores become what multiplies the values */
static __device__ __forceinline__ void softmax(
	struct rows &r, float (&out)[8][4], float (&scores)[8][4], float scale)
{
#pragma unroll
	for (int half = 0; half < 2; half++) {
		float max = -INFINITY, sum = 0, keep;

#pragma unroll
		for (int n = 0; n < 8; n++)
			max = fmaxf(max, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
		max = fmaxf(r.max[half], max_of_four(max) * scale);
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
static __device__ __forceinline__ void drop_scores(
	float (&scores)[8][4], const struct attention<float> &a, int64_t at)
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

static __device__ __forceinline__ void finish(const struct attention<float> &a,
	const struct tiled_place &p, const struct rows &r, const float (&out)[8][4])
{
	const float ln_2 = 0.6931471805599453f;
	int row = tf32_warp_row() + ((threadIdx.x & 31) >> 2), there = tiled_there(a.T, p.first);
	float inverse[2];

#pragma unroll
	for (int half = 0; half < 2; half++) {
		float sum = sum_of_four(r.sum[half]);

		inverse[half] = 1 / sum;
		if ((threadIdx.x & 3) == 0 && row + 8 * half < there)
			a.lse_out[p.head * a.T + p.first + row + 8 * half] =
				(r.max[half] + log2f(sum)) * ln_2;
	}
	tf32_store(a.out + p.at + p.first * p.width, p.width, out, there, inverse[0], inverse[1]);
}

#endif

template <bool FINE, bool DROP>
static __global__ void __launch_bounds__(TILED_THREADS, FINE ? FINE_BLOCKS : BLOCKS)
	attention_forward_in_tf32(const __grid_constant__ struct attention<float> a)
{
#if MMA_THERE
	extern __shared__ __align__(16) float tiles[];
	float *q_tile = tiles, *k_tile = q_tile + TILED_FLOATS, *v_tile = k_tile + TILED_FLOATS;
	const float scale = a.scale * 1.4426950408889634f;
	const struct tiled_place p = tiled_find(a, true);
	int64_t stride = 3 * p.width;
	const float *q = a.qkv + p.at3, *k = q + p.width, *v = k + p.width;
	int64_t query = p.first + tf32_warp_row() + ((threadIdx.x & 31) >> 2);
	int64_t drops = (p.head * a.T + query) * a.T + 2 * (threadIdx.x & 3);
	struct rows r = {{-INFINITY, -INFINITY}, {0, 0}};
	float out[8][4] = {};

	tiled_fetch(q_tile, q + p.first * stride, stride, tiled_there(a.T, p.first));
	tiled_fetch(k_tile, k, stride, tiled_there(a.T, 0));
	mma_fetch_end();
	tiled_fetch(v_tile, v, stride, tiled_there(a.T, 0));
	mma_fetch_end();
	for (int t = 0; t <= p.tile; t++) {
		int64_t next = (int64_t)(t + 1) * TILED_SIDE;
		float scores[8][4] = {};
		bool last = t == p.tile;

		mma_fetch_wait<1>();
		if (t == 0)
			tf32_fetched<FINE>(q_tile);
		tf32_fetched<FINE>(k_tile);
		__syncthreads();
		tf32_times_rows<FINE>(scores, q_tile, k_tile);
		if (last)
			hide_later_keys(scores);
		softmax(r, out, scores, scale);
		if (DROP)
			drop_scores(scores, a, drops + (int64_t)t * TILED_SIDE);
		mma_fetch_wait<0>();
		tf32_fetched<FINE>(v_tile);
		__syncthreads();
		if (!last)
			tiled_fetch(k_tile, k + next * stride, stride, tiled_there(a.T, next));
		mma_fetch_end();
		tf32_times_tile<FINE>(out, scores, v_tile);
		__syncthreads();
		if (!last)
			tiled_fetch(v_tile, v + next * stride, stride, tiled_there(a.T, next));
		mma_fetch_end();
	}
	finish(a, p, r, out);
#endif
}

void attention_tf32_forward(struct k_stream *s, const struct attention<float> &a)
{
	bool fine = s->ctx->dtype == K_FP32, drop = a.drop.on;
	void (*kernels[2][2])(const struct attention<float>) = {
		{attention_forward_in_tf32<false, false>, attention_forward_in_tf32<false, true>},
		{attention_forward_in_tf32<true, false>, attention_forward_in_tf32<true, true>},
	};

	context_check(s->ctx, "attention",
		cudaFuncSetAttribute(
			kernels[fine][drop], cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
	kernels[fine][drop]<<<tiled_blocks(a), TILED_THREADS, BYTES, s->cuda>>>(a);
}
