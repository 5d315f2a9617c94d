/*
 * attention_wmma.cuh: products of 64 x 64 tiles in shared memory by nvcuda::wmma, which sm_70 has
 * for __half and sm_80 for __nv_bfloat16; for older devices its users compile to nothing. The
 * layout of fragments is unspecified, so scores go through shared memory.
 *
 * A block is four warps, each with 16 rows of its tile. A lane has half a row of a product: row
 * lane / 2, and four of each 8 columns, from 8j + 4(lane % 2) on.
 */
#ifndef GPT2D_KERNELS_CUDA_ATTENTION_WMMA_CUH
#define GPT2D_KERNELS_CUDA_ATTENTION_WMMA_CUH

#include <mma.h>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/reduce.cuh"

#ifdef __CUDA_ARCH__
enum { WMMA_ARCH = __CUDA_ARCH__ };
#else
enum { WMMA_ARCH = 0 };
#endif

/*
 * In elements: 144 bytes between rows of a tile and 288 between rows of scores keep concurrent
 * reads in different banks, and the parts that wmma loads at multiples of 32 bytes.
 */
enum { WMMA_THREADS = 128, WMMA_SIDE = 64, WMMA_UNIT = 16, WMMA_UNITS = WMMA_SIDE / WMMA_UNIT };
enum { WMMA_PITCH = 72, WMMA_TILE_ELEMS = WMMA_SIDE * WMMA_PITCH };
enum { WMMA_TILE_BYTES = 2 * WMMA_TILE_ELEMS, WMMA_SCORES_BYTES = 4 * WMMA_TILE_ELEMS };

template <typename E> struct wmma_asks {
	enum { arch = 700 };
};
template <> struct wmma_asks<__nv_bfloat16> {
	enum { arch = 800 };
};

/* 16 rows of a product. */
typedef nvcuda::wmma::fragment<nvcuda::wmma::accumulator, WMMA_UNIT, WMMA_UNIT, WMMA_UNIT, float>
	wmma_sum;

static __device__ __forceinline__ int wmma_warp_row()
{
	return (int)threadIdx.x / REDUCE_WARP * WMMA_UNIT;
}

/* The lane's row in its tile, and the first of its columns. */
static __device__ __forceinline__ int wmma_row()
{
	return wmma_warp_row() + (int)(threadIdx.x % REDUCE_WARP) / 2;
}

static __device__ __forceinline__ int wmma_column()
{
	return 4 * (int)(threadIdx.x & 1);
}

static __device__ __forceinline__ int wmma_there(int64_t T, int64_t first)
{
	return (int)(T - first < WMMA_SIDE ? T - first : WMMA_SIDE);
}

/* Loads a tile; rows from `there` on become zero. */
template <typename E>
static __device__ __forceinline__ void wmma_fetch(E *tile, const E *from, int64_t stride, int there)
{
	const int wide = element_wide<E>::n, pieces = WMMA_SIDE / wide;

#pragma unroll
	for (int i = 0; i < WMMA_SIDE * pieces / WMMA_THREADS; i++) {
		int at = i * WMMA_THREADS + (int)threadIdx.x, row = at / pieces;
		int column = at % pieces * wide;
		uint4 x = make_uint4(0, 0, 0, 0);

		if (row < there)
			x = *(const uint4 *)(from + row * stride + column);
		*(uint4 *)(tile + row * WMMA_PITCH + column) = x;
	}
}

static __device__ __forceinline__ void wmma_zero(wmma_sum (&d)[WMMA_UNITS])
{
#pragma unroll
	for (int n = 0; n < WMMA_UNITS; n++)
		nvcuda::wmma::fill_fragment(d[n], 0.0f);
}

template <bool TURNED> struct wmma_layout {
	typedef nvcuda::wmma::row_major type;
};
template <> struct wmma_layout<true> {
	typedef nvcuda::wmma::col_major type;
};

