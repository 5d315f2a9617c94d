/*
 * vec_math.h: exp, erfc, log, sine and cosine that compilers turn into vector code. In double they
 * call libm. In float they are polynomials fitted for this file, by weighted least squares on
 * Chebyshev points towards equal error. Each polynomial is within 1e-8 of the function. So rounding
 * dominates: about 1 ulp for exp, 2e-7 absolute for the others.
 */
#ifndef GPT2D_KERNELS_CPU_VEC_MATH_H
#define GPT2D_KERNELS_CPU_VEC_MATH_H

#include "kernels/cpu/vec_isa.h"

#ifdef K_DOUBLE

static inline double vec_expf(double x)
{
	return exp(x);
}

/* erfc(z)/2, z >= 0; e = exp(-z^2) */
static inline double vec_half_erfc(double z, double e)
{
	return 0.5 * erfc(z);
}

static inline double vec_logf(double x)
{
	return log(x);
}

/* Sine and cosine of turns * 2 pi, turns in [0, 1). */
static inline void vec_sincos(double turns, double *sine, double *cosine)
{
	*sine = sin(turns * 6.283185307179586);
	*cosine = cos(turns * 6.283185307179586);
}

#else

union vec_bits {
	float f;
	uint32_t u;
};

/* 0 below -87.3, the end of float's range. exp(88) above 88. */
static inline float vec_expf(float x)
{
	const float low = -87.3f, high = 88.0f,
			round = 12582912.0f; /* 1.5 * 2^23: adding it rounds */
	float at = x < low ? low : x, k, r, q;
	union vec_bits t, power;

	at = at > high ? high : at;
	t.f = vec_fma(at, 1.44269504f, round);
	k = t.f - round;
	r = vec_fma(k, -0.693359375f, at);
	r = vec_fma(k, 2.12194440e-4f, r);
	q = vec_fma(1.39506001e-3f, r, 8.36895371e-3f);
	q = vec_fma(q, r, 4.16662042e-2f);
	q = vec_fma(q, r, 1.66665183e-1f);
	q = vec_fma(q, r, 5.00000010e-1f);
	q = vec_fma(q * r, r, r);
	power.u = (t.u + 127) << 23;
	return x < low ? 0.0f : vec_fma(q, power.f, power.f);
}

static inline float vec_half_erfc(float z, float e)
{
	float t = 1.0f / vec_fma(z, 0.4f, 1.0f), q;

	q = vec_fma(-3.10078262e-2f, t, 2.05736621e-1f);
	q = vec_fma(q, t, -5.17097618e-1f);
	q = vec_fma(q, t, 5.72010178e-1f);
	q = vec_fma(q, t, -3.04984391e-1f);
	q = vec_fma(q, t, 2.83242598e-1f);
	q = vec_fma(q, t, 1.25772694e-1f);
	q = vec_fma(q, t, 2.15766887e-1f);
	q = vec_fma(q, t, 2.24848543e-1f);
	q = vec_fma(q, t, 2.25712317e-1f);
	return 0.5f * e * (q * t);
}

/* x positive and normal */
static inline float vec_logf(float x)
{
	const uint32_t root_half =
		0x3f3504f3; /* sqrt(1/2): the mantissa goes to [sqrt(1/2), sqrt(2)) */
	union vec_bits b = {.f = x}, m;
	uint32_t above = b.u - root_half;
	float k = (float)((int32_t)above >> 23), r, q;

	m.u = (above & 0x7fffff) + root_half;
	r = m.f - 1.0f;
	q = vec_fma(-7.85954401e-2f, r, 1.28816218e-1f);
	q = vec_fma(q, r, -1.31287680e-1f);
	q = vec_fma(q, r, 1.41811962e-1f);
	q = vec_fma(q, r, -1.66245531e-1f);
	q = vec_fma(q, r, 2.00022861e-1f);
	q = vec_fma(q, r, -2.50008104e-1f);
	q = vec_fma(q, r, 3.33333167e-1f);
	q = vec_fma(q * r, r, -0.5f * r);
	q = vec_fma(q, r, r);
	return vec_fma(k, 0.693147181f, q);
}

static inline void vec_sincos(float turns, float *sine, float *cosine)
{
	float v = turns * 4.0f, f, s2, sn, cs;
	int32_t quarter = (int32_t)(v + 0.5f);
	union vec_bits a, b;

	f = v - (float)quarter;
	s2 = f * f;
	sn = vec_fma(-4.60217699e-3f, s2, 7.96802281e-2f);
	sn = vec_fma(sn, s2, -6.45963479e-1f);
	sn = vec_fma(sn, s2, 1.57079632f);
	sn *= f;
	cs = vec_fma(9.03631109e-4f, s2, -2.08600713e-2f);
	cs = vec_fma(cs, s2, 2.53669204e-1f);
	cs = vec_fma(cs, s2, -1.23370054f);
	cs = vec_fma(cs, s2, 1.0f);
	a.f = quarter & 1 ? cs : sn;
	b.f = quarter & 1 ? sn : cs;
	a.u ^= ((uint32_t)quarter & 2) << 30;
	b.u ^= ((uint32_t)(quarter + 1) & 2) << 30;
	*sine = a.f;
	*cosine = b.f;
}

#endif

#endif
