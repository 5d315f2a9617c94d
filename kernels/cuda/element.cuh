/* element.cuh: tensor elements to and from fp32 registers, several at a time. */
#ifndef GPT2D_KERNELS_CUDA_ELEMENT_CUH
#define GPT2D_KERNELS_CUDA_ELEMENT_CUH

#include <string.h>

#include "kernels/cuda/context.cuh"

/* N elements of T in one access. */
template <typename T, int N> struct alignas(sizeof(T) * N) element_vec {
	T v[N];
};

/* As many as an access of 16 bytes holds. */
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

/* 2^x in one instruction, within 2 units in the last place; 0 where the result is subnormal */
static __device__ __forceinline__ float element_exp2(float x)
{
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

/* x rounded as when stored */
template <typename T> static __device__ __forceinline__ float element_rounded(float x)
{
	T t;

	element_set(&t, x);
	return element_float(t);
}

template <typename T, bool WORDS> struct element_word {
	typedef uint32_t type;
};
template <typename T> struct element_word<T, false> {
	typedef T type;
};

/*
 * N elements as in memory, in words if they fill these: the compiler would give each 16-bit element
 * a register.
 */
template <typename T, int N> struct element_packed {
	typedef typename element_word<T, sizeof(T) * N % sizeof(uint32_t) == 0>::type word;
	static const int per_word = sizeof(word) / sizeof(T);
	element_vec<word, N / per_word> words;
};

/*
 * A word's elements, the low half first: one instruction each, instead of two for an element in its
 * own 16-bit register.
 */
static __device__ __forceinline__ void element_of_word(float (&x)[2], uint32_t word, __nv_bfloat16)
{
	x[0] = __uint_as_float(word << 16);
	x[1] = __uint_as_float(word & 0xffff0000);
}

template <typename T, int PER_WORD, typename W>
static __device__ __forceinline__ void element_of_word(float (&x)[PER_WORD], W word, T)
{
	element_vec<T, PER_WORD> vec;

	memcpy(&vec, &word, sizeof vec);
#pragma unroll
	for (int j = 0; j < PER_WORD; j++)
		x[j] = element_float(vec.v[j]);
}

template <typename T, int N>
static __device__ __forceinline__ void element_unpack(
	float (&x)[N], const struct element_packed<T, N> &from)
{
	const int per_word = element_packed<T, N>::per_word;

#pragma unroll
	for (int i = 0; i < N / per_word; i++) {
		float of[per_word];

		element_of_word(of, from.words.v[i], T());
#pragma unroll
		for (int j = 0; j < per_word; j++)
			x[i * per_word + j] = of[j];
	}
}

template <typename T, int N>
static __device__ __forceinline__ void element_load(float (&x)[N], const T *from)
{
	struct element_packed<T, N> packed = *(const struct element_packed<T, N> *)from;

	element_unpack(x, packed);
}

template <typename T, int N>
static __device__ __forceinline__ void element_pack(
	struct element_packed<T, N> &to, const float (&x)[N])
{
	const int per_word = element_packed<T, N>::per_word;

#pragma unroll
	for (int i = 0; i < N / per_word; i++) {
		element_vec<T, per_word> vec;

#pragma unroll
		for (int j = 0; j < per_word; j++)
			element_set(&vec.v[j], x[i * per_word + j]);
		memcpy(&to.words.v[i], &vec, sizeof vec);
	}
}

template <typename T, int N>
static __device__ __forceinline__ void element_store(T *to, const float (&x)[N])
{
	struct element_packed<T, N> packed;

	element_pack(packed, x);
	if constexpr (sizeof packed == sizeof(uint64_t)) {
		uint64_t whole; /* from two words the compiler may make two accesses */

		memcpy(&whole, &packed, sizeof whole);
		*(uint64_t *)to = whole;
	} else {
		*(struct element_packed<T, N> *)to = packed;
	}
}

/* Blocks for n items, per_block each, at most `most`; kernels stride over the rest. */
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
