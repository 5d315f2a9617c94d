#include "kernels/cpu/vec_math.h"

k_real vec_max(const k_real *x, int64_t n)
{
	k_real m = x[0];

#pragma omp simd reduction(max : m)
	for (int64_t i = 0; i < n; i++)
		m = x[i] > m ? x[i] : m;
	return m;
}

k_real vec_exp(k_real *out, const k_real *x, int64_t n, k_real scale, k_real shift)
{
	k_real sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t i = 0; i < n; i++) {
		k_real e = vec_expf(vec_fma(x[i], scale, -shift));

		out[i] = e;
		sum += e;
	}
	return sum;
}

k_real vec_exp_sum(const k_real *x, int64_t n, k_real scale, k_real shift)
{
	k_real sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t i = 0; i < n; i++)
		sum += vec_expf(vec_fma(x[i], scale, -shift));
	return sum;
}

void vec_softmax_backward(k_real *dprob, const k_real *prob, int64_t n, k_real mean, k_real scale)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		dprob[i] = prob[i] * (dprob[i] - mean) * scale;
}
