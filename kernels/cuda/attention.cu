#include "kernels/cuda/attention.cuh"

#include <math.h>

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/reduce.cuh"

enum { DELTA_WARPS = 8 };

/* A warp takes one query of one head. */
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

/* ATTENTION_MMA_HS in 16 bits, and rows that can be read 16 bytes at a time. */
static bool by_matrix_units(const struct k_context *ctx, int64_t HS, const void *const *all, int n)
{
	bool can = (ctx->dtype == K_BF16 || ctx->dtype == K_FP16) && HS == ATTENTION_MMA_HS &&
		ctx->capability >= ATTENTION_MMA_CAPABILITY;

	for (int i = 0; i < n; i++)
		can = can && element_aligned(all[i], 16);
	return can;
}

static void forward_mma(struct k_stream *s, const struct attention<float> &a)
{
}

template <typename E> static void forward_mma(struct k_stream *s, const struct attention<E> &a)
{
	attention_mma_forward(s, a);
}

static void backward_mma(struct k_stream *s, const struct attention<float> &a)
{
}

template <typename E> static void backward_mma(struct k_stream *s, const struct attention<E> &a)
{
	attention_mma_backward(s, a);
}

void k_attention_forward(struct k_stream *s, void *out, k_real *lse, const void *qkv, int64_t B,
	int64_t T, int64_t NH, int64_t HS, const struct k_dropout *drop)
{
	const void *all[] = {out, qkv};

	if (B * T * NH <= 0 || !stream_ready(s))
		return;
	context_dispatch(s->ctx, [&](auto zero) {
		typedef decltype(zero) E;
		struct attention<E> a = {
			(E *)out, lse, NULL, NULL, (const E *)qkv, NULL, NULL, B, T, NH, HS,
				(float)(1 / sqrt((double)HS)), philox_dropout_of(drop)
		};

		if (by_matrix_units(s->ctx, HS, all, 2))
			forward_mma(s, a);
		else
			attention_plain_forward(s, a);
	});
	stream_check(s, "k_attention_forward");
}

void k_attention_backward(struct k_stream *s, void *dqkv, const void *dout, const void *out,
	const k_real *lse, const void *qkv, int64_t B, int64_t T, int64_t NH, int64_t HS,
	const struct k_dropout *drop)
{
	const void *all[] = {dqkv, dout, qkv};
	int64_t rows = B * T * NH;
	float *delta;

	if (rows <= 0 || !stream_ready(s))
		return;
	delta = (float *)stream_scratch(s, (size_t)rows * sizeof(float));
	if (!delta)
		return;
	context_dispatch(s->ctx, [&](auto zero) {
		typedef decltype(zero) E;
		struct attention<E> a = {
			NULL, NULL, (E *)dqkv, (const E *)dout,
				(const E *)qkv, lse, delta, B, T, NH, HS,
				(float)(1 / sqrt((double)HS)), philox_dropout_of(drop)
		};

		attention_delta<<<element_blocks(rows, DELTA_WARPS, INT32_MAX),
			DELTA_WARPS * REDUCE_WARP, 0, s->cuda>>>(
			delta, a.dout, (const E *)out, rows, T, NH, HS);
		if (by_matrix_units(s->ctx, HS, all, 3))
			backward_mma(s, a);
		else
			attention_plain_backward(s, a);
	});
	stream_check(s, "k_attention_backward");
}
