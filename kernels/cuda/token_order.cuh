/* token_order.cuh: the rows of a batch in order of their token. */
#ifndef GPT2D_KERNELS_CUDA_TOKEN_ORDER_CUH
#define GPT2D_KERNELS_CUDA_TOKEN_ORDER_CUH

#include "kernels/cuda/stream.cuh"

/* Both (R), in the stream's scratch memory. */
struct token_order {
	const int32_t *tokens; /* rising */
	const int32_t *rows;   /* where they stood; rising within a token */
};

/* tokens (R) on the device, not negative. False when the context has failed. */
bool token_order_make(
	struct k_stream *s, const int32_t *tokens, int64_t R, struct token_order *out);

#endif
