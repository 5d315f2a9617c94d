#include "kernels/cuda/attention.cuh"

#include <math.h>

#include "kernels/cuda/column_sum.cuh"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/scratch.cuh"

enum { DELTA_WARPS = 8 };

/* A warp has one query of one head. */
template <typename E>
static __global__ void attention_delta(
	float *delta, const E *dout, const E *out, int64_t rows, int64_t T, int64_t NH, int64_t HS)
{
	int64_t row = (int64_t)blockIdx.x * DELTA_WARPS + threadIdx.x / REDUCE_WARP;
	int64_t b = row / (NH * T), t = row / NH % T, h = row % NH, at = row * HS;
	float sum = 0;

	if (row >= rows)
		return;
	for (int64_t d = threadIdx.x % REDUCE_WARP; d < HS; d += REDUCE_WARP)
		sum = fmaf(element_float(dout[at + d]), element_float(out[at + d]), sum);
	sum = reduce_warp_sum(sum);
	if (threadIdx.x % REDUCE_WARP == 0)
		delta[(b * NH + h) * T + t] = sum;
}

/* All ways but the plain one need one head size and rows readable 16 bytes at a time. */
static bool can(const struct k_context *ctx, enum k_attention way, int64_t HS,
	const void *const *all, int n)
{
	bool half = ctx->dtype == K_BF16 || ctx->dtype == K_FP16, aligned = true, fits;

	for (int i = 0; i < n; i++)
		aligned = aligned && element_aligned(all[i], 16);
	fits = aligned && HS == ATTENTION_MMA_HS;
	switch (way) {
	case K_ATTENTION_WGMMA:
		return fits && half && ATTENTION_WGMMA_BUILT &&
			ctx->capability == ATTENTION_WGMMA_CAPABILITY;
	case K_ATTENTION_MMA:
		return fits && ctx->capability >= ATTENTION_MMA_CAPABILITY;
	case K_ATTENTION_WMMA:
		return fits && half &&
			ctx->capability >= (ctx->dtype == K_BF16 ? ATTENTION_WMMA_BF16_CAPABILITY
								 : ATTENTION_WMMA_CAPABILITY);
	case K_ATTENTION_TILED:
		return aligned && !half && HS == ATTENTION_TILED_HS &&
			ctx->capability >= ATTENTION_TILED_CAPABILITY;
	case K_ATTENTION_PLAIN:
	case K_ATTENTION_BEST:
		break;
	}
	return true;
}

/* K_ATTENTION_BEST: the requested way is impossible; the context has failed. */
static enum k_attention choose(
	struct k_context *ctx, const char *name, int64_t HS, const void *const *all, int n)
{
	static const enum k_attention ways[] = {K_ATTENTION_WGMMA, K_ATTENTION_MMA,
		K_ATTENTION_WMMA, K_ATTENTION_TILED, K_ATTENTION_PLAIN};

	for (int i = 0; i < 5; i++) {
		if (ctx->attention != K_ATTENTION_BEST && ctx->attention != ways[i])
			continue;
		if (can(ctx, ways[i], HS, all, n))
			return ways[i];
	}
	context_fail(ctx,
		"%s: way %d asked for, but not there for head size %lld in this type on %s", name,
		(int)ctx->attention, (long long)HS, ctx->name);
	return K_ATTENTION_BEST;
}

static void forward(struct k_stream *s, enum k_attention way, const struct attention<float> &a)
{
	if (way == K_ATTENTION_MMA)
		attention_tf32_forward(s, a);
	else if (way == K_ATTENTION_TILED)
		attention_tiled_forward(s, a);
	else
		attention_plain_forward(s, a);
}

template <typename E>
static void forward(struct k_stream *s, enum k_attention way, const struct attention<E> &a)
{
	if (way == K_ATTENTION_WGMMA)
		attention_wgmma_forward(s, a);
	else if (way == K_ATTENTION_MMA)
		attention_mma_forward(s, a);
	else if (way == K_ATTENTION_WMMA)
		attention_wmma_forward(s, a);
	else
		attention_plain_forward(s, a);
}

static size_t delta_bytes(int64_t B, int64_t T, int64_t NH)
{
	return (size_t)(B * T * NH) * sizeof(float);
}

size_t scratch_attention_bytes(int64_t B, int64_t T, int64_t NH)
{
	size_t delta = delta_bytes(B, T, NH), rows = attention_wgmma_rows_bytes(B, T, NH);

	return delta > rows ? delta : rows;
}

