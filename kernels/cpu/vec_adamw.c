#include "kernels/cpu/vec_isa.h"

static inline k_real root(k_real x)
{
#ifdef K_DOUBLE
	return sqrt(x);
#else
	return sqrtf(x);
#endif
}

/*
 * No fused multiply-add here: an element's update has the same bits on every processor and for any
 * slices of a bucket plan.
 */
void vec_adamw(k_real *master, k_real *params, k_real *m, k_real *v, const k_real *grads, int64_t n,
	const struct vec_adamw_args *args)
{
	struct vec_adamw_args a = *args;
	k_real rest1 = 1 - a.beta1, rest2 = 1 - a.beta2;

#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		k_real g = grads[i] * a.grad_mul, p = master[i];
		k_real mi = a.beta1 * m[i] + rest1 * g;
		k_real vi = a.beta2 * v[i] + rest2 * (g * g);
		k_real update = mi * a.correct1 / (root(vi * a.correct2) + a.eps);

		m[i] = mi;
		v[i] = vi;
		master[i] = p - a.lr * (update + a.weight_decay * p);
	}
	if (!params)
		return;
	for (int64_t i = 0; i < n; i++)
		params[i] = master[i];
}