/* d += the warp's rows at a times a tile or, TURNED, its transpose. */
template <bool TURNED, typename E>
static __device__ __forceinline__ void wmma_multiply(
	wmma_sum (&d)[WMMA_UNITS], const E *a, int pitch, const E *tile)
{
	using namespace nvcuda::wmma;
	typedef typename wmma_layout<TURNED>::type layout;

#pragma unroll
	for (int k = 0; k < WMMA_UNITS; k++) {
		fragment<matrix_a, WMMA_UNIT, WMMA_UNIT, WMMA_UNIT, E, row_major> left;

		load_matrix_sync(left, a + WMMA_UNIT * k, (unsigned int)pitch);
#pragma unroll
		for (int n = 0; n < WMMA_UNITS; n++) {
			fragment<matrix_b, WMMA_UNIT, WMMA_UNIT, WMMA_UNIT, E, layout> right;
			int row = WMMA_UNIT * (TURNED ? n : k),
			    column = WMMA_UNIT * (TURNED ? k : n);

			load_matrix_sync(right, tile + row * WMMA_PITCH + column, WMMA_PITCH);
			mma_sync(d[n], left, right, d[n]);
		}
	}
}

/* The warp's rows of a tile times the transpose of another tile. */
template <typename E>
static __device__ __forceinline__ void wmma_times_rows(
	wmma_sum (&d)[WMMA_UNITS], const E *a, const E *tile)
{
	wmma_multiply<true>(d, a + wmma_warp_row() * WMMA_PITCH, WMMA_PITCH, tile);
}

/* wmma_put_rounded's output at part of the warp's scores times a tile. */
template <typename E>
static __device__ __forceinline__ void wmma_times_tile(
	wmma_sum (&d)[WMMA_UNITS], const float *scores, int part, const E *tile)
{
	wmma_multiply<false>(d,
		(const E *)(scores + wmma_warp_row() * WMMA_PITCH) + part * WMMA_SIDE,
		2 * WMMA_PITCH, tile);
}

/* The warp's rows of a product to x, half a row per lane, through its part of scores. */
static __device__ __forceinline__ void wmma_take(
	float (&x)[8][4], float *scores, const wmma_sum (&d)[WMMA_UNITS])
{
	__syncwarp(); /* old content has been read */
#pragma unroll
	for (int n = 0; n < WMMA_UNITS; n++)
		nvcuda::wmma::store_matrix_sync(
			scores + wmma_warp_row() * WMMA_PITCH + WMMA_UNIT * n, d[n], WMMA_PITCH,
			nvcuda::wmma::mem_row_major);
	__syncwarp();
#pragma unroll
	for (int j = 0; j < 8; j++)
		element_load(x[j], scores + wmma_row() * WMMA_PITCH + 8 * j + wmma_column());
	__syncwarp();
}

/* x as E to part 0 or 1 of scores; call __syncwarp before the product. */
template <typename E>
static __device__ __forceinline__ void wmma_put_rounded(
	float *scores, int part, const float (&x)[8][4], E)
{
	E *to = (E *)(scores + wmma_row() * WMMA_PITCH) + part * WMMA_SIDE + wmma_column();

#pragma unroll
	for (int j = 0; j < 8; j++)
		element_store(to + 8 * j, x[j]);
}

/* x times scale to row wmma_row() of memory, if that row exists. */
template <typename E>
static __device__ __forceinline__ void wmma_store(
	E *to, int64_t stride, float (&x)[8][4], int there, float scale)
{
	if (wmma_row() >= there)
		return;
#pragma unroll
	for (int j = 0; j < 8; j++) {
#pragma unroll
		for (int i = 0; i < 4; i++)
			x[j][i] *= scale;
		element_store(to + wmma_row() * stride + 8 * j + wmma_column(), x[j]);
	}
}

/* Dropout's factors of elements at .. at + 3; whole: at is a multiple of 4. */
static __device__ __forceinline__ void wmma_mask(
	float (&mask)[4], const struct philox_dropout &d, int64_t at, bool whole)
{
#pragma unroll
	for (int i = 0; i < 4; i++)
		mask[i] = whole || !d.on ? 1 : philox_mask(d, at + i);
	if (whole)
		philox_drop(mask, d, at);
}

#endif
