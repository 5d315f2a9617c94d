/* token_order.cuh: the rows of a batch, sorted by token. */
#ifndef GPT2D_KERNELS_CUDA_TOKEN_ORDER_CUH
#define GPT2D_KERNELS_CUDA_TOKEN_ORDER_CUH

#include "kernels/cuda/stream.cuh"

/* Both (R), one after the other. */
struct token_order {
	const int32_t *tokens; /* rising */
	const int32_t *rows;   /* old positions; rising within a token */
};

/*
 * tokens (R) on the device, not negative. The result is in order (2 R), or if order is NULL in the
 * stream's scratch memory. NULL: the context has failed.
 */
int32_t *token_order_make(struct k_stream *s, int32_t *order, const int32_t *tokens, int64_t R);

#endif
