/*
 * vec.h: the inner loops of the operations, on contiguous elements in one thread. The vec_*.c files
 * are built once per instruction set. A context has the best table that its processor can run.
 * Within one instruction set the result for an element does not depend on its position.
 */
#ifndef GPT2D_KERNELS_CPU_VEC_H
#define GPT2D_KERNELS_CPU_VEC_H

#include "kernels/kernels.h"

/* Scalars of one AdamW step, in the type of its arithmetic. */
struct vec_adamw_args {
	k_real grad_mul, beta1, beta2, lr, eps, weight_decay;
	k_real correct1, correct2; /* 1/(1 - beta^t) */
};

struct vec_key {
	uint64_t seed;  /* the Philox key */
	uint64_t place; /* the counter's upper half; the index of four elements is its lower half */
};

enum { VEC_PHILOX_WORDS = 64 };

struct vec {
	const char *name;

	/* vec_gelu.c */
	void (*gelu)(k_real *out, const k_real *pre, int64_t n, enum k_gelu gelu);
	void (*gelu_backward)(
		k_real *grad, const k_real *pre, int64_t n, enum k_gelu gelu); /* *= */

	/* vec_norm.c: one row of C */
	void (*norm)(k_real *out, k_real *mean, k_real *rstd, const k_real *inp,
		const k_real *weight, const k_real *bias, int64_t C);
	void (*norm_backward)(k_real *dinp, k_real *dweight, k_real *dbias, const k_real *dout,
		const k_real *inp, const k_real *weight, k_real mean, k_real rstd, int64_t C);

	/* vec_softmax.c */
	k_real (*max)(const k_real *x, int64_t n); /* n >= 1 */
	/* out = exp(scale*x - shift), out may be x; returns their sum */
	k_real (*exp)(k_real *out, const k_real *x, int64_t n, k_real scale, k_real shift);
	k_real (*exp_sum)(const k_real *x, int64_t n, k_real scale, k_real shift);
	/* dprob = prob * (dprob - mean) * scale */
	void (*softmax_backward)(
		k_real *dprob, const k_real *prob, int64_t n, k_real mean, k_real scale);

	/* vec_add.c */
	void (*add)(k_real *out, const k_real *a, const k_real *b, int64_t n);
	void (*mul)(k_real *out, const k_real *a, const k_real *b, int64_t n);
	void (*scale)(k_real *x, int64_t n, k_real by);
	k_real (*dot)(const k_real *a, const k_real *b, int64_t n);
	/* Sum of squares of at most K_SUM_BLOCK_ELEMS, in the order that kernels.h fixes. */
	double (*squares)(const k_real *x, int64_t n);

	/* vec_adamw.c; params may be NULL */
	void (*adamw)(k_real *master, k_real *params, k_real *m, k_real *v, const k_real *grads,
		int64_t n, const struct vec_adamw_args *args);

	/* vec_random.c: philox gives 16 blocks from counter on; the others give elements first ..
	 * first+n-1 of the sequence */
	void (*philox)(uint32_t words[VEC_PHILOX_WORDS], struct vec_key key, uint64_t counter);
	void (*dropout_mask)(k_real *mask, int64_t n, struct vec_key key, int64_t first, double p);
	void (*normal)(
		k_real *out, int64_t n, struct vec_key key, int64_t first, double mean, double std);
};

/* Table number index of those that this processor can run, best first. NULL: there is none. */
const struct vec *vec_choose(int index);

#endif
