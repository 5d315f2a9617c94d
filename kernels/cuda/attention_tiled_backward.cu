#include <math.h>

#include "kernels/cuda/attention_tiled.cuh"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/reduce.cuh"

/*
 * Two kernels, so each gradient element has one owner and one order of additions: one kernel owns
 * 64 keys and visits the queries from the diagonal on; the other owns 64 queries and visits the
 * keys up to it. Both recompute the scores. A free tile is prefetched while the block computes on
 * the other.
 */
enum { BLOCKS = 2, TILES = 5, QUERY_FLOATS = 2 * TILED_SIDE };
enum { BYTES = (TILES * TILED_FLOATS + QUERY_FLOATS) * (int)sizeof(float) };

#if MMA_THERE

/* Log-sum-exp (base 2) and delta; beyond the last query inf, so the probability is 0. */
static __device__ __forceinline__ float lse_of(
	const struct attention<float> &a, int64_t head, int64_t query)
{
	return query < a.T ? a.lse[head * a.T + query] * attention_log2_e : INFINITY;
}

static __device__ __forceinline__ float delta_of(
	const struct attention<float> &a, int64_t head, int64_t query)
{
	return query < a.T ? a.delta[head * a.T + query] : 0;
}

/*
 * The masks of keys 4m + half and 4m + half + 2 of one query (0, 1) and of the query 16 later (2,
 * 3); the warp's other half has the other keys. at: key 4m of the first query. whole: four keys are
 * one block of words, and each half draws one block for both.
 */
static __device__ __forceinline__ void mask_keys(
	float (&mask)[4], const struct philox_dropout &d, int64_t at, int64_t T, bool whole)
{
	int half = (int)(threadIdx.x >> 4 & 1);
	int64_t below = at + 16 * T;
	uint32_t own0, own1, got0, got1;
	uint4 words;

	if (!whole) {
		mask[0] = philox_mask(d, at + half);
		mask[1] = philox_mask(d, at + half + 2);
		mask[2] = philox_mask(d, below + half);
		mask[3] = philox_mask(d, below + half + 2);
		return;
	}
	words = philox_draw(d, (half ? below : at) / 4);
	own0 = half ? words.y : words.x;
	own1 = half ? words.w : words.z;
	got0 = __shfl_xor_sync(reduce_all_lanes, half ? words.x : words.y, 16);
	got1 = __shfl_xor_sync(reduce_all_lanes, half ? words.z : words.w, 16);
	mask[0] = philox_kept(d, half ? got0 : own0);
	mask[1] = philox_kept(d, half ? got1 : own1);
	mask[2] = philox_kept(d, half ? own0 : got0);
	mask[3] = philox_kept(d, half ? own1 : got1);
}

/*
 * Rows are keys, columns queries: scores become probabilities after dropout, dprob the scores'
 * gradients. queries: lse, then delta, of the tile's queries.
 */
static __device__ __forceinline__ void gradients_of_keys(
	float (&scores)[TILED_ROWS][TILED_COLUMNS], float (&dprob)[TILED_ROWS][TILED_COLUMNS],
	const struct attention<float> &a, const float *queries, bool diagonal, int64_t drops)
{
	const float scale = a.scale * attention_log2_e;

#pragma unroll
	for (int pair = 0; pair < TILED_COLUMNS; pair += 2) {
#pragma unroll
		for (int two = 0; two < TILED_ROWS; two += 2) {
			float mask[4] = {1, 1, 1, 1};

			if (a.drop.on)
				mask_keys(mask, a.drop, drops + 16 * pair * a.T + 2 * two, a.T,
					a.T % 4 == 0);
#pragma unroll
			for (int n = 0; n < 4; n++) {
				int i = two + (n & 1), j = pair + (n >> 1);
				int query = tiled_lane() + 16 * j;
				float prob = element_exp2(
					fmaf(scores[i][j], scale, -queries[query]));

				if (diagonal && tiled_row() + 2 * i > query)
					prob = 0;
				scores[i][j] = prob * mask[n];
				dprob[i][j] = prob *
					(dprob[i][j] * mask[n] - queries[TILED_SIDE + query]);
			}
		}
	}
}

