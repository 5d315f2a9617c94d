#include <math.h>

#include "kernels/cuda/attention_lanes.cuh"
#include "kernels/cuda/attention_wgmma.cuh"
#include "kernels/cuda/element.cuh"

/*
 * As in attention_mma_forward.cu, with a group of four warps for 64 queries. Two groups per block
 * and two blocks per multiprocessor were faster than four blocks of one group, and than three
 * groups that each compute the next scores during the softmax. Query operands are in registers: 1%
 * less time than from memory.
 */
enum { GROUPS = 2, BLOCKS = 2, STAGES = 4, LAG = 2 };

#if WGMMA_THERE

/* A warp's 16 queries. */
static __device__ __forceinline__ void load_queries(uint32_t (&q)[4][4], uint32_t tile)
{
	int row = (int)(threadIdx.x % WGMMA_THREADS / REDUCE_WARP) * 16;

#pragma unroll
	for (int k = 0; k < 4; k++)
		mma_load_a(q[k], tile, row, k);
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

/* Scores become the values' weights; the caller multiplies the sums so far by keep. */
static __device__ __forceinline__ void soften(struct softmax &u, float (&s)[8][4], float scale)
{
#pragma unroll
	for (int half = 0; half < 2; half++) {
		float max = -INFINITY, sum = 0;

#pragma unroll
		for (int n = 0; n < 8; n++)
			max = fmaxf(max, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
		max = fmaxf(u.max[half], attention_max_of_four(max) * scale);
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

/* Usually no row of a warp has a new maximum: nothing to do. */
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

/* Log-sum-exp of rows query and query + 8; keep becomes the factor of the sums. */
template <typename E>
static __device__ __forceinline__ void finish(
	struct softmax &u, const struct attention<E> &a, int64_t head, int64_t query)
{
#pragma unroll
	for (int half = 0; half < 2; half++, query += 8) {
		float sum = attention_sum_of_four(u.sum[half]);

		u.keep[half] = 1 / sum;
		if ((threadIdx.x & 3) == 0 && query < a.T)
			a.lse_out[head * a.T + query] = (u.max[half] + log2f(sum)) * attention_ln_2;
	}
}

typedef attention_ring<GROUPS, STAGES, GROUPS, false> ring;

/* Position of a block and of its thread. */
struct place {
	int head, b, x, C; /* x: first column of q */
	int first, mine;   /* tiles of queries: the block's first, the group's */
	int all;           /* tiles of keys that the block needs */
	int group, row;    /* row in the group's tile */
};

template <typename E>
static __device__ __forceinline__ struct place place_of(
	const struct attention<E> &a, const struct attention_order &order)
{
	const struct attention_work work = attention_work_of(order);
	int NH = (int)a.NH, tiles = (int)((a.T + WGMMA_TILE - 1) / WGMMA_TILE);
	int group = (int)(threadIdx.x / WGMMA_THREADS), lane = threadIdx.x & 31;
	int row = (int)(threadIdx.x % WGMMA_THREADS / REDUCE_WARP) * 16 + (lane >> 2);
	int first = (order.blocks - 1 - work.rank) * GROUPS;
	int all = first + GROUPS < tiles ? first + GROUPS : tiles;

	return {work.head, work.head / NH, work.head % NH * WGMMA_TILE, (int)(a.NH * a.HS), first,
		first + group, all, group, row};
}

/* Loads a step's tiles. */
static __device__ __forceinline__ void fetch(
	const ring &r, const struct attention_maps &m, const struct place &p, int i)
{
	int stage = i % STAGES, y = i * WGMMA_TILE;
	uint32_t to = r.pair(stage);

	bulk_expect(r.full(stage), ring::pair_bytes);
	bulk_load(to, &m.qkv, p.C + p.x, y, p.b, r.full(stage));
	bulk_load(to + WGMMA_TILE_BYTES, &m.qkv, 2 * p.C + p.x, y, p.b, r.full(stage));
}

static __device__ __forceinline__ void begin(
	ring &r, const struct attention_maps &m, const struct place &p)
{
	attention_ring_init(r, GROUPS, STAGES);
	__syncthreads(); /* before thread 0 asks for tiles: 3% less time at B 2, T 512 */
	if (threadIdx.x == 0) {
		bulk_expect(r.owned(), GROUPS * WGMMA_TILE_BYTES);
		for (int g = 0; g < GROUPS; g++)
			bulk_load(
				r.own(g), &m.qkv, p.x, (p.first + g) * WGMMA_TILE, p.b, r.owned());
		for (int j = 0; j < STAGES && j < p.all; j++)
			fetch(r, m, p, j);
	}
	__syncwarp();
	bulk_wait(r.owned(), 0);
}

/* Begins step i and refills the place of the step LAG before. */
static __device__ __forceinline__ void turn(
	const ring &r, const struct attention_maps &m, const struct place &p, int i)
{
	if (i > 0)
		attention_let_go(r.empty((i - 1) % STAGES));
	if (threadIdx.x == 0 && i >= LAG && i - LAG + STAGES < p.all) {
		bulk_wait(r.empty((i - LAG) % STAGES), (i - LAG) / STAGES & 1);
		fetch(r, m, p, i - LAG + STAGES);
	}
	__syncwarp();
}

/* out += a tile's values times their probabilities; the product is still under way. */
template <typename E, bool DROP>
static __device__ __forceinline__ void step(float (&out)[8][4], struct softmax &u,
	uint32_t (&q)[4][4], const struct attention<E> &a, const struct attention_maps &m,
	const ring &r, const struct place &p, int i)
{
	int stage = i % STAGES;
	uint32_t fragments[4][4];
	float s[8][4];

	bulk_wait(r.full(stage), i / STAGES & 1);
	wgmma_fence();
	wgmma_times_rows(s, q, wgmma_tile(r.pair(stage)), E());
	wgmma_end();
	wgmma_wait<0>(s);
	wgmma_ended(out);
	turn(r, m, p, i);
	if (i == p.mine) {
		mask_diagonal(s);
		load_queries(q, r.own(p.group)); /* wgmma.cuh says why */
	}
	soften(u, s, a.scale * attention_log2_e);
	if constexpr (DROP)
		attention_drop_scores(s, a,
			((int64_t)p.head * a.T + p.mine * WGMMA_TILE + p.row) * a.T +
				i * WGMMA_TILE + 2 * (threadIdx.x & 3));
	rescale(out, u);
	attention_pack(fragments, s, E());
	wgmma_fence();
	wgmma_times_tile(out, fragments, wgmma_tile(r.pair(stage) + WGMMA_TILE_BYTES), E());
	wgmma_end();
}

#endif

template <typename E, bool DROP>
static __global__ void __launch_bounds__(GROUPS *WGMMA_THREADS, BLOCKS)
	attention_forward_by_groups(const __grid_constant__ struct attention<E> a,
		const __grid_constant__ struct attention_maps m, struct attention_order order)
{
#if WGMMA_THERE
	const struct place p = place_of(a, order);
	int count = p.mine + 1 < p.all ? p.mine + 1 : p.all, i = 0;
	struct softmax u = {{-INFINITY, -INFINITY}, {0, 0}, {1, 1}};
	uint32_t q[4][4];
	float out[8][4];
	ring r;

	begin(r, m, p);
	load_queries(q, r.own(p.group));
	attention_zero(out);
	do {
		step<E, DROP>(out, u, q, a, m, r, p, i);
	} while (++i < count);
	wgmma_wait<0>(out);
	finish(u, a, p.head, p.mine * WGMMA_TILE + p.row);
	attention_group_sync(p.group);
	attention_put(r.own(p.group), out, u.keep[0], u.keep[1], E());
	bulk_fence();
	attention_group_sync(p.group);
	if (threadIdx.x % WGMMA_THREADS == 0) {
		bulk_store(&m.to, p.x, p.mine * WGMMA_TILE, p.b, r.own(p.group));
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
	int64_t heads = a.B * a.NH;
	int64_t blocks = (a.T + GROUPS * WGMMA_TILE - 1) / (GROUPS * WGMMA_TILE);
	struct attention_order order = attention_order_of(s->ctx, heads, blocks, BLOCKS);

	if (context_check(s->ctx, "k_attention_forward",
		    cudaFuncSetAttribute(
			    kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)))
		kernel<<<(unsigned int)(heads * blocks), GROUPS * WGMMA_THREADS, (size_t)bytes,
			s->cuda>>>(a, maps, order);
}

template <typename E> void attention_wgmma_forward(struct k_stream *s, const struct attention<E> &a)
{
	int64_t C = a.NH * a.HS;
	struct attention_maps maps;

	if (!bulk_map_make(s->ctx, &maps.qkv, a.qkv, a.B, a.T, 3 * C, WGMMA_TILE) ||
		!bulk_map_make(s->ctx, &maps.to, a.out, a.B, a.T, C, WGMMA_TILE))
		return;
	if (a.drop.on)
		launch<E, true>(s, a, maps);
	else
		launch<E, false>(s, a, maps);
}

template void attention_wgmma_forward(struct k_stream *s, const struct attention<__nv_bfloat16> &a);
template void attention_wgmma_forward(struct k_stream *s, const struct attention<__half> &a);
