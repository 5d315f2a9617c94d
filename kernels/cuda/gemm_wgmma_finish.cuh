/*
 * gemm_wgmma_finish.cuh: the last step for a group's sums: GELU of them, or their product with its
 * derivative, and the column sums of that. Each warp handles its own rows, a tile at a time, and
 * waits for no other warp.
 */
#ifndef GPT2D_KERNELS_CUDA_GEMM_WGMMA_FINISH_CUH
#define GPT2D_KERNELS_CUDA_GEMM_WGMMA_FINISH_CUH

#include "kernels/cuda/gemm_wgmma_ring.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/pair.cuh"

#if WGMMA_THERE

typedef float sums[UP][8 * ACROSS][4];

static __device__ __forceinline__ void put_matrices(uint32_t address, const uint32_t (&r)[4])
{
	asm volatile(
		"stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
		"r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
		: "memory");
}

/* Sums begin with the bias. */
template <typename E>
static __device__ __forceinline__ void begin(sums &d, const E *bias, int column, int m)
{
	column += 2 * (int)(threadIdx.x & 3);
#pragma unroll
	for (int n = 0; n < 8 * ACROSS; n++) {
		float low = 0, high = 0;

		if (bias && column + 8 * n < m)
			pair_unpack(low, high, *(const uint32_t *)(bias + column + 8 * n), E());
#pragma unroll
		for (int u = 0; u < UP; u++) {
			d[u][n][0] = d[u][n][2] = low;
			d[u][n][1] = d[u][n][3] = high;
		}
	}
}

/* The calling warp's number, uniform in the warp. */
static __device__ __forceinline__ int warp_of_block()
{
	return __shfl_sync(0xffffffff, (int)(threadIdx.x / 32), 0);
}

/* A lane's part of two neighbouring 8 columns of its warp's rows, for ldmatrix and stmatrix. */
static __device__ __forceinline__ uint32_t lane_piece(uint32_t tile, int n)
{
	int warp = (int)(threadIdx.x % WGMMA_THREADS / 32), lane = threadIdx.x & 31;

	return mma_piece(tile, WARP_ROWS * warp + (lane & 15), n + (lane >> 4));
}

/* A warp's rows of 64 columns of the sums; four words hold two neighbouring 8 columns. */
typedef uint32_t words[4][4];

static __device__ __forceinline__ void put(uint32_t tile, const words &x)
{
#pragma unroll
	for (int n = 0; n < 4; n++)
		put_matrices(lane_piece(tile, 2 * n), x[n]);
}

/*
 * y: GELU of d. slope: its derivative there, in fp16 for any E, 8 times as exact for values between
 * -0.13 and 1.13.
 */
template <typename E>
static __device__ __forceinline__ void gelu_of(
	words &slope, words &y, const float (*d)[4], float linear, float cubic)
{
#pragma unroll
	for (int n = 0; n < 4; n++) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			const float *of = d[2 * n + i / 2] + i % 2 * 2;
			float low, high;

			y[n][i] = pair_pack(gelu_approx_both(of[0], linear, cubic, low),
				gelu_approx_both(of[1], linear, cubic, high), E());
			slope[n][i] = pair_pack(low, high, __half());
		}
	}
}

/* A lane's part of sums of 64 columns: two of each 8, in the accumulators' layout. */
enum { LANE_SUMS = 16 };

static __device__ __forceinline__ void begin_sums(float (&total)[LANE_SUMS])
{
#pragma unroll
	for (int i = 0; i < LANE_SUMS; i++)
		total[i] = 0;
}

/* x, derivatives of GELU, becomes the product with d; total += the rounded products. */
template <typename E>
static __device__ __forceinline__ void times_slope(
	words &x, const float (*d)[4], float (&total)[LANE_SUMS])
{
#pragma unroll
	for (int n = 0; n < 4; n++) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			const float *by = d[2 * n + i / 2] + i % 2 * 2;
			float *to = total + 4 * n + i / 2 * 2;
			float low, high;

			pair_unpack(low, high, x[n][i], __half());
			x[n][i] = pair_pack(by[0] * low, by[1] * high, E());
			pair_unpack(low, high, x[n][i], E());
			to[0] += low;
			to[1] += high;
		}
	}
}

/* The address of a warp's rows of a tile; a result's tiles go by columns. */
static __device__ __forceinline__ struct corner rows_of(struct corner c, int warp, int tile)
{
	return {c.row + tile % UP * WGMMA_TILE + warp % GROUP_WARPS * WARP_ROWS,
		c.column + tile / UP * WGMMA_TILE};
}

static __device__ __forceinline__ uint32_t warp_part(uint32_t tile, int warp)
{
	return tile + (uint32_t)(warp % GROUP_WARPS * WARP_BYTES);
}

/*
 * GELU's constants, reloaded for each tile: otherwise the compiler computes GELU of the whole
 * result before it stores the first tile, which takes more registers than there are.
 */
static __device__ __forceinline__ void gelu_numbers(
	const struct ring &r, float &linear, float &cubic)
{
	asm volatile("ld.volatile.shared.v2.f32 {%0, %1}, [%2];"
		     : "=f"(linear), "=f"(cubic)
		     : "r"(r.base + NUMBERS_AT)
		     : "memory");
}