/* Rows are queries, columns keys: dprob becomes the scores' gradients. */
static __device__ __forceinline__ void gradients_of_queries(
	const float (&scores)[TILED_ROWS][TILED_COLUMNS],
	float (&dprob)[TILED_ROWS][TILED_COLUMNS], const struct attention<float> &a,
	const float *queries, bool diagonal, int64_t drops)
{
	const float scale = a.scale * attention_log2_e;

#pragma unroll
	for (int i = 0; i < TILED_ROWS; i++) {
		int query = tiled_row() + 2 * i;
		int64_t at = drops + 2 * i * a.T;
		const int64_t each[4] = {at, at + 16, at + 32, at + 48};
		float mask[4] = {1, 1, 1, 1};

		if (a.drop.on)
			philox_mask_turned<1>(mask, a.drop, each, a.T % 4 == 0);
#pragma unroll
		for (int j = 0; j < TILED_COLUMNS; j++) {
			float prob = element_exp2(fmaf(scores[i][j], scale, -queries[query]));

			if (diagonal && tiled_lane() + 16 * j > query)
				prob = 0;
			dprob[i][j] =
				prob * (dprob[i][j] * mask[j] - queries[TILED_SIDE + query]);
		}
	}
}

/* Half the block writes each; the block's next barrier publishes both. */
static __device__ __forceinline__ void fetch_queries(
	float *to, const struct attention<float> &a, int64_t head, int64_t first)
{
	int64_t query = first + threadIdx.x % TILED_SIDE;

	to[threadIdx.x] = threadIdx.x < TILED_SIDE ? lse_of(a, head, query)
						   : delta_of(a, head, query);
}

#endif

/* dk and dv of 64 keys. */
static __global__ void __launch_bounds__(TILED_THREADS, BLOCKS)
	attention_backward_keys_by_tiles(const __grid_constant__ struct attention<float> a)
{
#if MMA_THERE
	extern __shared__ __align__(16) float tiles[];
	float *k_tile = tiles, *v_tile = k_tile + TILED_FLOATS, *q_tile = v_tile + TILED_FLOATS;
	float *dout_tile = q_tile + TILED_FLOATS, *pairs = dout_tile + TILED_FLOATS;
	float *queries = pairs + TILED_FLOATS;
	const struct tiled_place p = tiled_find(a, false);
	int64_t C = p.width, stride = 3 * C, there = tiled_there(a.T, p.first);
	const float *q = a.qkv + p.at3, *dout = a.dout + p.at;
	float *to = a.dqkv + p.at3 + p.first * stride;
	int count = (int)((a.T + TILED_SIDE - 1) / TILED_SIDE);
	int row16 = tiled_row() / TILED_WARP_ROWS * TILED_WARP_ROWS;
	float dk[TILED_ROWS][TILED_COLUMNS] = {}, dv[TILED_ROWS][TILED_COLUMNS] = {};

	tiled_fetch(k_tile, q + p.first * stride + C, stride, (int)there);
	tiled_fetch(v_tile, q + p.first * stride + 2 * C, stride, (int)there);
	tiled_fetch(dout_tile, dout + p.first * C, C, (int)there);
	mma_fetch_end();
	tiled_fetch(q_tile, q + p.first * stride, stride, (int)there);
	mma_fetch_end();
	for (int t = p.tile; t < count; t++) {
		int64_t here = (int64_t)t * TILED_SIDE, next = here + TILED_SIDE;
		int64_t drops = (p.head * a.T + here + tiled_lane()) * a.T + p.first + row16;
		float scores[TILED_ROWS][TILED_COLUMNS] = {};
		float dprob[TILED_ROWS][TILED_COLUMNS] = {};
		int from = t == p.tile ? row16 : 0; /* first query that sees the warp's keys */

		fetch_queries(queries, a, p.head, here);
		mma_fetch_wait<1>();
		__syncthreads();
		tiled_times_rows(dprob, v_tile, dout_tile);
		mma_fetch_wait<0>();
		__syncthreads();
		tiled_times_rows(scores, k_tile, q_tile);
		gradients_of_keys(scores, dprob, a, queries, t == p.tile, drops);
		tiled_put(pairs, scores);
		tiled_times_tile(dv, pairs, dout_tile, from, TILED_SIDE);
		__syncthreads();
		if (next < a.T)
			tiled_fetch(dout_tile, dout + next * C, C, tiled_there(a.T, next));
		mma_fetch_end();
		tiled_put(pairs, dprob);
		tiled_times_tile(dk, pairs, q_tile, from, TILED_SIDE);
		__syncthreads();
		if (next < a.T)
			tiled_fetch(q_tile, q + next * stride, stride, tiled_there(a.T, next));
		mma_fetch_end();
	}
	tiled_store(to + C, stride, dk, (int)there, a.scale);
	tiled_store(to + 2 * C, stride, dv, (int)there, 1);
#endif
}

