/* gemm_trial.cuh: the fastest algorithm for a matrix product, by timing. */
#ifndef GPT2D_KERNELS_CUDA_GEMM_TRIAL_CUH
#define GPT2D_KERNELS_CUDA_GEMM_TRIAL_CUH

#include "kernels/cuda/gemm_plan.cuh"

/*
 * The plan's choice and its workspace_bytes, for a call that is one of the plan's: its candidates
 * are timed in turn, on memory and a stream that are not the call's. Without enough memory for that
 * (k_choices_bytes says how much) the first is taken and the choice's timed is 0; without a
 * candidate the choice's picoseconds stay -1.
 */
void gemm_trial_choose(struct k_context *ctx, struct gemm_plan *p, const struct gemm_call *c);

#endif
