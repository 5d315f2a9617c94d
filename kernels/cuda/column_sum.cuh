/* column_sum.cuh: sums over rows, in an order that the shape alone fixes. */
#ifndef GPT2D_KERNELS_CUDA_COLUMN_SUM_CUH
#define GPT2D_KERNELS_CUDA_COLUMN_SUM_CUH

#include "kernels/cuda/stream.cuh"

/*
 * out (n) += column sums of in (R,n), both of the compute type. Uses the stream's scratch memory,
 * in which in may lie only when R is 1.
 */
void column_sum_add(struct k_stream *s, void *out, const void *in, int64_t R, int64_t n);

/*
 * The last step of such a sum: out0 (n) and, unless NULL, out1 (n) += the column sums of partial
 * (parts, n or 2n), fp32: columns 0..n-1 go to out0, the others to out1.
 */
void column_sum_finish(
	struct k_stream *s, void *out0, void *out1, const float *partial, int64_t parts, int64_t n);

#endif
