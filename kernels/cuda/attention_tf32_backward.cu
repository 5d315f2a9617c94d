#include <math.h>

#include "kernels/cuda/attention_lanes.cuh"
#include "kernels/cuda/mma_tf32.cuh"

/*
 * Two kernels, so each gradient element has one owner and one order of additions: one kernel owns
 * 64 keys and visits the queries from the diagonal on; the other owns 64 queries and visits the
 * keys up to it. Both recompute the scores. Each of the four warps has 16 rows. A free tile is
 * prefetched while the block computes on the other.
 */
enum { BLOCKS = 3, FINE_BLOCKS = 2, TILES = 4, QUERY_FLOATS = 2 * TILED_SIDE };
enum { BYTES = (TILES * TILED_FLOATS + QUERY_FLOATS) * (int)sizeof(float) };

#if MMA_THERE

static __device__ __forceinline__ int lane_row()
{
	return tf32_warp_row() + (int)((threadIdx.x & 31) >> 2);
}

static __device__ __forceinline__ int lane_column()
{
	return 2 * (int)(threadIdx.x & 3);
}

/*
 * Rows are keys, columns queries: scores become probabilities after dropout, dprob the scores'
 * gradients. queries: lse, then delta, of the tile's queries. drops: the dropout element of the
 * lane's first query and key.
 */
template <bool DROP>
static __device__ __forceinline__ void gradients_of_keys(float (&scores)[8][4],
	float (&dprob)[8][4], const struct attention<float> &a, const float *queries, bool diagonal,
	int64_t drops)
{
	const float scale = a.scale * attention_log2_e;
	int row = lane_row(), column = lane_column();

#pragma unroll
	for (int n = 0; n < 8; n++) {
		int64_t at = drops + 8 * n * a.T;
		const int64_t each[4] = {at, at + a.T, at + 8, at + a.T + 8};
		float mask[4] = {1, 1, 1, 1};

		if (DROP)
			philox_mask_turned(mask, a.drop, each, a.T % 4 == 0);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			int query = 8 * n + column + (i & 1);
			float prob = element_exp2(fmaf(scores[n][i], scale, -queries[query]));

			if (diagonal && row + 8 * (i >> 1) > query)
				prob = 0;
			scores[n][i] = prob * mask[i];
			dprob[n][i] = prob * (dprob[n][i] * mask[i] - queries[TILED_SIDE + query]);
		}
	}
}

/* Rows are queries, columns keys: dprob becomes the scores' gradients. */
template <bool DROP>
static __device__ __forceinline__ void gradients_of_queries(const float (&scores)[8][4],
	float (&dprob)[8][4], const struct attention<float> &a, const float *queries, bool diagonal,
	int64_t drops)
{
	const float scale = a.scale * attention_log2_e;
	int row = lane_row(), column = lane_column();

#pragma unroll
	for (int n = 0; n < 8; n++) {
		int64_t at = drops + 8 * n;
		float mask[4] = {1, 1, 1, 1};

		if (DROP)
			philox_mask_tile(mask, a.drop, at, at + 8 * a.T, a.T % 4 == 0);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			int query = row + 8 * (i >> 1);
			float prob = element_exp2(fmaf(scores[n][i], scale, -queries[query]));

			if (diagonal && 8 * n + column + (i & 1) > query)
				prob = 0;
			dprob[n][i] = prob * (dprob[n][i] * mask[i] - queries[TILED_SIDE + query]);
		}
	}
}

#endif

/* dk and dv of 64 keys. Scores are transposed. */
template <bool FINE, bool DROP>
static __global__ void __launch_bounds__(TILED_THREADS, FINE ? FINE_BLOCKS : BLOCKS)
	attention_backward_keys_in_tf32(const __grid_constant__ struct attention<float> a)
{
#if MMA_THERE
	extern __shared__ __align__(16) float tiles[];
	float *k_tile = tiles, *v_tile = k_tile + TILED_FLOATS, *q_tile = v_tile + TILED_FLOATS;
	float *dout_tile = q_tile + TILED_FLOATS, *queries = dout_tile + TILED_FLOATS;
	const struct tiled_place p = tiled_find(a, false);
	int64_t C = p.width, stride = 3 * C;
	int there = tiled_there(a.T, p.first), count = (int)((a.T + TILED_SIDE - 1) / TILED_SIDE);
	const float *q = a.qkv + p.at3, *dout = a.dout + p.at;
	float *to = a.dqkv + p.at3 + p.first * stride;
	float dk[8][4] = {}, dv[8][4] = {};

	tiled_fetch(v_tile, q + p.first * stride + 2 * C, stride, there);
	tiled_fetch(dout_tile, dout + p.first * C, C, there);
	mma_fetch_end();
	tiled_fetch(k_tile, q + p.first * stride + C, stride, there);
	tiled_fetch(q_tile, q + p.first * stride, stride, there);
	mma_fetch_end();
	for (int t = p.tile; t < count; t++) {
		int64_t here = (int64_t)t * TILED_SIDE, next = here + TILED_SIDE;
		int64_t drops = (p.head * a.T + here + lane_column()) * a.T + p.first + lane_row();
		float scores[8][4] = {}, dprob[8][4] = {};

		attention_fetch_queries(queries, a, p.head, here);
		mma_fetch_wait<1>();
		if (t == p.tile)
			tf32_fetched<FINE>(v_tile);
		tf32_fetched<FINE>(dout_tile);
		__syncthreads();
		tf32_times_rows<FINE>(dprob, v_tile, dout_tile);
		mma_fetch_wait<0>();
		if (t == p.tile)
			tf32_fetched<FINE>(k_tile);
		tf32_fetched<FINE>(q_tile);
		__syncthreads();
		tf32_times_rows<FINE>(scores, k_tile, q_tile);
		gradients_of_keys<DROP>(scores, dprob, a, queries, t == p.tile, drops);
		tf32_times_tile<FINE>(dv, scores, dout_tile);
		__syncthreads();
		if (next < a.T)
			tiled_fetch(dout_tile, dout + next * C, C, tiled_there(a.T, next));
		mma_fetch_end();
		tf32_times_tile<FINE>(dk, dprob, q_tile);
		__syncthreads();
		if (next < a.T)
			tiled_fetch(q_tile, q + next * stride, stride, tiled_there(a.T, next));
		mma_fetch_end();
	}
	tf32_store(to + C, stride, dk, there, a.scale, a.scale);
	tf32_store(to + 2 * C, stride, dv, there, 1, 1);
#endif
}

