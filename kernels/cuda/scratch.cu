#include "kernels/cuda/scratch.cuh"

#include <errno.h>

/* The blocks' width, and four times that inside of the MLP. */
enum { WIDE = 4 };

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* All but attention, which no branch is given. */
static size_t besides_attention(
	const struct k_context *ctx, const struct k_scratch_shape *shape, size_t order)
{
	int64_t R = shape->B * shape->T, C = shape->C;
	const int64_t layers[][2] = {
		{C, 3 * C}, {C, C}, {C, WIDE * C}, {WIDE * C, C}, {C, shape->Vp}};
	size_t most = order;

	for (const int64_t (&layer)[2] : layers)
		most = larger(most,
			scratch_linear_bytes(ctx, shape->dtype, R, layer[0], layer[1]));
	return most;
}

int k_scratch_plan(struct k_context *ctx, const struct k_scratch_shape *shape,
	int64_t bytes[K_SCRATCH_KINDS])
{
	int64_t R = shape->B * shape->T, C = shape->C;
	size_t order = 0, operation, part;

	if (!context_ready(ctx) ||
		!context_check(ctx, "k_scratch_plan",
			scratch_token_order_bytes(R, ctx->internal, &order)))
		return -EIO;
	operation = besides_attention(ctx, shape, order);
	part = larger(scratch_layernorm_part_bytes(ctx, C),
		scratch_gelu_part_bytes(ctx, R, WIDE * C));
	bytes[K_SCRATCH_PRODUCTS] = STREAM_WORKSPACE_BYTES;
	bytes[K_SCRATCH_OPERATION] = (int64_t)larger(
		operation, scratch_attention_bytes(shape->B, shape->T, shape->NH));
	bytes[K_SCRATCH_PARTIAL] = (int64_t)(STREAM_PARTS * part);
	bytes[K_SCRATCH_BESIDE_PRODUCTS] = ctx->no_branches ? 0 : STREAM_WORKSPACE_BYTES;
	bytes[K_SCRATCH_BESIDE_OPERATION] = ctx->no_branches ? 0 : (int64_t)operation;
	return 0;
}
