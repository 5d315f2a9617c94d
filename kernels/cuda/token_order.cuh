/* token_order.cuh: the rows of a batch in order of their token. */
#ifndef GPT2D_KERNELS_CUDA_TOKEN_ORDER_CUH
#define GPT2D_KERNELS_CUDA_TOKEN_ORDER_CUH

#include "kernels/cuda/stream.cuh"

/* Both (R), one behind the other. */
struct token_order {
	const int32_t *tokens; /* rising */
	const int32_t *rows;   /* where they stood; rising within a token */
};

/*
 * tokens (R) on the device, not negative. What it returns is order (2 R), or when that is NULL lies
 * in the stream's scratch memory. NULL when the context has failed.
 */
int32_t *token_order_make(struct k_stream *s, int32_t *order, const int32_t *tokens, int64_t R);

#endif