/* dq of 64 queries. */
static __global__ void __launch_bounds__(TILED_THREADS, BLOCKS)
	attention_backward_queries_by_tiles(const __grid_constant__ struct attention<float> a)
{
#if MMA_THERE
	extern __shared__ __align__(16) float tiles[];
	float *q_tile = tiles, *dout_tile = q_tile + TILED_FLOATS;
	float *k_tile = dout_tile + TILED_FLOATS, *v_tile = k_tile + TILED_FLOATS;
	float *pairs = v_tile + TILED_FLOATS, *queries = pairs + TILED_FLOATS;
	const struct tiled_place p = tiled_find(a, true);
	int64_t C = p.width, stride = 3 * C, there = tiled_there(a.T, p.first);
	const float *q = a.qkv + p.at3, *k = q + C, *v = k + C;
	int64_t drops = (p.head * a.T + p.first + tiled_row()) * a.T + tiled_lane();
	int row16 = tiled_row() / TILED_WARP_ROWS * TILED_WARP_ROWS;
	float dq[TILED_ROWS][TILED_COLUMNS] = {};

	tiled_fetch(dout_tile, a.dout + p.at + p.first * C, C, (int)there);
	tiled_fetch(v_tile, v, stride, tiled_there(a.T, 0));
	mma_fetch_end();
	tiled_fetch(q_tile, q + p.first * stride, stride, (int)there);
	tiled_fetch(k_tile, k, stride, tiled_there(a.T, 0));
	mma_fetch_end();
	fetch_queries(queries, a, p.head, p.first);
	for (int t = 0; t <= p.tile; t++) {
		int64_t here = (int64_t)t * TILED_SIDE, next = here + TILED_SIDE;
		float scores[TILED_ROWS][TILED_COLUMNS] = {};
		float dprob[TILED_ROWS][TILED_COLUMNS] = {};
		bool last = t == p.tile;

		mma_fetch_wait<1>();
		__syncthreads();
		tiled_times_rows(dprob, dout_tile, v_tile);
		mma_fetch_wait<0>();
		__syncthreads();
		if (!last)
			tiled_fetch(v_tile, v + next * stride, stride, tiled_there(a.T, next));
		mma_fetch_end();
		tiled_times_rows(scores, q_tile, k_tile);
		gradients_of_queries(scores, dprob, a, queries, last, drops + here);
		tiled_put(pairs, dprob);
		tiled_times_tile(
			dq, pairs, k_tile, 0, last ? row16 + TILED_WARP_ROWS : TILED_SIDE);
		__syncthreads();
		if (!last)
			tiled_fetch(k_tile, k + next * stride, stride, tiled_there(a.T, next));
		mma_fetch_end();
	}
	tiled_store(a.dqkv + p.at3 + p.first * stride, stride, dq, (int)there, a.scale);
#endif
}

void attention_tiled_backward(struct k_stream *s, const struct attention<float> &a)
{
	tiled_launch(s, attention_backward_keys_by_tiles, a, BYTES);
	tiled_launch(s, attention_backward_queries_by_tiles, a, BYTES);
}
