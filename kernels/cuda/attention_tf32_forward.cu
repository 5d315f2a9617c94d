#include <math.h>

#include "kernels/cuda/attention_lanes.cuh"
#include "kernels/cuda/mma_tf32.cuh"

/*
 * A block has 64 queries and processes 64 keys at a time with a running softmax; a warp has 16
 * queries, and scores stay in registers. The block prefetches the next keys while it uses the
 * values, and the next values while it uses the scores. Exponentials are of base 2.
 */
enum { BLOCKS = 4, FINE_BLOCKS = 3, TILES = 3, BYTES = TILES * TILED_FLOATS * (int)sizeof(float) };

#if MMA_THERE

static __device__ __forceinline__ void finish(const struct attention<float> &a,
	const struct tiled_place &p, const struct attention_rows &r, const float (&out)[8][4])
{
	int row = tf32_warp_row() + ((threadIdx.x & 31) >> 2), there = tiled_there(a.T, p.first);
	float inverse[2];

#pragma unroll
	for (int half = 0; half < 2; half++) {
		float sum = attention_sum_of_four(r.sum[half]);

		inverse[half] = 1 / sum;
		if ((threadIdx.x & 3) == 0 && row + 8 * half < there)
			a.lse_out[p.head * a.T + p.first + row + 8 * half] =
				(r.max[half] + log2f(sum)) * attention_ln_2;
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
	const float scale = a.scale * attention_log2_e;
	const struct tiled_place p = tiled_find(a, true);
	int64_t stride = 3 * p.width;
	const float *q = a.qkv + p.at3, *k = q + p.width, *v = k + p.width;
	int64_t query = p.first + tf32_warp_row() + ((threadIdx.x & 31) >> 2);
	int64_t drops = (p.head * a.T + query) * a.T + 2 * (threadIdx.x & 3);
	struct attention_rows r = {{-INFINITY, -INFINITY}, {0, 0}};
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
			attention_hide_later_keys(
				scores, 0, tf32_warp_row() + ((threadIdx.x & 31) >> 2));
		attention_softmax(r, out, scores, scale);
		if (DROP)
			attention_drop_scores(scores, a, drops + (int64_t)t * TILED_SIDE);
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

	tiled_launch(s, kernels[fine][drop], a, BYTES);
}
