/* vec_isa.h: names of the vec functions of one instruction set. The build sets VEC_ISA. */
#ifndef GPT2D_KERNELS_CPU_VEC_ISA_H
#define GPT2D_KERNELS_CPU_VEC_ISA_H

#include <math.h>

#include "kernels/cpu/vec.h"

#define VEC_JOIN(name, isa)   name##_##isa
#define VEC_EXPAND(name, isa) VEC_JOIN(name, isa)
#define VEC_NAME(name)        VEC_EXPAND(name, VEC_ISA)

#define vec_gelu             VEC_NAME(vec_gelu)
#define vec_gelu_backward    VEC_NAME(vec_gelu_backward)
#define vec_norm             VEC_NAME(vec_norm)
#define vec_norm_backward    VEC_NAME(vec_norm_backward)
#define vec_max              VEC_NAME(vec_max)
#define vec_exp              VEC_NAME(vec_exp)
#define vec_exp_sum          VEC_NAME(vec_exp_sum)
#define vec_softmax_backward VEC_NAME(vec_softmax_backward)
#define vec_add              VEC_NAME(vec_add)
#define vec_mul              VEC_NAME(vec_mul)
#define vec_scale            VEC_NAME(vec_scale)
#define vec_dot              VEC_NAME(vec_dot)
#define vec_squares          VEC_NAME(vec_squares)
#define vec_adamw            VEC_NAME(vec_adamw)
#define vec_philox           VEC_NAME(vec_philox)
#define vec_dropout_mask     VEC_NAME(vec_dropout_mask)
#define vec_normal           VEC_NAME(vec_normal)
#define vec_table            VEC_NAME(vec_table)

/* a*b + c. Rounded once if the instruction set has a fused multiply-add. */
static inline k_real vec_fma(k_real a, k_real b, k_real c)
{
#if !defined(__FMA__)
	return a * b + c;
#elif defined(K_DOUBLE)
	return fma(a, b, c);
#else
	return fmaf(a, b, c);
#endif
}

extern const struct vec vec_table;

void vec_gelu(k_real *out, const k_real *pre, int64_t n, enum k_gelu gelu);
void vec_gelu_backward(k_real *grad, const k_real *pre, int64_t n, enum k_gelu gelu);
void vec_norm(k_real *out, k_real *mean, k_real *rstd, const k_real *inp, const k_real *weight,
	const k_real *bias, int64_t C);
void vec_norm_backward(k_real *dinp, k_real *dweight, k_real *dbias, const k_real *dout,
	const k_real *inp, const k_real *weight, k_real mean, k_real rstd, int64_t C);
k_real vec_max(const k_real *x, int64_t n);
k_real vec_exp(k_real *out, const k_real *x, int64_t n, k_real scale, k_real shift);
k_real vec_exp_sum(const k_real *x, int64_t n, k_real scale, k_real shift);
void vec_softmax_backward(k_real *dprob, const k_real *prob, int64_t n, k_real mean, k_real scale);
void vec_add(k_real *out, const k_real *a, const k_real *b, int64_t n);
void vec_mul(k_real *out, const k_real *a, const k_real *b, int64_t n);
void vec_scale(k_real *x, int64_t n, k_real by);
k_real vec_dot(const k_real *a, const k_real *b, int64_t n);
double vec_squares(const k_real *x, int64_t n);
void vec_adamw(k_real *master, k_real *params, k_real *m, k_real *v, const k_real *grads, int64_t n,
	const struct vec_adamw_args *args);
void vec_philox(uint32_t words[VEC_PHILOX_WORDS], struct vec_key key, uint64_t counter);
void vec_dropout_mask(k_real *mask, int64_t n, struct vec_key key, int64_t first, double p);
void vec_normal(k_real *out, int64_t n, struct vec_key key, int64_t first, double mean, double std);

#endif
