/* gelu.cuh: GELU as a separate pass, where the matrix product cannot fuse it. */
#ifndef GPT2D_KERNELS_CUDA_GELU_CUH
#define GPT2D_KERNELS_CUDA_GELU_CUH

#include "kernels/cuda/stream.cuh"

/* out (n) = gelu(pre) */
void gelu_forward(struct k_stream *s, void *out, const void *pre, int64_t n, enum k_gelu gelu);
/* grad (R,C) *= gelu'(pre); dsum (C; NULL: not wanted) += its column sums, on a branch of s. */
void gelu_backward(struct k_stream *s, void *grad, void *dsum, const void *pre, int64_t R,
	int64_t C, enum k_gelu gelu);

#endif
