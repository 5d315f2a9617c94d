#include "kernels/cpu/vec_isa.h"

void vec_add(k_real *out, const k_real *a, const k_real *b, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		out[i] = a[i] + b[i];
}

void vec_mul(k_real *out, const k_real *a, const k_real *b, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		out[i] = a[i] * b[i];
}

void vec_scale(k_real *x, int64_t n, k_real by)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		x[i] *= by;
}

k_real vec_dot(const k_real *a, const k_real *b, int64_t n)
{
	k_real sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

/* The square of a float is exact in double, so only the order of the additions matters. */
double vec_squares(const k_real *x, int64_t n)
{
	enum { LANES = K_SUM_LANES };
	double lane[LANES] = {0};
	int64_t i;

	for (i = 0; i + LANES <= n; i += LANES) {
#pragma omp simd
		for (int j = 0; j < LANES; j++)
			lane[j] += (double)x[i + j] * (double)x[i + j];
	}
	for (int j = 0; i + j < n; j++)
		lane[j] += (double)x[i + j] * (double)x[i + j];
	for (int width = LANES / 2; width > 0; width /= 2) {
		for (int j = 0; j < width; j++)
			lane[j] += lane[j + width];
	}
	return lane[0];
}
