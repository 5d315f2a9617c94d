/* gelu.cuh: GELU by itself, for where the matrix product cannot take it along. */
#ifndef GPT2D_KERNELS_CUDA_GELU_CUH
#define GPT2D_KERNELS_CUDA_GELU_CUH

#include "kernels/cuda/stream.cuh"

/* out (n) = gelu(pre) */
void gelu_forward(struct k_stream *s, void *out, const void *pre, int64_t n, enum k_gelu gelu);
/* grad (n) *= gelu'(pre) */
void gelu_backward(struct k_stream *s, void *grad, const void *pre, int64_t n, enum k_gelu gelu);

#endif
