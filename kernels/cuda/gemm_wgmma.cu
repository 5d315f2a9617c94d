#include "kernels/cuda/gemm_wgmma.cuh"

#include "kernels/cuda/bulk.cuh"
#include "kernels/cuda/bulk_map.cuh"
#include "kernels/cuda/gelu_approx.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/wgmma_wide.cuh"

/*
 * In terms of rows of memory: d (n,m) is b (n,k) times a, which lies as (m,k) or, TURNED, as (k,m).
 *
 * A block stays on each multiprocessor. One thread of it asks the copy engine for the operands, 64
 * of k at a time, in a ring of STAGES places; two groups of four warps make a result of
 * 64 UP x 64 ACROSS each, in turn: while the matrix units work for one of them, the other has what
 * they made for it go through GELU and to memory. Blocks of a cluster, CLUSTER_UP x CLUSTER_ACROSS,
 * make neighbouring results: each brings a part of what a row or a column of them has in common to
 * all of these, so that less is asked of the L2 cache.
 */
enum { UP = 2, ACROSS = 3, CLUSTER_UP = 2, CLUSTER_ACROSS = 1, STAGES = 4 };

enum {
	GROUPS = 2,
	PRODUCER_WARPS = 4,
	THREADS = GROUPS * WGMMA_THREADS + 32 * PRODUCER_WARPS,
	CLUSTER = CLUSTER_UP * CLUSTER_ACROSS,
	GROUP_WARPS = WGMMA_THREADS / 32,
	ROW_BYTES = WGMMA_TILE_BYTES / WGMMA_TILE,
	STAGE_BYTES = (UP + ACROSS) * WGMMA_TILE_BYTES,
	TILES = UP * ACROSS, /* of a group's result */
	/*
	 * A ring of a group's own, for what goes to memory or comes from there beside operands. Each
	 * of its warps sees to WARP_ROWS of a tile by itself.
	 */
	OWN_TILES = 4,
	WARP_ROWS = WGMMA_TILE / GROUP_WARPS,
	WARP_BYTES = WGMMA_TILE_BYTES / GROUP_WARPS,
	OWN_AT = STAGES * STAGE_BYTES,
	BARRIERS_AT = OWN_AT + GROUPS * OWN_TILES * WGMMA_TILE_BYTES,
	BARRIERS = 2 * STAGES + GROUPS + GROUPS * OWN_TILES * GROUP_WARPS,
	/* 1024 more: the tiles' place is rounded up to a multiple of it */
	NUMBERS_AT = BARRIERS_AT + 8 * BARRIERS,
	SHARED_BYTES = NUMBERS_AT + 8 + 1024
};

static_assert(TILES >= OWN_TILES, "a group's ring is filled by one result");

/* A block's part of the rows, and of the columns: of these as they lie, or of each tile's k. */
enum {
	PART_ROWS = UP * WGMMA_TILE / CLUSTER_ACROSS,
	PART_COLUMNS = ACROSS * WGMMA_TILE / CLUSTER_UP,
	PART_K = WGMMA_TILE / CLUSTER_UP
};

struct product_maps {
	CUtensorMap rows, columns; /* operands: b, a */
	CUtensorMap d, aux;
	const void *bias;
	int m, k;
	int across, all; /* clusters side by side, and all of them */
};

#if WGMMA_THERE

/* ---- places in shared memory ---- */

struct ring {
	uint32_t base;

	__device__ uint32_t stage(int i) const
	{
		return base + (uint32_t)(i * STAGE_BYTES);
	}
	/* tile i of those of a warp's group */
	__device__ uint32_t own(int warp, int i) const
	{
		return base + OWN_AT + (uint32_t)(warp / GROUP_WARPS * OWN_TILES + i) * WGMMA_TILE_BYTES;
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
	/* the warp's rows of tile i are there */
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
			bulk_barrier_init(r.empty(i),
				GROUP_WARPS * (CLUSTER_UP + CLUSTER_ACROSS - 1));
		}
		for (int group = 0; group < GROUPS; group++) {
			bulk_barrier_init(r.turn(group), GROUP_WARPS);
		}
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

/* Where the ring stands. */
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

/* ---- the thread that brings operands ---- */

template <bool TURNED>
static __device__ __forceinline__ void bring_step(const struct product_maps &p, const struct ring &r,
	struct place at, struct corner c, int k, int stage)
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

/* ---- the groups ---- */

static __device__ __forceinline__ void put_matrices(uint32_t address, const uint32_t (&r)[4])
{
	asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
			     address),
		     "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
		     : "memory");
}