/* dq of 64 queries. */
template <bool FINE, bool DROP>
static __global__ void __launch_bounds__(TILED_THREADS, FINE ? FINE_BLOCKS : BLOCKS)
	attention_backward_queries_in_tf32(const __grid_constant__ struct attention<float> a)
{
#if MMA_THERE
	extern __shared__ __align__(16) float tiles[];
	float *q_tile = tiles, *dout_tile = q_tile + TILED_FLOATS;
	float *k_tile = dout_tile + TILED_FLOATS, *v_tile = k_tile + TILED_FLOATS;
	float *queries = v_tile + TILED_FLOATS;
	const struct tiled_place p = tiled_find(a, true);
	int64_t C = p.width, stride = 3 * C;
	int there = tiled_there(a.T, p.first);
	const float *q = a.qkv + p.at3, *k = q + C, *v = k + C;
	int64_t drops = (p.head * a.T + p.first + lane_row()) * a.T + lane_column();
	float dq[8][4] = {};

	tiled_fetch(dout_tile, a.dout + p.at + p.first * C, C, there);
	tiled_fetch(v_tile, v, stride, tiled_there(a.T, 0));
	mma_fetch_end();
	tiled_fetch(q_tile, q + p.first * stride, stride, there);
	tiled_fetch(k_tile, k, stride, tiled_there(a.T, 0));
	mma_fetch_end();
	attention_fetch_queries(queries, a, p.head, p.first);
	for (int t = 0; t <= p.tile; t++) {
		int64_t here = (int64_t)t * TILED_SIDE, next = here + TILED_SIDE;
		float scores[8][4] = {}, dprob[8][4] = {};
		bool last = t == p.tile;

		mma_fetch_wait<1>();
		if (t == 0)
			tf32_fetched<FINE>(dout_tile);
		tf32_fetched<FINE>(v_tile);
		__syncthreads();
		tf32_times_rows<FINE>(dprob, dout_tile, v_tile);
		mma_fetch_wait<0>();
		if (t == 0)
			tf32_fetched<FINE>(q_tile);
		tf32_fetched<FINE>(k_tile);
		__syncthreads();
		if (!last)
			tiled_fetch(v_tile, v + next * stride, stride, tiled_there(a.T, next));
		mma_fetch_end();
		tf32_times_rows<FINE>(scores, q_tile, k_tile);
		gradients_of_queries<DROP>(scores, dprob, a, queries, last, drops + here);
		tf32_times_tile<FINE>(dq, dprob, k_tile);
		__syncthreads();
		if (!last)
			tiled_fetch(k_tile, k + next * stride, stride, tiled_there(a.T, next));
		mma_fetch_end();
	}
	tf32_store(a.dqkv + p.at3 + p.first * stride, stride, dq, there, a.scale, a.scale);
#endif
}

template <bool FINE, bool DROP>
static void launch(struct k_stream *s, const struct attention<float> &a)
{
	tiled_launch(s, attention_backward_keys_in_tf32<FINE, DROP>, a, BYTES);
	tiled_launch(s, attention_backward_queries_in_tf32<FINE, DROP>, a, BYTES);
}

void attention_tf32_backward(struct k_stream *s, const struct attention<float> &a)
{
	bool fine = s->ctx->dtype == K_FP32;

	if (fine && a.drop.on)
		launch<true, true>(s, a);
	else if (fine)
		launch<true, false>(s, a);
	else if (a.drop.on)
		launch<false, true>(s, a);
	else
		launch<false, false>(s, a);
}