size_t scratch_attention_part_bytes(
	const struct k_context *ctx, enum k_dtype dtype, int64_t B, int64_t T, int64_t C)
{
	if ((dtype != K_BF16 && dtype != K_FP16) || ctx->capability != ATTENTION_WGMMA_CAPABILITY)
		return 0;
	return (size_t)(attention_wgmma_sums(B, T) * 3 * C) * sizeof(float);
}

/* Backward ways that need delta compute it first. */
template <typename E, typename F>
static void backward_with_delta(struct k_stream *s, struct attention<E> a, const E *out, F way)
{
	int64_t rows = a.B * a.T * a.NH;
	float *delta = (float *)stream_scratch(s, delta_bytes(a.B, a.T, a.NH));

	if (!delta)
		return;
	attention_delta<<<element_blocks(rows, DELTA_WARPS, INT32_MAX), DELTA_WARPS * REDUCE_WARP,
		0, s->cuda>>>(delta, a.dout, out, rows, a.T, a.NH, a.HS);
	a.delta = delta;
	way(s, a);
}

static void backward(struct k_stream *s, enum k_attention way, const struct attention<float> &a,
	const float *out)
{
	if (way == K_ATTENTION_MMA)
		backward_with_delta(s, a, out, attention_tf32_backward);
	else if (way == K_ATTENTION_TILED)
		backward_with_delta(s, a, out, attention_tiled_backward);
	else
		backward_with_delta(s, a, out, attention_plain_backward<float>);
}

template <typename E>
static void backward(
	struct k_stream *s, enum k_attention way, const struct attention<E> &a, const E *out)
{
	if (way == K_ATTENTION_WGMMA)
		attention_wgmma_backward(s, a, out);
	else if (way == K_ATTENTION_MMA)
		backward_with_delta(s, a, out, attention_mma_backward<E>);
	else if (way == K_ATTENTION_WMMA)
		backward_with_delta(s, a, out, attention_wmma_backward<E>);
	else
		backward_with_delta(s, a, out, attention_plain_backward<E>);
}

void k_attention_forward(struct k_stream *s, void *out, k_real *lse, const void *qkv, int64_t B,
	int64_t T, int64_t NH, int64_t HS, const struct k_dropout *drop)
{
	const void *all[] = {out, qkv};
	enum k_attention way;

	if (B * T * NH <= 0 || !stream_ready(s))
		return;
	way = choose(s->ctx, "k_attention_forward", HS, all, 2);
	if (way == K_ATTENTION_BEST)
		return;
	context_dispatch(s->ctx, [&](auto zero) {
		typedef decltype(zero) E;
		struct attention<E> a = {
			(E *)out, lse, NULL, NULL, NULL, (const E *)qkv, NULL, NULL, B, T, NH, HS,
				(float)(1 / sqrt((double)HS)), philox_dropout_of(drop)
		};

		forward(s, way, a);
	});
	stream_check(s, "k_attention_forward");
}

bool k_attention_backward(struct k_stream *s, void *dqkv, void *dbias, const void *dout,
	const void *out, const k_real *lse, const void *qkv, int64_t B, int64_t T, int64_t NH,
	int64_t HS, const struct k_dropout *drop)
{
	const void *all[] = {dqkv, dout, qkv, out};
	struct stream_part *part = NULL;
	int64_t width = 3 * NH * HS;
	enum k_attention way;

	if (B * T * NH <= 0 || !stream_ready(s))
		return false;
	way = choose(s->ctx, "k_attention_backward", HS, all, 4);
	if (way == K_ATTENTION_BEST)
		return false;
	if (dbias && way == K_ATTENTION_WGMMA) {
		part = stream_part(
			s, scratch_attention_part_bytes(s->ctx, s->ctx->dtype, B, T, NH * HS));
		if (!part)
			return false;
	}
	context_dispatch(s->ctx, [&](auto zero) {
		typedef decltype(zero) E;
		struct attention<E> a = {
			NULL, NULL, (E *)dqkv, part ? (float *)part->memory : NULL,
				(const E *)dout, (const E *)qkv, lse, NULL, B, T, NH, HS,
				(float)(1 / sqrt((double)HS)), philox_dropout_of(drop)
		};

		backward(s, way, a, (const E *)out);
	});
	stream_check(s, "k_attention_backward");
	if (part)
		column_sum_finish_beside(
			s, &dbias, 1, part, attention_wgmma_sums(B, T), width, width);
	return part != NULL;
}
