/*
 * gemm_wgmma_ring.cuh: the shared memory of gemm_wgmma's kernels, and the thread that loads
 * operands.
 *
 * In terms of rows of memory: d (n,m) is b (n,k) times a, stored as (m,k) or, TURNED, as (k,m).
 *
 * Each multiprocessor has one persistent block. One of its threads has the copy engine load the
 * operands, 64 of k at a time, into a ring of STAGES places. Two groups of four warps alternate on
 * results of 64 UP x 64 ACROSS: while the matrix units work for one group, the other computes GELU
 * of its result and stores it. The blocks of a cluster, CLUSTER_UP x CLUSTER_ACROSS, make
 * neighbouring results: each loads a part of a shared row or column for all of them, which reduces
 * reads from the L2 cache.
 *
 * The bandwidth from L2 to a multiprocessor limits the size of a result: 64 of k are 40 KB for 768
 * cycles of the matrix units.
 */
#ifndef GPT2D_KERNELS_CUDA_GEMM_WGMMA_RING_CUH
#define GPT2D_KERNELS_CUDA_GEMM_WGMMA_RING_CUH

#include "kernels/cuda/bulk.cuh"
#include "kernels/cuda/gelu_approx.cuh"

enum { UP = 2, ACROSS = 3, CLUSTER_UP = 2, CLUSTER_ACROSS = 1, STAGES = 4 };

enum {
	GROUPS = 2,
	PRODUCER_WARPS = 4,
	THREADS = GROUPS * WGMMA_THREADS + 32 * PRODUCER_WARPS,
	CLUSTER = CLUSTER_UP * CLUSTER_ACROSS,
	GROUP_WARPS = WGMMA_THREADS / 32,
	ROW_BYTES = WGMMA_TILE_BYTES / WGMMA_TILE,
	STAGE_BYTES = (UP + ACROSS) * WGMMA_TILE_BYTES,
	TILES = UP * ACROSS, /* per group's result */
	/*
	 * Each group's own ring, for stores and for loads other than operands. Each warp handles
	 * WARP_ROWS of a tile by itself.
	 */
	OWN_TILES = 4,
	WARP_ROWS = WGMMA_TILE / GROUP_WARPS,
	WARP_BYTES = WGMMA_TILE_BYTES / GROUP_WARPS,
	OWN_AT = STAGES * STAGE_BYTES,
	BARRIERS_AT = OWN_AT + GROUPS * OWN_TILES * WGMMA_TILE_BYTES,
	BARRIERS = 2 * STAGES + GROUPS + GROUPS * OWN_TILES * GROUP_WARPS,
	NUMBERS_AT = BARRIERS_AT + 8 * BARRIERS, /* GELU's two; gelu_numbers */
	/* 1024 more: the tiles' address is rounded up to a multiple of it */
	SHARED_BYTES = NUMBERS_AT + 8 + 1024
};

static_assert(TILES >= OWN_TILES, "a group's ring is filled by one result");

/* A block's part of the rows and of the columns; PART_K: instead, of each tile's k. */
enum {
	PART_ROWS = UP * WGMMA_TILE / CLUSTER_ACROSS,
	PART_COLUMNS = ACROSS * WGMMA_TILE / CLUSTER_UP,
	PART_K = WGMMA_TILE / CLUSTER_UP
};

struct product_maps {
	CUtensorMap rows, columns; /* operands: b, a */
	CUtensorMap d, aux;
	const void *bias;
	float *sums; /* NULL, or (parts,m): column sums by each warp for each group's result */
	int m, k, parts;
	int across, all; /* clusters per row, and in all */
};

#if WGMMA_THERE

/* ---- places in shared memory ---- */

struct ring {
	uint32_t base;

	__device__ uint32_t stage(int i) const
	{
		return base + (uint32_t)(i * STAGE_BYTES);
	}
	/* tile i of a warp's group */
	__device__ uint32_t own(int warp, int i) const
	{
		return base + OWN_AT +
			(uint32_t)(warp / GROUP_WARPS * OWN_TILES + i) * WGMMA_TILE_BYTES;
	}
	__device__ uint32_t barrier(int i) const
	{
		return base + (uint32_t)(BARRIERS_AT + 8 * i);
	}
	__device__ uint32_t full(int stage) const
	{
		return barrier(stage);
	}
	__device__ uint32_t empty(int stage) const
	{
		return barrier(STAGES + stage);
	}
	/* the group may use the matrix units */
	__device__ uint32_t turn(int group) const
	{
		return barrier(2 * STAGES + group);
	}
	/* the warp's rows of tile i have arrived */
	__device__ uint32_t there(int warp, int i) const
	{
		return barrier(2 * STAGES + GROUPS + warp * OWN_TILES + i);
	}
};