static __device__ __forceinline__ void unpack(float &low, float &high, uint32_t two, __nv_bfloat16)
{
	low = __uint_as_float(two << 16);
	high = __uint_as_float(two & 0xffff0000);
}

static __device__ __forceinline__ void unpack(float &low, float &high, uint32_t two, __half)
{
	float2 x = __half22float2(*(__half2 *)&two);

	low = x.x;
	high = x.y;
}

/* Both elements within what gelu_approx_slope takes, which 16 bits hold exactly. */
static __device__ __forceinline__ uint32_t held(uint32_t two, __nv_bfloat16)
{
	const __nv_bfloat162 most = __float2bfloat162_rn(GELU_APPROX_HELD);
	__nv_bfloat162 x = __hmin2(__hmax2(*(__nv_bfloat162 *)&two, __hneg2(most)), most);

	return *(uint32_t *)&x;
}

static __device__ __forceinline__ uint32_t held(uint32_t two, __half)
{
	const __half2 most = __float2half2_rn(GELU_APPROX_HELD);
	__half2 x = __hmin2(__hmax2(*(__half2 *)&two, __hneg2(most)), most);

	return *(uint32_t *)&x;
}

/* All of a warp have done with a place, in each block that brings a part of it. */
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

typedef float sums[UP][8 * ACROSS][4];

/* Sums begin as the bias. */
template <typename E>
static __device__ __forceinline__ void begin(sums &d, const E *bias, int column, int m)
{
	column += 2 * (int)(threadIdx.x & 3);
#pragma unroll
	for (int n = 0; n < 8 * ACROSS; n++) {
		float low = 0, high = 0;

		if (bias && column + 8 * n < m)
			unpack(low, high, *(const uint32_t *)(bias + column + 8 * n), E());
#pragma unroll
		for (int u = 0; u < UP; u++) {
			d[u][n][0] = d[u][n][2] = low;
			d[u][n][1] = d[u][n][3] = high;
		}
	}
}

template <typename E, bool TURNED>
static __device__ __forceinline__ void multiply(
	sums &d, const struct ring &r, struct place at, struct position &step, int k)
{
	int last = 0;

	do {
		uint32_t from = r.stage(step.stage);
		uint64_t columns = wgmma_tiles(from + UP * WGMMA_TILE_BYTES);

		bulk_wait(r.full(step.stage), step.round & 1);
		wgmma_fence();
#pragma unroll
		for (int i = 0; i < 4; i++) {
#pragma unroll
			for (int u = 0; u < UP; u++)
				wgmma_wide<TURNED>(d[u],
					wgmma_columns(
						wgmma_tiles(from + u * WGMMA_TILE_BYTES), i),
					TURNED ? wgmma_rows(columns, i) : wgmma_columns(columns, i),
					E());
		}
		wgmma_end();
		wgmma_wide_wait<1>();
		if (last > 0)
			let_go(at, r.empty(step.stage ? step.stage - 1 : STAGES - 1));
		step.next();
		last++;
		k -= WGMMA_TILE;
	} while (k > 0);
}

/* The number of the calling warp, the same in all its registers. */
static __device__ __forceinline__ int warp_of_block()
{
	return __shfl_sync(0xffffffff, (int)(threadIdx.x / 32), 0);
}

/* A lane's part of two neighbouring 8 columns of its warp's rows, as matrices are put and taken. */
static __device__ __forceinline__ uint32_t lane_piece(uint32_t tile, int n)
{
	int warp = (int)(threadIdx.x % WGMMA_THREADS / 32), lane = threadIdx.x & 31;

	return mma_piece(tile, WARP_ROWS * warp + (lane & 15), n + (lane >> 4));
}

/* A warp's rows of 64 columns of the sums, two neighbouring 8 columns to four words. */
typedef uint32_t words[4][4];

template <typename E> static __device__ __forceinline__ void pack(words &x, const float (*d)[4])
{
#pragma unroll
	for (int n = 0; n < 4; n++)
		mma_pack_a(x[n], d[2 * n], d[2 * n + 1], E());
}

