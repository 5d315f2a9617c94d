#include "kernels/cpu/vec_math.h"

static const k_real root_2_over_pi = (k_real)0.7978845608028654;
static const k_real cubic = (k_real)0.044715;
static const k_real root_half = (k_real)0.7071067811865476;
static const k_real inv_root_2pi = (k_real)0.3989422804014327;

/*
 * Both are x*P(x). tanh form: (1 + tanh u)/2 = 1/(1 + exp(-2u)), u = sqrt(2/pi)(x + 0.044715 x^3).
 * Exact form: P(x) = (1 + erf(x/sqrt 2))/2. x is clamped to +-15, where P is already 0 or 1, so
 * that nothing overflows.
 */
static inline k_real held(k_real x)
{
	k_real y = x < -15 ? -15 : x;

	return y > 15 ? 15 : y;
}

static inline k_real tanh_exp(k_real x)
{
	return vec_expf(-2 * root_2_over_pi * x * vec_fma(cubic, x * x, 1));
}

/* 1 - P is e*P: no difference of nearly equal numbers. */
static inline k_real tanh_derivative(k_real x)
{
	k_real at = held(x), e = tanh_exp(at), part = 1 / (1 + e);
	k_real du = root_2_over_pi * vec_fma(3 * cubic, at * at, 1);

	return vec_fma(2 * at * part * (e * part), du, part);
}

static inline k_real exact_part(k_real x, k_real e)
{
	k_real c = vec_half_erfc((x < 0 ? -x : x) * root_half, e);

	return x > 0 ? 1 - c : c;
}

static inline k_real exact_derivative(k_real x)
{
	k_real at = held(x), e = vec_expf((k_real)-0.5 * at * at);

	return vec_fma(at * inv_root_2pi, e, exact_part(at, e));
}

void vec_gelu(k_real *out, const k_real *pre, int64_t n, enum k_gelu gelu)
{
	if (gelu == K_GELU_TANH) {
#pragma omp simd
		for (int64_t i = 0; i < n; i++)
			out[i] = pre[i] / (1 + tanh_exp(held(pre[i])));
	} else {
#pragma omp simd
		for (int64_t i = 0; i < n; i++) {
			k_real at = held(pre[i]);

			out[i] = pre[i] * exact_part(at, vec_expf((k_real)-0.5 * at * at));
		}
	}
}

void vec_gelu_backward(k_real *grad, const k_real *pre, int64_t n, enum k_gelu gelu)
{
	if (gelu == K_GELU_TANH) {
#pragma omp simd
		for (int64_t i = 0; i < n; i++)
			grad[i] *= tanh_derivative(pre[i]);
	} else {
#pragma omp simd
		for (int64_t i = 0; i < n; i++)
			grad[i] *= exact_derivative(pre[i]);
	}
}
