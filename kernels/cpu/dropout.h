/* dropout.h: the mask of a dropout for any run of elements. */
#ifndef GPT2D_KERNELS_CPU_DROPOUT_H
#define GPT2D_KERNELS_CPU_DROPOUT_H

#include "kernels/cpu/vec.h"

/* A copy for an operation's arguments. NULL becomes p = 0. */
struct k_dropout dropout_copy(const struct k_dropout *drop);

/* Replaces the pointer offset by its value. An operation calls it when it runs. */
void dropout_resolve(struct k_dropout *drop);

/* mask (n): 0 or 1/(1-p) for elements first .. first+n-1. */
void dropout_mask(const struct vec *vec, k_real *mask, int64_t n, const struct k_dropout *drop,
	int64_t first);

/* out = in * mask, without a buffer for the whole mask. out may be in. p = 0 copies. */
void dropout_apply(const struct vec *vec, k_real *out, const k_real *in, int64_t n,
	const struct k_dropout *drop, int64_t first);

#endif