static __device__ __forceinline__ void put(uint32_t tile, const words &x)
{
#pragma unroll
	for (int n = 0; n < 4; n++)
		put_matrices(lane_piece(tile, 2 * n), x[n]);
}

template <typename E>
static __device__ __forceinline__ void gelu_of(
	words &y, const words &x, float linear, float cubic)
{
#pragma unroll
	for (int n = 0; n < 4; n++) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			float low, high;

			unpack(low, high, x[n][i], E());
			y[n][i] = mma_pack(gelu_approx(low, linear, cubic),
				gelu_approx(high, linear, cubic), E());
		}
	}
}

/* What is at x becomes d times the derivative of GELU there. */
template <typename E>
static __device__ __forceinline__ void times_slope(words &x, const float (*d)[4])
{
#pragma unroll
	for (int n = 0; n < 4; n++) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			const float *by = d[2 * n + i / 2] + i % 2 * 2;
			float low, high;

			unpack(low, high, held(x[n][i], E()), E());
			x[n][i] = mma_pack(by[0] * gelu_approx_slope(low),
				by[1] * gelu_approx_slope(high), E());
		}
	}
}

/* The place in memory of a warp's rows of a tile of its group's result. */
static __device__ __forceinline__ struct corner rows_of(struct corner c, int warp, int tile)
{
	return {c.row + tile / ACROSS * WGMMA_TILE + warp % GROUP_WARPS * WARP_ROWS,
		c.column + tile % ACROSS * WGMMA_TILE};
}

static __device__ __forceinline__ uint32_t warp_part(uint32_t tile, int warp)
{
	return tile + (uint32_t)(warp % GROUP_WARPS * WARP_BYTES);
}

/*
 * GELU's numbers, once more for each tile: with constants the compiler has all of a result go
 * through GELU before the first tile goes to memory, which takes more registers than there are.
 */
static __device__ __forceinline__ void gelu_numbers(
	const struct ring &r, float &linear, float &cubic)
{
	asm volatile("ld.volatile.shared.v2.f32 {%0, %1}, [%2];"
		     : "=f"(linear), "=f"(cubic)
		     : "r"(r.base + NUMBERS_AT)
		     : "memory");
}

/* What a warp has put in its rows of a tile goes to memory. */
static __device__ __forceinline__ void send(const CUtensorMap *to, uint32_t tile, struct corner c,
	int warp, int i)
{
	struct corner at = rows_of(c, warp, i);

	bulk_store(to, at.column, at.row, 0, warp_part(tile, warp));
}

/*
 * Two pairs of tiles, one of which is written while the other goes to memory: what was put is sent
 * once the next is made, so that nothing waits for it to be there.
 */
template <typename E>
static __device__ __forceinline__ void finish_gelu(
	const struct product_maps &p, const struct ring &r, int warp, struct corner c, sums &d)
{
	bool first = (threadIdx.x & 31) == 0;

#pragma unroll
	for (int tile = 0; tile <= TILES; tile++) {
		uint32_t pre = r.own(warp, tile % 2 * 2), out = pre + WGMMA_TILE_BYTES;
		float linear, cubic;
		words x, y;

		if (tile < TILES) {
			gelu_numbers(r, linear, cubic);
			pack<E>(x, d[tile / ACROSS] + tile % ACROSS * 8);
			gelu_of<E>(y, x, linear, cubic);
		}
		if (tile > 0)
			bulk_fence_tiles();
		__syncwarp();
		if (first) {
			if (tile > 0) {
				uint32_t last = r.own(warp, (tile - 1) % 2 * 2);

				send(&p.aux, last, c, warp, tile - 1);
				send(&p.d, last + WGMMA_TILE_BYTES, c, warp, tile - 1);
				bulk_store_batch();
			}
			bulk_store_left<1>();
		}
		__syncwarp();
		if (tile < TILES) {
			put(pre, x);
			put(out, y);
		}
	}
}

/* The warp's rows of tile i of aux, counted over all results of its group, into its ring. */
static __device__ __forceinline__ void ask_for_aux(
	const struct product_maps &p, const struct ring &r, int warp, int i)
{
	int clusters = (int)gridDim.x / CLUSTER, own = i % OWN_TILES;
	int t = (int)blockIdx.x / CLUSTER + (warp / GROUP_WARPS + i / TILES * GROUPS) * clusters;
	struct corner at = rows_of(corner_of(p, place_of_block(), t), warp, i % TILES);

	if (t >= p.all)
		return;
	bulk_expect(r.there(warp, own), WARP_BYTES);
	bulk_load(warp_part(r.own(warp, own), warp), &p.aux, at.column, at.row, 0,
		r.there(warp, own));
}