static __device__ __forceinline__ struct ring ring_init()
{
	extern __shared__ char product_memory[];
	struct ring r = {((uint32_t)__cvta_generic_to_shared(product_memory) + 1023) & ~1023u};

	if (threadIdx.x == 0) {
		for (int i = 0; i < STAGES; i++) {
			bulk_barrier_init(r.full(i), 1);
			bulk_barrier_init(
				r.empty(i), GROUP_WARPS * (CLUSTER_UP + CLUSTER_ACROSS - 1));
		}
		for (int group = 0; group < GROUPS; group++)
			bulk_barrier_init(r.turn(group), GROUP_WARPS);
		for (int i = 0; i < GROUPS * GROUP_WARPS * OWN_TILES; i++)
			bulk_barrier_init(r.there(0, i), 1);
		asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(r.base + NUMBERS_AT),
			     "f"(gelu_approx_linear), "f"(gelu_approx_cubic)
			     : "memory");
		bulk_fence();
	}
	bulk_cluster_sync();
	return r;
}

/* The ring's current place. */
struct position {
	int stage, round;

	__device__ __forceinline__ void go(int steps)
	{
		stage += steps;
		round += stage / STAGES;
		stage %= STAGES;
	}
	__device__ __forceinline__ void next()
	{
		if (++stage == STAGES) {
			stage = 0;
			round++;
		}
	}
};

/* ---- which result ---- */

struct place {
	int up, across; /* of the block in its cluster */
};

static __device__ __forceinline__ struct place place_of_block()
{
	int rank = (int)(blockIdx.x % CLUSTER);

	return {rank / CLUSTER_ACROSS, rank % CLUSTER_ACROSS};
}

/* First row and column of result t of the block's cluster. */
struct corner {
	int row, column;
};

static __device__ __forceinline__ struct corner corner_of(
	const struct product_maps &p, struct place at, int t)
{
	int row = t / p.across * CLUSTER_UP + at.up;
	int column = t % p.across * CLUSTER_ACROSS + at.across;

	return {row * UP * WGMMA_TILE, column * ACROSS * WGMMA_TILE};
}

/* The same if there is such a result; else rows are below 0. */
static __device__ __forceinline__ struct corner corner_or_none(
	const struct product_maps &p, struct place at, int t)
{
	if (t < p.all)
		return corner_of(p, at, t);
	return {-1, -1};
}

/* ---- the thread that loads operands ---- */

template <bool TURNED>
static __device__ __forceinline__ void bring_step(const struct product_maps &p,
	const struct ring &r, struct place at, struct corner c, int k, int stage)
{
	const uint16_t row = (1 << CLUSTER_ACROSS) - 1;
	uint16_t in_row = (uint16_t)(row << at.up * CLUSTER_ACROSS), in_column = 0;
	uint32_t to = r.stage(stage), full = r.full(stage);
	int part = at.across * PART_ROWS;

	for (int i = 0; i < CLUSTER_UP; i++)
		in_column |= (uint16_t)(1 << (i * CLUSTER_ACROSS + at.across));
	bulk_expect(full, STAGE_BYTES);
	bulk_load_to(to + (uint32_t)(part * ROW_BYTES), &p.rows, k, c.row + part, 0, full, in_row);
	to += UP * WGMMA_TILE_BYTES;
	if (!TURNED) {
		part = at.up * PART_COLUMNS;
		bulk_load_to(to + (uint32_t)(part * ROW_BYTES), &p.columns, k, c.column + part, 0,
			full, in_column);
		return;
	}
	part = at.up * PART_K;
	for (int i = 0; i < ACROSS; i++)
		bulk_load_to(to + (uint32_t)(i * WGMMA_TILE_BYTES + part * ROW_BYTES), &p.columns,
			c.column + i * WGMMA_TILE, k + part, 0, full, in_column);
}

template <bool TURNED>
static __device__ __forceinline__ void bring(const struct product_maps &p, const struct ring &r)
{
	struct place at = place_of_block();
	struct position step = {0, 0};

	bulk_prefetch(&p.rows);
	bulk_prefetch(&p.columns);
	bulk_prefetch(&p.d);
	bulk_prefetch(&p.aux);
	for (int t = (int)blockIdx.x / CLUSTER; t < p.all; t += (int)gridDim.x / CLUSTER) {
		struct corner c = corner_of(p, at, t);

		for (int k = 0; k < p.k; k += WGMMA_TILE) {
			bulk_wait(r.empty(step.stage), (step.round & 1) ^ 1);
			bring_step<TURNED>(p, r, at, c, k, step.stage);
			step.next();
		}
	}
}

/* ---- warps that use them ---- */

/* The warp releases a place in each block that loads a part of it. */
static __device__ __forceinline__ void let_go(struct place at, uint32_t empty)
{
	int lane = threadIdx.x & 31;
	int across = lane < CLUSTER_ACROSS ? lane : at.across;
	int up = lane < CLUSTER_ACROSS ? at.up : lane - CLUSTER_ACROSS;

	if (lane >= CLUSTER_ACROSS && up >= at.up)
		up++;
	__syncwarp();
	if (lane < CLUSTER_ACROSS + CLUSTER_UP - 1)
		bulk_arrive_at(empty, up * CLUSTER_ACROSS + across);
}

#endif

#endif
