/*
 * gemm_wgmma.cuh: matrix products in 16 bits on Hopper, fused with GELU or its derivative, by our
 * own kernels: unlike cuBLASLt's, they overlap the fused operation with the next product. Sums are
 * in fp32 in one order, so the same call gives the same bits.
 */
#ifndef GPT2D_KERNELS_CUDA_GEMM_WGMMA_CUH
#define GPT2D_KERNELS_CUDA_GEMM_WGMMA_CUH

#include "kernels/cuda/context.cuh"
#include "kernels/cuda/gemm_call.cuh"

/* Change it with the kernels' bits or speed: older choices become invalid. */
enum { GEMM_WGMMA_VERSION = 3 };

/* Whether the device has these kernels. */
bool gemm_wgmma_there(const struct k_context *ctx);

/* Whether these kernels serve such a product; whether this device supports this one. */
bool gemm_wgmma_kind(const struct k_product *product);
/*
 * Whether only this file can compute a product of that kind: its aux is the derivative of GELU in
 * fp16, written by forward and read by backward; cuBLASLt's is the input of GELU. So the answer
 * depends only on properties that a layer's forward and backward share; if the device does not
 * support such a product, that is a failure.
 */
bool gemm_wgmma_alone(const struct k_context *ctx, const struct k_product *product);
bool gemm_wgmma_fits(const struct k_context *ctx, const struct k_product *product);

/* Rows of a call's sums, each over some of its n; the same for all devices of this kind. */
int64_t gemm_wgmma_sum_parts(int64_t n);
/* The same, or 0 on a device without these kernels. */
int64_t gemm_wgmma_sum_parts_max(const struct k_context *ctx, int64_t n);

/* For a call that fits: NULL, or why it was not launched. */
const char *gemm_wgmma_launch(
	struct k_context *ctx, const struct gemm_call *call, cudaStream_t stream);

#endif
