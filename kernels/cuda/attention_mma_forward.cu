#include <math.h>

#include "kernels/cuda/attention_lanes.cuh"

/*
 * Four warps, each with UNITS times 16 queries, process 64 keys at a time and prefetch the next
 * keys and values. Scores stay in registers. Exponentials are of base 2. One unit and four blocks
 * per multiprocessor were faster than two units and two blocks.
 */
enum { THREADS = 128, BLOCKS = 4, UNITS = 1, ROWS = 64 * UNITS };
enum { KEYS = 64, TILE_BYTES = KEYS * MMA_ROW_BYTES };

#if MMA_THERE

template <typename E>
static __device__ __forceinline__ void finish(struct attention_rows (&u)[UNITS],
	const float (&d)[UNITS][8][4], const struct attention<E> &a, int64_t head, E *out,
	int64_t first)
{
	int row = (int)(threadIdx.x / REDUCE_WARP) * 16 * UNITS + ((threadIdx.x & 31) >> 2);
	int there = (int)(a.T - first < ROWS ? a.T - first : ROWS);

#pragma unroll
	for (int i = 0; i < UNITS; i++) {
		float inverse[2];

#pragma unroll
		for (int half = 0; half < 2; half++) {
			float sum = attention_sum_of_four(u[i].sum[half]);
			int r = row + 16 * i + 8 * half;

			inverse[half] = 1 / sum;
			if ((threadIdx.x & 3) == 0 && r < there)
				a.lse_out[head * a.T + first + r] =
					(u[i].max[half] + log2f(sum)) * attention_ln_2;
		}
		mma_store(out, a.NH * a.HS, d[i], row + 16 * i, there, inverse[0], inverse[1]);
	}
}

/* Before the first key: all sums are 0. */
static __device__ __forceinline__ void begin(
	struct attention_rows (&u)[UNITS], float (&out)[UNITS][8][4])
{
#pragma unroll
	for (int i = 0; i < UNITS; i++) {
#pragma unroll
		for (int n = 0; n < 8; n++)
			out[i][n][0] = out[i][n][1] = out[i][n][2] = out[i][n][3] = 0;
		u[i].max[0] = u[i].max[1] = -INFINITY;
		u[i].sum[0] = u[i].sum[1] = 0;
	}
}

static __device__ __forceinline__ void load_fragments(
	uint32_t (&a)[UNITS][4][4], uint32_t tile, int warp)
{
#pragma unroll
	for (int i = 0; i < UNITS; i++) {
#pragma unroll
		for (int k = 0; k < 4; k++)
			mma_load_a(a[i][k], tile, warp * 16 * UNITS + 16 * i, k);
	}
}

#endif

template <typename E>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
	attention_forward_by_units(const __grid_constant__ struct attention<E> a)
{
#if MMA_THERE
	extern __shared__ __align__(128) char memory[];
	const float scale = a.scale * attention_log2_e;
	int64_t head = attention_head(), b = head / a.NH, h = head % a.NH, C = a.NH * a.HS;
	/* blocks with most keys go first */
	int64_t first = (int64_t)(gridDim.x - 1 - blockIdx.x) * ROWS;
	int warp = threadIdx.x / REDUCE_WARP, lane_row = (threadIdx.x & 31) >> 2;
	int64_t row = first + warp * 16 * UNITS;
	const E *q = a.qkv + b * a.T * 3 * C + h * a.HS, *k = q + C, *v = k + C;
	int64_t stride = 3 * C * (int64_t)sizeof(E);
	uint32_t q_tile = (uint32_t)__cvta_generic_to_shared(memory);
	uint32_t kv_tile = q_tile + UNITS * TILE_BYTES;
	int64_t last_query = first + ROWS < a.T ? first + ROWS - 1 : a.T - 1;
	int tiles = (int)(last_query / KEYS) + 1;
	uint32_t q_fragments[UNITS][4][4];
	struct attention_rows u[UNITS];
	float out[UNITS][8][4];

	if (head >= a.B * a.NH)
		return;
	mma_fetch<ROWS, THREADS>(q_tile, q + first * 3 * C, stride, (int)(last_query + 1 - first));
	mma_fetch<KEYS, THREADS>(kv_tile, k, stride, (int)(a.T < KEYS ? a.T : KEYS));
	mma_fetch<KEYS, THREADS>(kv_tile + TILE_BYTES, v, stride, (int)(a.T < KEYS ? a.T : KEYS));
	mma_fetch_end();
	begin(u, out);
	for (int t = 0; t < tiles; t++) {
		uint32_t k_now = kv_tile + (uint32_t)(t & 1) * 2 * TILE_BYTES;
		int64_t next = (int64_t)(t + 1) * KEYS, here = (int64_t)t * KEYS;

		if (t + 1 < tiles) {
			uint32_t to = kv_tile + (uint32_t)(~t & 1) * 2 * TILE_BYTES;
			int there = (int)(a.T - next < KEYS ? a.T - next : KEYS);

			mma_fetch<KEYS, THREADS>(to, k + next * 3 * C, stride, there);
			mma_fetch<KEYS, THREADS>(to + TILE_BYTES, v + next * 3 * C, stride, there);
			mma_fetch_end();
			mma_fetch_wait<1>();
		} else {
			mma_fetch_wait<0>();
		}
		__syncthreads();
		if (t == 0)
			load_fragments(q_fragments, q_tile, warp);
		if (here <= row) { /* else all of these keys follow all of the warp's queries */
			float scores[UNITS][8][4] = {};

			mma_times_rows(scores, q_fragments, k_now, E());
#pragma unroll
			for (int i = 0; i < UNITS; i++) {
				int before = (int)(here - row) - 16 * i;
				int64_t query = row + 16 * i + lane_row;

				if (before + KEYS - 1 > 0)
					attention_hide_later_keys(scores[i], before, lane_row);
				attention_softmax(u[i], out[i], scores[i], scale);
				if (a.drop.on)
					attention_drop_scores(scores[i], a,
						(head * a.T + query) * a.T + here +
							2 * (threadIdx.x & 3));
			}
			mma_times_tile(out, scores, k_now + TILE_BYTES, E());
		}
		__syncthreads();
	}
	finish(u, out, a, head, a.out + (b * a.T + first) * C + h * a.HS, first);
#endif
}

template <typename E> void attention_mma_forward(struct k_stream *s, const struct attention<E> &a)
{
	int bytes = (UNITS + 4) * TILE_BYTES;
	dim3 grid = attention_grid((a.T + ROWS - 1) / ROWS, a.B * a.NH);

	attention_forward_by_units<<<grid, THREADS, (size_t)bytes, s->cuda>>>(a);
}

template void attention_mma_forward(struct k_stream *s, const struct attention<__nv_bfloat16> &a);
template void attention_mma_forward(struct k_stream *s, const struct attention<__half> &a);
