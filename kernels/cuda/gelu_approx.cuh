/*
 * gelu_approx.cuh: GELU, tanh form, for results of 16 bits: x / (1 + exp(-2u)), u = sqrt(2/pi)(x +
 * 0.044715 x^3), with the hardware's 2^x and 1/x, accurate to some 1e-6.
 */
#ifndef GPT2D_KERNELS_CUDA_GELU_APPROX_CUH
#define GPT2D_KERNELS_CUDA_GELU_APPROX_CUH

#include "kernels/cuda/element.cuh"

static const float gelu_root_2_over_pi = 0.7978845608028654f, gelu_cubic = 0.044715f;

static __device__ __forceinline__ float gelu_approx_inverse(float x)
{
	float y;

	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

/* -2u log2(e) is x (linear + cubic x^2). */
static const float gelu_approx_linear = -2 * gelu_root_2_over_pi * 1.4426950408889634f;
static const float gelu_approx_cubic = gelu_approx_linear * gelu_cubic;

/* 1 / (1 + exp(-2u)); the exponential may be inf */
static __device__ __forceinline__ float gelu_approx_part(
	float x, float square, float linear, float cubic)
{
	return gelu_approx_inverse(1 + element_exp2(x * fmaf(cubic, square, linear)));
}

/* linear, cubic: as above, passed by the caller */
static __device__ __forceinline__ float gelu_approx(float x, float linear, float cubic)
{
	return x * gelu_approx_part(x, x * x, linear, cubic);
}

/*
 * The same, and slope: its derivative, part + gelu(x) (1 - part) 2u'. For |x| below 1.8e19, where
 * x^2 is finite.
 */
static __device__ __forceinline__ float gelu_approx_both(
	float x, float linear, float cubic, float &slope)
{
	const float twice = 2 * gelu_root_2_over_pi;
	float square = x * x, part = gelu_approx_part(x, square, linear, cubic), y = x * part;

	slope = fmaf(fmaf(-y, part, y), fmaf(3 * gelu_cubic * twice, square, twice), part);
	return y;
}

/*
 * Its derivative, for x within +-GELU_APPROX_HELD: beyond, it is 0 or 1 to the last bit, but an inf
 * could meet a 0.
 */
enum { GELU_APPROX_HELD = 15 };
static __device__ __forceinline__ float gelu_approx_slope(float x)
{
	const float linear = 2 * gelu_root_2_over_pi;
	float square = x * x;
	float part = gelu_approx_part(x, square, gelu_approx_linear, gelu_approx_cubic);

	return fmaf(
		x * fmaf(3 * gelu_cubic * linear, square, linear), fmaf(-part, part, part), part);
}

#endif
