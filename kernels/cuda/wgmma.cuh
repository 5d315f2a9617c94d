/*
 * wgmma.cuh: Hopper's matrix units: four warps (a group) multiply 64 x 16 by 16 x 64, with B in
 * shared memory and A there or in registers, asynchronously. Only for sm_90a; elsewhere its users
 * compile to nothing.
 *
 * A tile is 64 rows of 64 elements of 16 bits, at a multiple of 1024 bytes, its pieces placed as in
 * mma.cuh, which is also the copy engine's layout (PTX's 128-byte swizzle). The fragments and
 * accumulators of a warp are those of mma.cuh for 16 rows; warp w of the group has the rows from 16
 * w on.
 *
 * Accumulators of a product under way belong to it: read them only after wgmma_wait, which takes
 * them as operands. Check what ptxas (13.0) makes of products in a loop:
 * - fragments that the loop reads and never writes shared registers with others that it writes, so
 *   values that outlive a step are read from memory, or read again in some step;
 * - a loop that may run zero times and leaves a product under way serializes all products (remark
 *   C7515), so such loops test at their end.
 */
#ifndef GPT2D_KERNELS_CUDA_WGMMA_CUH
#define GPT2D_KERNELS_CUDA_WGMMA_CUH

#include "kernels/cuda/context.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define WGMMA_THERE 1
#else
#define WGMMA_THERE 0
#endif

enum { WGMMA_THREADS = 128, WGMMA_TILE = 64, WGMMA_TILE_BYTES = 8192 };

#if WGMMA_THERE

/*
 * PTX's matrix descriptor: groups of 8 rows are 1024 bytes apart, for either dimension as rows;
 * 128-byte swizzle.
 */
static __device__ __forceinline__ uint64_t wgmma_tile(uint32_t address)
{
	const uint64_t rows8 = 1024 >> 4;

	return (uint64_t)((address & 0x3ffff) >> 4) | rows8 << 16 | rows8 << 32 | UINT64_C(1) << 62;
}

/* Descriptors of the k-th 16 columns, and of the k-th 16 rows. */
static __device__ __forceinline__ uint64_t wgmma_columns(uint64_t tile, int k)
{
	return tile + (uint64_t)k * (32 >> 4);
}

static __device__ __forceinline__ uint64_t wgmma_rows(uint64_t tile, int k)
{
	return tile + (uint64_t)k * (2048 >> 4);
}

/* Between other instructions' writes to registers and the first product that reads them. */
static __device__ __forceinline__ void wgmma_fence()
{
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Ends a batch of products. */
static __device__ __forceinline__ void wgmma_end()
{
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

#define WGMMA_EIGHT(c, d, n) \
	c(d[n][0]), c(d[n][1]), c(d[n][2]), c(d[n][3]), c(d[n + 1][0]), c(d[n + 1][1]), \
		c(d[n + 1][2]), c(d[n + 1][3])
#define WGMMA_ALL(c, d) \
	WGMMA_EIGHT(c, d, 0), WGMMA_EIGHT(c, d, 2), WGMMA_EIGHT(c, d, 4), WGMMA_EIGHT(c, d, 6)
#define WGMMA_NAMES \
	"{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
	"%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"

/* Waits until at most LEFT batches are under way; d's has ended. */
template <int LEFT> static __device__ __forceinline__ void wgmma_wait(float (&d)[8][4])
{
	asm volatile("wgmma.wait_group.sync.aligned %32;"
		     : WGMMA_ALL("+f", d)
		     : "n"(LEFT)
		     : "memory");
}

/* The same for accumulators of other ended batches. */
static __device__ __forceinline__ void wgmma_ended(float (&d)[8][4])
{
	asm volatile("" : WGMMA_ALL("+f", d)::"memory");
}

/* d += a b: a is a fragment, b's rows are k. */
#define WGMMA_FROM_REGISTERS(type, element) \
	static __device__ __forceinline__ void wgmma_multiply( \
		float (&d)[8][4], const uint32_t (&a)[4], uint64_t b, element) \
	{ \
		asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type \
			     " " WGMMA_NAMES ", {%32, %33, %34, %35}, %36, 1, 1, 1, 1;" \
			     : WGMMA_ALL("+f", d) \
			     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)); \
	}

/*
 * d += a b, and d = a b (first); the columns of both are k. The latter does not read the old d,
 * which would have to be in place while something else is under way.
 */
#define WGMMA_FROM_MEMORY(name, type, element, constraint, plus) \
	static __device__ __forceinline__ void name( \
		float (&d)[8][4], uint64_t a, uint64_t b, element) \
	{ \
		asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type \
			     " " WGMMA_NAMES ", %32, %33, " plus ", 1, 1, 0, 0;" \
			     : WGMMA_ALL(constraint, d) \
			     : "l"(a), "l"(b)); \
	}

/* d += a b, and d = a b (first): a is a fragment, b's columns are k. */
#define WGMMA_FROM_REGISTERS_ROWS(name, type, element, constraint, plus) \
	static __device__ __forceinline__ void name( \
		float (&d)[8][4], const uint32_t (&a)[4], uint64_t b, element) \
	{ \
		asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type \
			     " " WGMMA_NAMES ", {%32, %33, %34, %35}, %36, " plus ", 1, 1, 0;" \
			     : WGMMA_ALL(constraint, d) \
			     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)); \
	}

#define WGMMA_OF(type, element) \
	WGMMA_FROM_REGISTERS(type, element) \
	WGMMA_FROM_REGISTERS_ROWS(wgmma_multiply_rows_first, type, element, "=f", "0") \
	WGMMA_FROM_REGISTERS_ROWS(wgmma_multiply_rows, type, element, "+f", "1") \
	WGMMA_FROM_MEMORY(wgmma_multiply_first, type, element, "=f", "0") \
	WGMMA_FROM_MEMORY(wgmma_multiply, type, element, "+f", "1")

WGMMA_OF("bf16", __nv_bfloat16)
WGMMA_OF("f16", __half)

/* d = tile a times the transpose of tile b. */
template <typename E>
static __device__ __forceinline__ void wgmma_times_rows(
	float (&d)[8][4], uint64_t a, uint64_t b, E type)
{
	wgmma_multiply_first(d, a, b, type);
#pragma unroll
	for (int k = 1; k < 4; k++)
		wgmma_multiply(d, wgmma_columns(a, k), wgmma_columns(b, k), type);
}

/* d = a times the transpose of tile b. */
template <typename E>
static __device__ __forceinline__ void wgmma_times_rows(
	float (&d)[8][4], const uint32_t (&a)[4][4], uint64_t b, E type)
{
	wgmma_multiply_rows_first(d, a[0], b, type);
#pragma unroll
	for (int k = 1; k < 4; k++)
		wgmma_multiply_rows(d, a[k], wgmma_columns(b, k), type);
}

/* d += a times tile b. */
template <typename E>
static __device__ __forceinline__ void wgmma_times_tile(
	float (&d)[8][4], const uint32_t (&a)[4][4], uint64_t b, E type)
{
#pragma unroll
	for (int k = 0; k < 4; k++)
		wgmma_multiply(d, a[k], wgmma_rows(b, k), type);
}

#endif

#endif
