/*
 * scratch.cuh: the memory that operations take of a stream. Each function is in its operation's
 * file, which requests that size or less; k_scratch_plan combines them.
 */
#ifndef GPT2D_KERNELS_CUDA_SCRATCH_CUH
#define GPT2D_KERNELS_CUDA_SCRATCH_CUH

#include "kernels/cuda/stream.cuh"

/* Of stream_scratch. */
size_t scratch_attention_bytes(int64_t B, int64_t T, int64_t NH);
size_t scratch_column_sum_bytes(const struct k_context *ctx, int64_t R, int64_t n);
/* Any product of the layer, forward and backward. */
size_t scratch_linear_bytes(
	const struct k_context *ctx, enum k_dtype dtype, int64_t R, int64_t C, int64_t OC);
/*
 * The most that a trial of such a product takes beside the lent memory. gelu: the width of the
 * layer's GELU, after it (OC) or before it (C); 0: there is none.
 */
size_t scratch_linear_trial_bytes(const struct k_context *ctx, enum k_dtype dtype, int64_t R,
	int64_t C, int64_t OC, int64_t gelu, size_t lent_bytes);
cudaError_t scratch_token_order_bytes(int64_t R, cudaStream_t stream, size_t *out);

/* Of one stream_part. */
size_t scratch_layernorm_part_bytes(const struct k_context *ctx, int64_t C);
size_t scratch_attention_part_bytes(
	const struct k_context *ctx, enum k_dtype dtype, int64_t B, int64_t T, int64_t C);
size_t scratch_gelu_part_bytes(const struct k_context *ctx, int64_t R, int64_t C);
/* Of a layer whose C comes from GELU. */
size_t scratch_linear_part_bytes(
	const struct k_context *ctx, enum k_dtype dtype, int64_t R, int64_t C);

#endif