/*
 * In place, where aux was. A tile is sent once the next is made; when it has gone to memory, it is
 * asked for the one OWN_TILES on.
 */
template <typename E>
static __device__ __forceinline__ void finish_slope(const struct product_maps &p,
	const struct ring &r, int warp, struct corner c, int round, sums &d)
{
	bool first = (threadIdx.x & 31) == 0;
	int i = round * TILES;

#pragma unroll
	for (int tile = 0; tile <= TILES; tile++, i++) {
		uint32_t own = r.own(warp, i % OWN_TILES);
		words x;

		if (tile < TILES) {
			bulk_wait(r.there(warp, i % OWN_TILES), i / OWN_TILES & 1);
#pragma unroll
			for (int n = 0; n < 4; n++)
				mma_matrices(x[n], lane_piece(own, 2 * n));
			times_slope<E>(x, d[tile / ACROSS] + tile % ACROSS * 8);
		}
		if (tile > 0) {
			bulk_fence_tiles();
			__syncwarp();
			if (first) {
				send(&p.d, r.own(warp, (i - 1) % OWN_TILES), c, warp, tile - 1);
				bulk_store_batch();
			}
			if (first && tile > 1) {
				bulk_store_left<1>();
				ask_for_aux(p, r, warp, i - 2 + OWN_TILES);
			}
			__syncwarp();
		}
		if (tile < TILES)
			put(own, x);
	}
	if (first) {
		bulk_store_left<0>();
		ask_for_aux(p, r, warp, i - 2 + OWN_TILES);
	}
	__syncwarp();
}

template <typename E, bool TURNED, bool SLOPE>
static __device__ __forceinline__ void work(const struct product_maps &p, const struct ring &r)
{
	int warp = warp_of_block(), group = warp / GROUP_WARPS, round = 0;
	int steps = (p.k + WGMMA_TILE - 1) / WGMMA_TILE;
	int clusters = (int)gridDim.x / CLUSTER;
	bool first = (threadIdx.x & 31) == 0;
	struct place at = place_of_block();
	struct position step = {0, 0};
	sums d;

	for (int i = 0; SLOPE && first && i < OWN_TILES; i++)
		ask_for_aux(p, r, warp, i);
	__syncwarp();
	step.go(group * steps);
	for (int t = (int)blockIdx.x / CLUSTER + group * clusters; t < p.all;
		t += GROUPS * clusters, round++) {
		struct corner c = corner_of(p, at, t);

		begin(d, (const E *)p.bias, c.column, p.m);
		bulk_wait(r.turn(group), (round + group + 1) & 1);
		multiply<E, TURNED>(d, r, at, step, p.k);
		__syncwarp();
		if (first)
			bulk_arrive(r.turn(1 - group));
		wgmma_wide_wait<0>();
#pragma unroll
		for (int u = 0; u < UP; u++)
			wgmma_wide_ended(d[u]);
		let_go(at, r.empty(step.stage ? step.stage - 1 : STAGES - 1));
		step.go(steps);
		if (SLOPE)
			finish_slope<E>(p, r, warp, c, round, d);
		else
			finish_gelu<E>(p, r, warp, c, d);
	}
	if (first)
		bulk_store_left<0>();
	__syncwarp();
}

#endif

template <typename E, bool TURNED, bool SLOPE>
static __global__ void __launch_bounds__(THREADS, 1)
	product_by_groups(const __grid_constant__ struct product_maps p)
{
#if WGMMA_THERE
	struct ring r = ring_init();

	/* of 168 registers that a thread begins with */
	if (threadIdx.x < GROUPS * WGMMA_THREADS) {
		asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
		work<E, TURNED, SLOPE>(p, r);
	} else {
		asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
		if (threadIdx.x == GROUPS * WGMMA_THREADS)
			bring<TURNED>(p, r);
		__syncwarp();
	}
	/* others of the cluster write to this block's memory and barriers */
	bulk_cluster_sync();
#endif
}

/* ---- host ---- */

static bool is_slope(int epilogue)
{
	return epilogue == GEMM_DGELU;
}

