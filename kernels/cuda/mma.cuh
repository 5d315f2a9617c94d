/*
 * mma.cuh: the matrix units by mma.sync m16n8k16, and tiles of 64 columns of 16 bits in shared
 * memory. For sm_80 and up; for older devices its users compile to nothing.
 *
 * A tile has rows of 128 bytes in eight pieces of 16; piece p of row r lies at p ^ (r % 8), so that
 * eight rows of one piece are in different banks. The layout of fragments is PTX's: in a 16 x 8
 * accumulator, lane l has columns 2(l % 4) and the next of rows l / 4 (elements 0, 1) and l / 4 + 8
 * (2, 3).
 */
#ifndef GPT2D_KERNELS_CUDA_MMA_CUH
#define GPT2D_KERNELS_CUDA_MMA_CUH

#include "kernels/cuda/context.cuh"
#include "kernels/cuda/pair.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define MMA_THERE 1
#else
#define MMA_THERE 0
#endif

enum { MMA_ROW_BYTES = 128, MMA_ROW_PIECES = 8 };

#if MMA_THERE

static __device__ __forceinline__ uint32_t mma_piece(uint32_t tile, int row, int piece)
{
	return tile + (uint32_t)(row * MMA_ROW_BYTES + ((piece ^ (row & 7)) << 4));
}

/* Loads ROWS rows of a tile asynchronously; rows from `there` on become zero. */
template <int ROWS, int THREADS>
static __device__ __forceinline__ void mma_fetch(
	uint32_t tile, const void *from, int64_t stride_bytes, int there)
{
#pragma unroll
	for (int i = 0; i < ROWS * MMA_ROW_PIECES / THREADS; i++) {
		int at = i * THREADS + (int)threadIdx.x, row = at / MMA_ROW_PIECES;
		int piece = at % MMA_ROW_PIECES, bytes = row < there ? 16 : 0;
		const char *src =
			(const char *)from + (row < there ? row : 0) * stride_bytes + piece * 16;

		asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
				     mma_piece(tile, row, piece)),
			     "l"(src), "r"(bytes)
			     : "memory");
	}
}

static __device__ __forceinline__ void mma_fetch_end()
{
	asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most LEFT batches of fetches are under way. */
template <int LEFT> static __device__ __forceinline__ void mma_fetch_wait()
{
	asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

static __device__ __forceinline__ void mma_matrices(uint32_t (&r)[4], uint32_t address)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(address)
		     : "memory");
}

static __device__ __forceinline__ void mma_matrices_turned(uint32_t (&r)[4], uint32_t address)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(address)
		     : "memory");
}

/* A fragment: rows row .. row+15 of a tile, columns 16k .. 16k+15. */
static __device__ __forceinline__ void mma_load_a(uint32_t (&a)[4], uint32_t tile, int row, int k)
{
	int lane = threadIdx.x & 31;

	mma_matrices(a, mma_piece(tile, row + (lane & 15), 2 * k + (lane >> 4)));
}

/*
 * B fragments of two neighbouring n-tiles, from a tile that has n as rows (n .. n+15) and k as
 * columns (16k .. 16k+15).
 */
static __device__ __forceinline__ void mma_load_b(uint32_t (&b)[4], uint32_t tile, int n, int k)
{
	int lane = threadIdx.x & 31;

	mma_matrices(b, mma_piece(tile, n + (lane & 7) + (lane >> 4) * 8, 2 * k + (lane >> 3 & 1)));
}

/* The same from a tile that has k as rows (16k ...) and n as columns. */
static __device__ __forceinline__ void mma_load_b_turned(
	uint32_t (&b)[4], uint32_t tile, int n, int k)
{
	int lane = threadIdx.x & 31;

	mma_matrices_turned(b, mma_piece(tile, 16 * k + (lane & 15), n / 8 + (lane >> 4)));
}

static __device__ __forceinline__ void mma_multiply(
	float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, __nv_bfloat16)
{
	asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
	    "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ void mma_multiply(
	float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, __half)
{
	asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
	    "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* The accumulators of two neighbouring n-tiles as an A fragment over those 16 columns. */
template <typename E>
static __device__ __forceinline__ void mma_pack_a(
	uint32_t (&a)[4], const float (&left)[4], const float (&right)[4], E type)
{
	a[0] = pair_pack(left[0], left[1], type);
	a[1] = pair_pack(left[2], left[3], type);
	a[2] = pair_pack(right[0], right[1], type);
	a[3] = pair_pack(right[2], right[3], type);
}

/*
 * For each of UNITS: d (16 x 64) += a (16 x 64, as fragments) times the transpose of a tile of 64
 * rows; reads the tile once.
 */
template <typename E, int UNITS>
static __device__ __forceinline__ void mma_times_rows(
	float (&d)[UNITS][8][4], const uint32_t (&a)[UNITS][4][4], uint32_t tile, E type)
{
#pragma unroll
	for (int k = 0; k < 4; k++) {
#pragma unroll
		for (int n = 0; n < 8; n += 2) {
			uint32_t b[4];

			mma_load_b(b, tile, 8 * n, k);
#pragma unroll
			for (int u = 0; u < UNITS; u++) {
				mma_multiply(d[u][n], a[u][k], b[0], b[1], type);
				mma_multiply(d[u][n + 1], a[u][k], b[2], b[3], type);
			}
		}
	}
}

/*
 * For each of UNITS: d (16 x 64) += x (16 x 64, accumulators, rounded to E) times a tile of 64
 * rows.
 */
template <typename E, int UNITS>
static __device__ __forceinline__ void mma_times_tile(
	float (&d)[UNITS][8][4], const float (&x)[UNITS][8][4], uint32_t tile, E type)
{
#pragma unroll
	for (int k = 0; k < 4; k++) {
		uint32_t a[UNITS][4];

#pragma unroll
		for (int u = 0; u < UNITS; u++)
			mma_pack_a(a[u], x[u][2 * k], x[u][2 * k + 1], type);
#pragma unroll
		for (int n = 0; n < 8; n += 2) {
			uint32_t b[4];

			mma_load_b_turned(b, tile, 8 * n, k);
#pragma unroll
			for (int u = 0; u < UNITS; u++) {
				mma_multiply(d[u][n], a[u], b[0], b[1], type);
				mma_multiply(d[u][n + 1], a[u], b[2], b[3], type);
			}
		}
	}
}

/* Writes rows row and row + 8 of d (16 x 64) times scale to the existing rows of memory. */
template <typename E>
static __device__ __forceinline__ void mma_store(E *to, int64_t stride, const float (&d)[8][4],
	int row, int there, float scale0, float scale1)
{
	int column = 2 * (threadIdx.x & 3);

#pragma unroll
	for (int n = 0; n < 8; n++) {
		if (row < there)
			*(uint32_t *)(to + row * stride + 8 * n + column) =
				pair_pack(d[n][0] * scale0, d[n][1] * scale0, E());
		if (row + 8 < there)
			*(uint32_t *)(to + (row + 8) * stride + 8 * n + column) =
				pair_pack(d[n][2] * scale1, d[n][3] * scale1, E());
	}
}

#endif

#endif
