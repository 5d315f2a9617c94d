#include "kernels/cpu/vec_isa.h"

static const double epsilon = 1e-5;

void vec_norm(k_real *out, k_real *mean, k_real *rstd, const k_real *inp, const k_real *weight,
	const k_real *bias, int64_t C)
{
	k_real sum = 0, squares = 0, m, r;

#pragma omp simd reduction(+ : sum)
	for (int64_t i = 0; i < C; i++)
		sum += inp[i];
	m = sum / (k_real)C;
#pragma omp simd reduction(+ : squares)
	for (int64_t i = 0; i < C; i++)
		squares += (inp[i] - m) * (inp[i] - m);
	r = (k_real)(1 / sqrt((double)squares / (double)C + epsilon));
#pragma omp simd
	for (int64_t i = 0; i < C; i++)
		out[i] = vec_fma((inp[i] - m) * r, weight[i], bias[i]);
	*mean = m;
	*rstd = r;
}

/*
 * With x the normed input and d = dout * weight: dinp += rstd * (d - mean(d) - x * mean(d x)),
 * dweight += dout x, dbias += dout (Ba, Kiros, Hinton, arXiv:1607.06450, differentiated).
 */
void vec_norm_backward(k_real *dinp, k_real *dweight, k_real *dbias, const k_real *dout,
	const k_real *inp, const k_real *weight, k_real mean, k_real rstd, int64_t C)
{
	k_real sum = 0, with_x = 0;

#pragma omp simd reduction(+ : sum, with_x)
	for (int64_t i = 0; i < C; i++) {
		k_real x = (inp[i] - mean) * rstd, d = dout[i] * weight[i];

		sum += d;
		with_x += d * x;
		dweight[i] = vec_fma(dout[i], x, dweight[i]);
		dbias[i] += dout[i];
	}
	sum /= (k_real)C;
	with_x /= (k_real)C;
#pragma omp simd
	for (int64_t i = 0; i < C; i++) {
		k_real x = (inp[i] - mean) * rstd, d = dout[i] * weight[i];

		dinp[i] = vec_fma(rstd, vec_fma(-x, with_x, d - sum), dinp[i]);
	}
}
