/*
 * gemm.cuh: matrix products by cuBLASLt, in its column-major terms, or by gemm_wgmma. The algorithm
 * for a shape is chosen once per context, by timing (gemm_trial.cuh), unless k_choices_set told one
 * by which this device and library can act.
 */
#ifndef GPT2D_KERNELS_CUDA_GEMM_CUH
#define GPT2D_KERNELS_CUDA_GEMM_CUH

#include "kernels/cuda/gemm_call.cuh"
#include "kernels/cuda/stream.cuh"

/* What the chosen algorithm takes; infinite when there is none for this call. */
double gemm_seconds(struct k_stream *s, const struct gemm_call *call);

/*
 * Of GEMM_DGELU_SUMS: the chosen algorithm writes so many rows to sums (parts,m), each the sums
 * over some of n of d as it is rounded, so that together they are those over all; 0: it makes none.
 */
int64_t gemm_sum_parts(struct k_stream *s, const struct gemm_call *call);

/* The context fails, under this name, when there is no algorithm. */
void gemm_run(struct k_stream *s, const char *name, const struct gemm_call *call);

/* Frees what was remembered. */
void gemm_forget(struct k_context *ctx);

#endif