bool gemm_wgmma_there(const struct k_context *ctx)
{
	const int capability = 90; /* the one that it is compiled for */

	return ATTENTION_WGMMA_BUILT && ctx->capability == capability &&
		SHARED_BYTES <= ctx->block_shared_bytes;
}

/* The copy engine takes rows that begin at multiples of 16 bytes. */
bool gemm_wgmma_fits(const struct k_context *ctx, const struct k_product *product)
{
	const int64_t most = INT32_MAX / 2;
	bool gelu = product->epilogue == GEMM_GELU || product->epilogue == GEMM_GELU_BIAS;
	bool slope = is_slope(product->epilogue);
	const uint32_t *align = product->align;

	if (!gemm_wgmma_there(ctx) || (product->dtype != K_BF16 && product->dtype != K_FP16) ||
		product->transpose_b || product->add)
		return false;
	if (!(gelu && product->transpose_a) && !(slope && !product->transpose_a))
		return false;
	return product->m % 8 == 0 && product->k % 8 == 0 && align[0] >= 16 && align[1] >= 16 &&
		align[2] >= 16 && align[3] >= 4 && align[4] >= 16 && product->m < most &&
		product->n < most && product->k < most;
}

static bool make_maps(
	struct k_context *ctx, struct product_maps *p, const struct gemm_call *c)
{
	bool turned = !c->transpose_a;
	int part = turned ? (int)PART_K : (int)PART_COLUMNS;

	return bulk_map_make(ctx, &p->rows, c->b, 1, c->n, c->k, PART_ROWS) &&
		bulk_map_make(ctx, &p->columns, c->a, 1, turned ? c->k : c->m,
			turned ? c->m : c->k, part) &&
		bulk_map_make(ctx, &p->d, c->d, 1, c->n, c->m, WARP_ROWS) &&
		bulk_map_make(ctx, &p->aux, c->aux, 1, c->n, c->m, WARP_ROWS);
}

static int64_t parts(int64_t n, int64_t of)
{
	return (n + of - 1) / of;
}

template <typename E, bool TURNED, bool SLOPE>
static cudaError_t launch(const struct product_maps *p, cudaStream_t stream)
{
	auto *kernel = product_by_groups<E, TURNED, SLOPE>;
	cudaLaunchAttribute cluster = {};
	cudaLaunchConfig_t config = {};
	int at_once = 0;
	cudaError_t rc;

	cluster.id = cudaLaunchAttributeClusterDimension;
	cluster.val.clusterDim.x = CLUSTER;
	cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
	config.gridDim = dim3((unsigned int)(p->all * CLUSTER));
	config.blockDim = dim3(THREADS);
	config.dynamicSmemBytes = SHARED_BYTES;
	config.stream = stream;
	config.attrs = &cluster;
	config.numAttrs = 1;
	rc = cudaFuncSetAttribute(
		kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
	if (rc == cudaSuccess)
		rc = cudaOccupancyMaxActiveClusters(&at_once, kernel, &config);
	if (rc != cudaSuccess)
		return rc;
	if (at_once < p->all)
		config.gridDim.x = (unsigned int)((at_once > 0 ? at_once : 1) * CLUSTER);
	return cudaLaunchKernelEx(&config, kernel, *p);
}

template <typename E>
static cudaError_t launch_for(
	const struct product_maps *p, bool slope, cudaStream_t stream)
{
	return slope ? launch<E, true, true>(p, stream) : launch<E, false, false>(p, stream);
}

const char *gemm_wgmma_launch(
	struct k_context *ctx, const struct gemm_call *c, cudaStream_t stream)
{
	int64_t up = parts(c->n, CLUSTER_UP * UP * WGMMA_TILE);
	bool slope = is_slope(c->epilogue);
	struct product_maps p;
	cudaError_t rc;

	if (!make_maps(ctx, &p, c))
		return "no map of its tensors";
	p.bias = c->bias;
	p.m = (int)c->m;
	p.k = (int)c->k;
	p.across = (int)parts(c->m, CLUSTER_ACROSS * ACROSS * WGMMA_TILE);
	p.all = (int)(up * p.across);
	rc = ctx->dtype == K_BF16 ? launch_for<__nv_bfloat16>(&p, slope, stream)
				  : launch_for<__half>(&p, slope, stream);
	return rc == cudaSuccess ? NULL : cudaGetErrorString(rc);
}
