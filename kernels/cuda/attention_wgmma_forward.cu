#include <math.h>

#include "kernels/cuda/attention_wgmma.cuh"
#include "kernels/cuda/element.cuh"

/*
 * As in attention_mma_forward.cu, a group of four warps for 64 queries. Two groups to a block and
 * two blocks to a multiprocessor were faster than four blocks of one group, and than three groups
 * of which each makes the next scores while these become probabilities.
 */
enum { GROUPS = 2, BLOCKS = 2, STAGES = 4, LAG = 2 };

#if WGMMA_THERE

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

/* Of a lane's rows l / 4 and l / 4 + 8. */
struct softmax {
	float max[2], sum[2], keep[2];
};

static __device__ __forceinline__ void mask_diagonal(float (&s)[8][4])
{
	int lane = threadIdx.x & 31, column = 2 * (lane & 3);
	int row = (int)(threadIdx.x % WGMMA_THREADS / REDUCE_WARP) * 16 + (lane >> 2);

#pragma unroll
	for (int n = 0; n < 8; n++) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			if (8 * n + column + (i & 1) > row + 8 * (i >> 1))
				s[n][i] = -INFINITY;
		}
	}
}

/* Scores become what multiplies the values; what is summed by now is to be multiplied by keep. */
static __device__ __forceinline__ void soften(struct softmax &u, float (&s)[8][4], float scale)
{
#pragma unroll
	for (int half = 0; half < 2; half++) {
		float max = -INFINITY, sum = 0;

#pragma unroll
		for (int n = 0; n < 8; n++)
			max = fmaxf(max, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
		max = fmaxf(u.max[half], max_of_four(max) * scale);
		u.keep[half] = element_exp2(u.max[half] - max);
#pragma unroll
		for (int n = 0; n < 8; n++) {
#pragma unroll
			for (int i = 2 * half; i < 2 * half + 2; i++) {
				s[n][i] = element_exp2(fmaf(s[n][i], scale, -max));
				sum += s[n][i];
			}
		}
		u.sum[half] = u.sum[half] * u.keep[half] + sum;
		u.max[half] = max;
	}
}

/* Mostly no row of a warp has found a new maximum, and nothing is to be done. */
static __device__ __forceinline__ void rescale(float (&out)[8][4], const struct softmax &u)
{
	if (!__any_sync(reduce_all_lanes, u.keep[0] != 1 || u.keep[1] != 1))
		return;
#pragma unroll
	for (int n = 0; n < 8; n++) {
#pragma unroll
		for (int i = 0; i < 4; i++)
			out[n][i] *= u.keep[i >> 1];
	}
}

template <typename E>
static __device__ __forceinline__ void drop_scores(
	float (&s)[8][4], const struct attention<E> &a, int64_t at)
{
#pragma unroll
	for (int n = 0; n < 8; n++) {
		float mask[4];

		philox_mask_tile(mask, a.drop, at + 8 * n, at + 8 * a.T + 8 * n, a.T % 4 == 0);
#pragma unroll
		for (int i = 0; i < 4; i++)
			s[n][i] *= mask[i];
	}
}

/* Log-sum-exp of rows query and query + 8; keep becomes what the sums are to be multiplied by. */
template <typename E>
static __device__ __forceinline__ void finish(
	struct softmax &u, const struct attention<E> &a, int64_t head, int64_t query)
{
	const float ln_2 = 0.6931471805599453f;

#pragma unroll
	for (int half = 0; half < 2; half++, query += 8) {
		float sum = sum_of_four(u.sum[half]);

		u.keep[half] = 1 / sum;
		if ((threadIdx.x & 3) == 0 && query < a.T)
			a.lse_out[head * a.T + query] = (u.max[half] + log2f(sum)) * ln_2;
	}
}

#endif

template <typename E, bool DROP>
static __global__ void __launch_bounds__(GROUPS *WGMMA_THREADS, BLOCKS)
	attention_forward_by_groups(const __grid_constant__ struct attention<E> a,
		const __grid_constant__ struct attention_maps m)
{
#if WGMMA_THERE
	typedef attention_ring<GROUPS, STAGES, GROUPS, false> ring;
	const float scale = a.scale * 1.4426950408889634f;
	int head = (int)blockIdx.y, x = head % (int)a.NH * WGMMA_TILE, b = head / (int)a.NH;
	int C = (int)(a.NH * a.HS), group = (int)(threadIdx.x / WGMMA_THREADS);
	int lane = threadIdx.x & 31;
	int row = (int)(threadIdx.x % WGMMA_THREADS / REDUCE_WARP) * 16 + (lane >> 2);
	/* those with most keys go first */
	int first = (int)(gridDim.x - 1 - blockIdx.x) * GROUPS, mine = first + group;
	int tiles = (int)((a.T + WGMMA_TILE - 1) / WGMMA_TILE);
	int all = first + GROUPS < tiles ? first + GROUPS : tiles;
	int count = mine + 1 < all ? mine + 1 : all, i = 0;
	struct softmax u = {{-INFINITY, -INFINITY}, {0, 0}, {1, 1}};
	float out[8][4];
	ring r;

	attention_ring_init(r, GROUPS, STAGES);
	auto fetch = [&](int i) {
		int stage = i % STAGES, y = i * WGMMA_TILE;

		bulk_expect(r.full(stage), ring::pair_bytes);
		bulk_load(r.pair(stage), &m.qkv, C + x, y, b, r.full(stage));
		bulk_load(r.pair(stage) + WGMMA_TILE_BYTES, &m.qkv, 2 * C + x, y, b, r.full(stage));
	};
	if (threadIdx.x == 0) {
		bulk_expect(r.owned(), GROUPS * WGMMA_TILE_BYTES);
		for (int g = 0; g < GROUPS; g++)
			bulk_load(r.own(g), &m.qkv, x, (first + g) * WGMMA_TILE, b, r.owned());
		for (int j = 0; j < STAGES && j < all; j++)
			fetch(j);
	}
	__syncwarp();
	bulk_wait(r.owned(), 0);
	attention_zero(out);
	do {
		int stage = i % STAGES;
		uint32_t fragments[4][4];
		float s[8][4];

		bulk_wait(r.full(stage), i / STAGES & 1);
		wgmma_fence();
		wgmma_times_rows(s, wgmma_tile(r.own(group)), wgmma_tile(r.pair(stage)), E());
		wgmma_end();
		wgmma_wait<0>(s);
		wgmma_ended(out);
		if (i > 0)
			attention_let_go(r.empty((i - 1) % STAGES));
		if (threadIdx.x == 0 && i >= LAG && i - LAG + STAGES < all) {
			bulk_wait(r.empty((i - LAG) % STAGES), (i - LAG) / STAGES & 1);
			fetch(i - LAG + STAGES);
		}
		__syncwarp();
		if (i == mine)
			mask_diagonal(s);
		soften(u, s, scale);
		if constexpr (DROP)
			drop_scores(s, a,
				((int64_t)head * a.T + mine * WGMMA_TILE + row) * a.T +
					i * WGMMA_TILE + 2 * (lane & 3));
		rescale(out, u);
		attention_pack(fragments, s, E());
		wgmma_fence();
		wgmma_times_tile(out, fragments, wgmma_tile(r.pair(stage) + WGMMA_TILE_BYTES), E());
		wgmma_end();
	} while (++i < count);
	wgmma_wait<0>(out);
	finish(u, a, head, mine * WGMMA_TILE + row);
	attention_group_sync(group);
	attention_put(r.own(group), out, u.keep[0], u.keep[1], E());
	bulk_fence();
	attention_group_sync(group);
	if (threadIdx.x % WGMMA_THREADS == 0) {
		bulk_store(&m.to, x, mine * WGMMA_TILE, b, r.own(group));
		bulk_store_wait();
	}
#endif
}

template <typename E, bool DROP>
static void launch(
	struct k_stream *s, const struct attention<E> &a, const struct attention_maps &maps)
{
	const int bytes = attention_ring<GROUPS, STAGES, GROUPS, false>::bytes;
	auto *kernel = attention_forward_by_groups<E, DROP>;
	int64_t blocks = (a.T + GROUPS * WGMMA_TILE - 1) / (GROUPS * WGMMA_TILE);
	dim3 grid((unsigned int)blocks, (unsigned int)(a.B * a.NH));

	if (context_check(s->ctx, "k_attention_forward",
		    cudaFuncSetAttribute(
			    kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)))
		kernel<<<grid, GROUPS * WGMMA_THREADS, (size_t)bytes, s->cuda>>>(a, maps);
}

template <typename E> void attention_wgmma_forward(struct k_stream *s, const struct attention<E> &a)
{
	int64_t C = a.NH * a.HS;
	struct attention_maps maps;

	if (!attention_make_map(s->ctx, &maps.qkv, a.qkv, a.B, a.T, 3 * C) ||
		!attention_make_map(s->ctx, &maps.to, a.out, a.B, a.T, C))
		return;
	if (a.drop.on)
		launch<E, true>(s, a, maps);
	else
		launch<E, false>(s, a, maps);
}

template void attention_wgmma_forward(struct k_stream *s, const struct attention<__nv_bfloat16> &a);
template void attention_wgmma_forward(struct k_stream *s, const struct attention<__half> &a);
