/*
 * gemm_choices.cuh: which algorithm each matrix product takes, as it was chosen here or told by
 * k_choices_set; what k_choices gives out.
 */
#ifndef GPT2D_KERNELS_CUDA_GEMM_CHOICES_CUH
#define GPT2D_KERNELS_CUDA_GEMM_CHOICES_CUH

#include "kernels/cuda/context.cuh"

/* NULL: none is known. The context's own, until the next is kept. */
struct k_choice *gemm_choices_find(const struct k_context *ctx, const struct k_product *product);

/* Instead of what is known for the product, or as one more; false: no memory for it. */
bool gemm_choices_keep(struct k_context *ctx, const struct k_choice *choice);

/* Frees all of them. */
void gemm_choices_forget(struct k_context *ctx);

#endif
