/*
 * wgmma_wide.cuh: Hopper's matrix units on 192 columns at a time: 64 x 16 times 16 x 192, both in
 * shared memory, in consecutive tiles of wgmma.cuh: A is one, B three; k is A's columns and B's
 * columns or (TURNED) rows. Only for sm_90a.
 */
#ifndef GPT2D_KERNELS_CUDA_WGMMA_WIDE_CUH
#define GPT2D_KERNELS_CUDA_WGMMA_WIDE_CUH

#include "kernels/cuda/wgmma.cuh"

#if WGMMA_THERE

/* Consecutive tiles, in either dimension. */
static __device__ __forceinline__ uint64_t wgmma_tiles(uint32_t address)
{
	const uint64_t next_tile = WGMMA_TILE_BYTES >> 4, rows8 = 1024 >> 4;

	return (uint64_t)((address & 0x3ffff) >> 4) | next_tile << 16 | rows8 << 32 |
		UINT64_C(1) << 62;
}

#define WGMMA_WIDE_ALL(c, d) \
	WGMMA_EIGHT(c, d, 0), WGMMA_EIGHT(c, d, 2), WGMMA_EIGHT(c, d, 4), WGMMA_EIGHT(c, d, 6), \
		WGMMA_EIGHT(c, d, 8), WGMMA_EIGHT(c, d, 10), WGMMA_EIGHT(c, d, 12), \
		WGMMA_EIGHT(c, d, 14), WGMMA_EIGHT(c, d, 16), WGMMA_EIGHT(c, d, 18), \
		WGMMA_EIGHT(c, d, 20), WGMMA_EIGHT(c, d, 22)
#define WGMMA_WIDE_NAMES \
	"{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
	"%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, " \
	"%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
	"%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, " \
	"%70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, " \
	"%87, %88, %89, %90, %91, %92, %93, %94, %95}"

/* d += a b */
#define WGMMA_WIDE(type, element) \
	template <bool TURNED> \
	static __device__ __forceinline__ void wgmma_wide( \
		float (&d)[24][4], uint64_t a, uint64_t b, element) \
	{ \
		asm volatile("wgmma.mma_async.sync.aligned.m64n192k16.f32." type "." type \
			     " " WGMMA_WIDE_NAMES ", %96, %97, 1, 1, 1, 0, %98;" \
			     : WGMMA_WIDE_ALL("+f", d) \
			     : "l"(a), "l"(b), "n"((int)TURNED)); \
	}

WGMMA_WIDE("bf16", __nv_bfloat16)
WGMMA_WIDE("f16", __half)

/* Waits until at most LEFT batches are under way. Read results after wgmma_wide_ended. */
template <int LEFT> static __device__ __forceinline__ void wgmma_wide_wait()
{
	asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

static __device__ __forceinline__ void wgmma_wide_ended(float (&d)[24][4])
{
	asm volatile("" : WGMMA_WIDE_ALL("+f", d)::"memory");
}

#endif

#endif
