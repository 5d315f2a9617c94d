/* element.cuh: tensor elements in and out of fp32 registers, several at a time. */
#ifndef GPT2D_KERNELS_CUDA_ELEMENT_CUH
#define GPT2D_KERNELS_CUDA_ELEMENT_CUH

#include "kernels/cuda/context.cuh"

/* N elements of T in one access. */
template <typename T, int N> struct alignas(sizeof(T) * N) element_vec {
	T v[N];
};

/* As many as fit into an access of 16 bytes. */
template <typename T> struct element_wide {
	static const int n = 16 / sizeof(T);
};

static __device__ __forceinline__ float element_float(float x)
{
	return x;
}

static __device__ __forceinline__ float element_float(__nv_bfloat16 x)
{
	return __bfloat162float(x);
}

static __device__ __forceinline__ float element_float(__half x)
{
	return __half2float(x);
}

static __device__ __forceinline__ void element_set(float *to, float x)
{
	*to = x;
}

static __device__ __forceinline__ void element_set(__nv_bfloat16 *to, float x)
{
	*to = __float2bfloat16_rn(x);
}

static __device__ __forceinline__ void element_set(__half *to, float x)
{
	*to = __float2half_rn(x);
}

/* 2^x in one instruction, good to 2 units in the last place; 0 where float has no normal number */
static __device__ __forceinline__ float element_exp2(float x)
{
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

/* x as it is once stored */
template <typename T> static __device__ __forceinline__ float element_rounded(float x)
{
	T t;

	element_set(&t, x);
	return element_float(t);
}

template <typename T, int N>
static __device__ __forceinline__ void element_load(float (&x)[N], const T *from)
{
	element_vec<T, N> vec = *(const element_vec<T, N> *)from;

#pragma unroll
	for (int i = 0; i < N; i++)
		x[i] = element_float(vec.v[i]);
}

template <typename T, int N>
static __device__ __forceinline__ void element_store(T *to, const float (&x)[N])
{
	element_vec<T, N> vec;

#pragma unroll
	for (int i = 0; i < N; i++)
		element_set(&vec.v[i], x[i]);
	*(element_vec<T, N> *)to = vec;
}

/* Blocks for n pieces of work, per_block each, at most `most`; kernels stride over the rest. */
static inline unsigned int element_blocks(int64_t n, int64_t per_block, int64_t most)
{
	int64_t blocks = (n + per_block - 1) / per_block;

	return (unsigned int)(blocks < most ? (blocks > 0 ? blocks : 1) : most);
}

static inline bool element_aligned(const void *p, size_t bytes)
{
	return (uintptr_t)p % bytes == 0;
}

#endif
