/* turn.cuh: a matrix of fp32 with rows and columns exchanged. */
#ifndef GPT2D_KERNELS_CUDA_TURN_CUH
#define GPT2D_KERNELS_CUDA_TURN_CUH

#include "kernels/cuda/stream.cuh"

enum { TURN_ROWS = 128 };

/* Whether in (R,n) can be turned: R and n are multiples of 16 bytes. */
bool turn_fits(const void *in, int64_t R, int64_t n);

static inline int64_t turn_parts(int64_t R)
{
	return (R + TURN_ROWS - 1) / TURN_ROWS;
}

/*
 * out (n,R) = in (R,n) transposed; they do not overlap. partial: NULL, or (turn_parts(R),n), the
 * sums of each column over TURN_ROWS rows.
 */
void turn_matrix(
	struct k_stream *s, float *out, float *partial, const float *in, int64_t R, int64_t n);

#endif