/* Stores the warp's rows of a tile. */
static __device__ __forceinline__ void send(
	const CUtensorMap *to, uint32_t tile, struct corner c, int warp, int i)
{
	struct corner at = rows_of(c, warp, i);

	bulk_store(to, at.column, at.row, 0, warp_part(tile, warp));
}

/*
 * Two pairs of tiles alternate: the warp fills one while the other is stored. It sends a pair after
 * it has computed the next, so that nothing waits for the writes.
 */
template <typename E>
static __device__ __forceinline__ void finish_gelu(
	const struct product_maps &p, const struct ring &r, int warp, struct corner c, sums &d)
{
	bool first = (threadIdx.x & 31) == 0;

#pragma unroll
	for (int tile = 0; tile <= TILES; tile++) {
		uint32_t slope = r.own(warp, tile % 2 * 2), out = slope + WGMMA_TILE_BYTES;
		float linear, cubic;
		words x, y;

		if (tile < TILES) {
			gelu_numbers(r, linear, cubic);
			gelu_of<E>(x, y, d[tile % UP] + tile / UP * 8, linear, cubic);
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
			put(slope, x);
			put(out, y);
		}
	}
}

/* Loads the warp's rows of a result's tile of aux into place i of its group's ring. */
static __device__ __forceinline__ void ask_for_aux(const struct product_maps &p,
	const struct ring &r, int warp, struct corner c, int tile, int i)
{
	struct corner at = rows_of(c, warp, tile);

	i %= OWN_TILES;
	if (c.row < 0)
		return;
	bulk_expect(r.there(warp, i), WARP_BYTES);
	bulk_load(warp_part(r.own(warp, i), warp), &p.aux, at.column, at.row, 0, r.there(warp, i));
}

/* Loads the tile OWN_TILES after tile - 2 into that one's place; i is tile's own place. */
static __device__ __forceinline__ void ask_for_more(const struct product_maps &p,
	const struct ring &r, int warp, struct corner c, struct corner next, int tile, int i)
{
	tile += OWN_TILES - 2;
	i += OWN_TILES - 2;
	if (tile < TILES)
		ask_for_aux(p, r, warp, c, tile, i);
	else
		ask_for_aux(p, r, warp, next, tile - TILES, i);
}

/* Two lanes exchange halves and add them. */
template <int HALF>
static __device__ __forceinline__ void add_lanes(float (&total)[LANE_SUMS])
{
	bool upper = threadIdx.x & 2 * HALF;

#pragma unroll
	for (int i = 0; i < HALF; i++) {
		float give = upper ? total[i] : total[i + HALF];

		total[i] = upper ? total[i + HALF] : total[i];
		total[i] += __shfl_xor_sync(0xffffffff, give, 2 * HALF);
	}
}

/*
 * Sums over a warp's rows of its group's result, for one column of tiles. After lanes with the same
 * columns have added theirs, lane l has columns 2 l and 2 l + 1.
 */
static __device__ __forceinline__ void keep_sums(const struct product_maps &p, int warp,
	struct corner c, int column, float (&total)[LANE_SUMS])
{
	int part = c.row / (UP * WGMMA_TILE) * GROUP_WARPS + warp % GROUP_WARPS;
	int at = c.column + column * WGMMA_TILE + 2 * (int)(threadIdx.x & 31);

	add_lanes<8>(total);
	add_lanes<4>(total);
	add_lanes<2>(total);
	if (p.sums && part < p.parts && at < p.m)
		*(float2 *)(p.sums + (int64_t)part * p.m + at) = make_float2(total[0], total[1]);
}

/*
 * In place, over aux. A tile is sent once the next is computed; after its store, its place loads
 * the tile OWN_TILES later, which may be the next result's.
 */
template <typename E>
static __device__ __forceinline__ void finish_slope(const struct product_maps &p,
	const struct ring &r, int warp, struct corner c, struct corner next, int round, sums &d)
{
	bool first = (threadIdx.x & 31) == 0;
	int i = round * TILES;
	float total[LANE_SUMS];

#pragma unroll
	for (int tile = 0; tile <= TILES; tile++, i++) {
		uint32_t own = r.own(warp, i % OWN_TILES);
		words x;

		if (tile < TILES) {
			bulk_wait(r.there(warp, i % OWN_TILES), i / OWN_TILES & 1);
#pragma unroll
			for (int n = 0; n < 4; n++)
				mma_matrices(x[n], lane_piece(own, 2 * n));
			if (tile % UP == 0)
				begin_sums(total);
			times_slope<E>(x, d[tile % UP] + tile / UP * 8, total);
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
				ask_for_more(p, r, warp, c, next, tile, i);
			}
			__syncwarp();
		}
		if (tile < TILES)
			put(own, x);
		if (tile < TILES && tile % UP == UP - 1)
			keep_sums(p, warp, c, tile / UP, total);
	}
	if (first) {
		bulk_store_left<0>();
		ask_for_more(p, r, warp, c, next, TILES + 1, i);
	}
	__syncwarp();
}

#endif

#endif
