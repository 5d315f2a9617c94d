#include "kernels/cpu/vec_math.h"

static inline k_real larger(k_real a, k_real b)
{
	return a > b ? a : b;
}

/* Explicit lanes: clang keeps a plain loop scalar because of NaN. */
k_real vec_max(const k_real *x, int64_t n)
{
	enum { LANES = 32 };
	k_real lane[LANES], m = x[0];
	int64_t i = LANES;

	if (n >= LANES) {
		for (int j = 0; j < LANES; j++)
			lane[j] = x[j];
		for (; i + LANES <= n; i += LANES) {
#pragma omp simd
			for (int j = 0; j < LANES; j++)
				lane[j] = larger(x[i + j], lane[j]);
		}
		for (int j = 0; j < LANES; j++)
			m = larger(lane[j], m);
	} else {
		i = 0;
	}
	for (; i < n; i++)
		m = larger(x[i], m);
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
