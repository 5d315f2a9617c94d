/*
 * gemm.cuh: matrix products by cuBLASLt, in its column-major terms, or by gemm_wgmma. Each context
 * chooses the algorithm for a shape once, by timing (gemm_trial.cuh), unless k_choices_set gave one
 * that this device and library support.
 */
#ifndef GPT2D_KERNELS_CUDA_GEMM_CUH
#define GPT2D_KERNELS_CUDA_GEMM_CUH

#include "kernels/cuda/gemm_call.cuh"
#include "kernels/cuda/stream.cuh"

/* The chosen algorithm's time; infinite when there is none for this call. */
double gemm_seconds(struct k_stream *s, const struct gemm_call *call);

/*
 * For GEMM_DGELU_SUMS: the number of rows that the chosen algorithm writes to sums (parts,m). Each
 * row sums the rounded d over some of n; together they cover all of n. 0: it writes none.
 */
int64_t gemm_sum_parts(struct k_stream *s, const struct gemm_call *call);

/* Without an algorithm the context fails, under this name. */
void gemm_run(struct k_stream *s, const char *name, const struct gemm_call *call);

/* Frees all plans. */
void gemm_forget(struct k_context *ctx);

#endif
