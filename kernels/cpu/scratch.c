#include "kernels/cpu/scratch.h"

#include "kernels/cpu/stream.h"

enum { ALIGN_BYTES = 64 }; /* of each thread's memory */

int k_scratch_plan(struct k_context *ctx, const struct k_scratch_shape *shape,
	int64_t bytes[K_SCRATCH_KINDS])
{
	size_t attention = scratch_attention_bytes(shape->T);
	size_t norm = scratch_layernorm_bytes(shape->C);
	size_t thread = attention > norm ? attention : norm;

	(void)ctx;
	thread = (thread + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
	for (int i = 0; i < K_SCRATCH_KINDS; i++)
		bytes[i] = 0;
	bytes[K_SCRATCH_OPERATION] = shape->threads * (int64_t)thread;
	bytes[K_SCRATCH_PARTIAL] =
		(int64_t)scratch_layernorm_shared_bytes(shape->B * shape->T, shape->C);
	return 0;
}

int64_t k_choices_bytes(
	const struct k_context *ctx, const struct k_scratch_shape *shape, int64_t lent_bytes)
{
	return 0;
}

int k_stream_reserve(struct k_stream *s, enum k_scratch kind, int64_t bytes)
{
	switch (kind) {
	case K_SCRATCH_OPERATION:
		return pool_take_scratch(
			s->pool, (size_t)bytes / (size_t)pool_threads(s->pool));
	case K_SCRATCH_PARTIAL:
		return pool_take_shared(s->pool, (size_t)bytes);
	default:
		return 0;
	}
}

int64_t k_stream_grown(const struct k_stream *s)
{
	return pool_grown(s->pool);
}
