/*
 * gemm_choices.cuh: the algorithm of each matrix product, chosen here or set by k_choices_set; the
 * source of k_choices.
 */
#ifndef GPT2D_KERNELS_CUDA_GEMM_CHOICES_CUH
#define GPT2D_KERNELS_CUDA_GEMM_CHOICES_CUH

#include "kernels/cuda/context.cuh"

/* NULL: unknown. The context owns it; valid until the next is kept. */
struct k_choice *gemm_choices_find(const struct k_context *ctx, const struct k_product *product);

/* Replaces the product's choice or adds one; false: no memory for it. */
bool gemm_choices_keep(struct k_context *ctx, const struct k_choice *choice);

/* Frees all of them. */
void gemm_choices_forget(struct k_context *ctx);

#endif
