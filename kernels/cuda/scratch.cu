#include "kernels/cuda/scratch.cuh"

#include <errno.h>

/* The width of the blocks, and four times that in the MLP. */
enum { WIDE = 4 };

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* A model's linear layers; gelu: the width of a GELU before or after one, or 0. */
struct layers {
	struct {
		int64_t in, out, gelu;
	} layer[5];
};

static struct layers layers_of(const struct k_scratch_shape *shape)
{
	int64_t C = shape->C;

	return {{{C, 3 * C, 0}, {C, C, 0}, {C, WIDE * C, WIDE * C}, {WIDE * C, C, WIDE * C},
		{C, shape->Vp, 0}}};
}

/* All but attention, which runs on no branch. */
static size_t besides_attention(
	const struct k_context *ctx, const struct k_scratch_shape *shape, size_t order)
{
	struct layers all = layers_of(shape);
	size_t most = order;

	for (const auto &layer : all.layer)
		most = larger(most,
			scratch_linear_bytes(
				ctx, shape->dtype, shape->B * shape->T, layer.in, layer.out));
	return most;
}

int64_t k_choices_bytes(
	const struct k_context *ctx, const struct k_scratch_shape *shape, int64_t lent_bytes)
{
	struct layers all = layers_of(shape);
	size_t most = 0;

	for (const auto &layer : all.layer)
		most = larger(most,
			scratch_linear_trial_bytes(ctx, shape->dtype, shape->B * shape->T, layer.in,
				layer.out, layer.gelu, (size_t)lent_bytes));
	return (int64_t)most;
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
	part = larger(larger(scratch_layernorm_part_bytes(ctx, C),
			      scratch_attention_part_bytes(
				      ctx, shape->dtype, shape->B, shape->T, C)),
		larger(scratch_gelu_part_bytes(ctx, R, WIDE * C),
			scratch_linear_part_bytes(ctx, shape->dtype, R, WIDE * C)));
	bytes[K_SCRATCH_PRODUCTS] = STREAM_WORKSPACE_BYTES;
	bytes[K_SCRATCH_OPERATION] = (int64_t)larger(
		operation, scratch_attention_bytes(shape->B, shape->T, shape->NH));
	bytes[K_SCRATCH_PARTIAL] = (int64_t)(STREAM_PARTS * part);
	bytes[K_SCRATCH_BESIDE_PRODUCTS] = ctx->no_branches ? 0 : STREAM_WORKSPACE_BYTES;
	bytes[K_SCRATCH_BESIDE_OPERATION] = ctx->no_branches ? 0 : (int64_t)operation;
	return 0;
}
