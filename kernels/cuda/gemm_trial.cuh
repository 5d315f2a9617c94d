/* gemm_trial.cuh: the fastest algorithm for a matrix product, by timing. */
#ifndef GPT2D_KERNELS_CUDA_GEMM_TRIAL_CUH
#define GPT2D_KERNELS_CUDA_GEMM_TRIAL_CUH

#include "kernels/cuda/gemm_plan.cuh"

/*
 * Sets the plan's choice and workspace_bytes for a call, one of the plan's: times its candidates in
 * turn, on other memory and another stream than the call's. Without enough memory (k_choices_bytes
 * gives the size) it takes the first and sets the choice's timed to 0; without a candidate the
 * choice's picoseconds stay -1.
 */
void gemm_trial_choose(struct k_context *ctx, struct gemm_plan *p, const struct gemm_call *c);

#endif
