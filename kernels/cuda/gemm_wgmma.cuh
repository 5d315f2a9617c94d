/*
 * gemm_wgmma.cuh: matrix products in 16 bits on Hopper with GELU or its derivative in them, by
 * kernels of our own: what they do beside the product runs beside the next product, which
 * cuBLASLt's does not. Sums are taken in fp32 in one order, so the same call gives the same bits.
 */
#ifndef GPT2D_KERNELS_CUDA_GEMM_WGMMA_CUH
#define GPT2D_KERNELS_CUDA_GEMM_WGMMA_CUH

#include "kernels/cuda/context.cuh"
#include "kernels/cuda/gemm_call.cuh"

/* Another for kernels that give other bits or take other time: what was chosen holds no more. */
enum { GEMM_WGMMA_VERSION = 3 };

/* Whether there is anything of this for the device. */
bool gemm_wgmma_there(const struct k_context *ctx);

/* Whether the product is one of those that this is for; whether this device takes it. */
bool gemm_wgmma_kind(const struct k_product *product);
/*
 * Whether a product of that kind is left to this file alone: its aux is the derivative of GELU, in
 * fp16, written by the one and read by the other, and cuBLASLt's is what GELU is of. So the answer
 * hangs on nothing but what a layer's forward and backward have in common; a product that this
 * device then does not take is a failure.
 */
bool gemm_wgmma_alone(const struct k_context *ctx, const struct k_product *product);
bool gemm_wgmma_fits(const struct k_context *ctx, const struct k_product *product);

/* Rows of a call's sums, each of some of its n; the same for every device that has this. */
int64_t gemm_wgmma_sum_parts(int64_t n);
/* The same, or 0 where the device has nothing of this. */
int64_t gemm_wgmma_sum_parts_max(const struct k_context *ctx, int64_t n);

/* Of a call that fits: NULL, or why it was not launched. */
const char *gemm_wgmma_launch(
	struct k_context *ctx, const struct gemm_call *call, cudaStream_t stream);

#endif
