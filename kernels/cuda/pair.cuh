/* pair.cuh: two elements of 16 bits in a word, the first in its low half. */
#ifndef GPT2D_KERNELS_CUDA_PAIR_CUH
#define GPT2D_KERNELS_CUDA_PAIR_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

static __device__ __forceinline__ void pair_unpack(
	float &low, float &high, uint32_t two, __nv_bfloat16)
{
	low = __uint_as_float(two << 16);
	high = __uint_as_float(two & 0xffff0000);
}

static __device__ __forceinline__ void pair_unpack(float &low, float &high, uint32_t two, __half)
{
	float2 x = __half22float2(*(__half2 *)&two);

	low = x.x;
	high = x.y;
}

static __device__ __forceinline__ uint32_t pair_pack(float low, float high, __nv_bfloat16)
{
	__nv_bfloat162 two = __floats2bfloat162_rn(low, high);

	return *(uint32_t *)&two;
}

static __device__ __forceinline__ uint32_t pair_pack(float low, float high, __half)
{
	__half2 two = __floats2half2_rn(low, high);

	return *(uint32_t *)&two;
}

#endif
