#include <math.h>

#include "kernels/cuda/column_sum.cuh"
#include "kernels/cuda/gelu.cuh"
#include "kernels/cuda/gemm_trial_memory.cuh"
#include "kernels/cuda/gemm_wgmma.cuh"
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/scratch.cuh"

/*
 * Row-major (rows, columns) is column-major (columns, rows): out (R,OC) = inp weight^T is out^T
 * (OC,R) = weight inp^T. GELU, its derivative and the bias's gradient are fused with the product if
 * cuBLASLt can do so and is faster than a separate pass.
 */

/* cuBLASLt's GELU is accurate to 5e-6: enough for tensors of 11 bits, not for fp32. */
static bool gelu_fits(const struct k_context *ctx, enum k_gelu gelu)
{
	return gelu == K_GELU_TANH && ctx->dtype != K_FP32;
}

static struct gemm_call forward_call(void *out, const void *inp, const void *weight,
	const void *bias, int64_t R, int64_t C, int64_t OC)
{
	struct gemm_call c = {};

	c.transpose_a = true;
	c.m = OC;
	c.n = R;
	c.k = C;
	c.a = weight;
	c.b = inp;
	c.d = out;
	c.epilogue = bias ? GEMM_BIAS : GEMM_PLAIN;
	c.bias = (void *)bias;
	return c;
}

void k_linear_forward(struct k_stream *s, void *out, const void *inp, const void *weight,
	const void *bias, int64_t R, int64_t C, int64_t OC)
{
	struct gemm_call c = forward_call(out, inp, weight, bias, R, C, OC);
	struct product p;

	if (R <= 0 || !stream_ready(s))
		return;
	p = product_choose(s, &c, false);
	product_run(s, "k_linear_forward", &p, NULL);
}

/* again: recompute out alone; pre exists. */
static void gelu_layer(struct k_stream *s, const char *name, bool again, void *out, void *pre,
	const void *inp, const void *weight, const void *bias, int64_t R, int64_t C, int64_t OC,
	enum k_gelu gelu)
{
	struct gemm_call apart = forward_call(pre, inp, weight, bias, R, C, OC), fused = apart;
	struct product p;

	if (R <= 0 || !stream_ready(s))
		return;
	p = product_choose(s, &apart, false);
	fused.d = out;
	fused.aux = pre;
	fused.epilogue = bias ? GEMM_GELU_BIAS : GEMM_GELU;
	if (gelu_fits(s->ctx, gelu) &&
		gemm_seconds(s, &fused) < p.seconds + context_pass_seconds(s->ctx, 2 * R * OC)) {
		gemm_run(s, name, &fused);
		return;
	}
	if (!again)
		product_run(s, name, &p, NULL);
	gelu_forward(s, out, pre, R * OC, gelu);
}

void k_linear_gelu_forward(struct k_stream *s, void *out, void *pre, const void *inp,
	const void *weight, const void *bias, int64_t R, int64_t C, int64_t OC, enum k_gelu gelu)
{
	gelu_layer(s, "k_linear_gelu_forward", false, out, pre, inp, weight, bias, R, C, OC, gelu);
}

void k_linear_gelu_again(struct k_stream *s, void *out, void *pre, const void *inp,
	const void *weight, const void *bias, int64_t R, int64_t C, int64_t OC, enum k_gelu gelu)
{
	gelu_layer(s, "k_linear_gelu_again", true, out, pre, inp, weight, bias, R, C, OC, gelu);
}

static struct gemm_call input_call(
	void *dinp, const void *dout, const void *weight, int64_t R, int64_t C, int64_t OC)
{
	struct gemm_call c = {};

	c.m = C;
	c.n = R;
	c.k = OC;
	c.a = weight;
	c.b = dout;
	c.d = dinp;
	return c;
}

/* add: to old values */
static struct gemm_call parameters_call(void *dweight, const void *dout, const void *inp, int64_t R,
	int64_t C, int64_t OC, bool add)
{
	struct gemm_call c = {};

	c.transpose_b = true;
	c.m = C;
	c.n = OC;
	c.k = R;
	c.a = inp;
	c.b = dout;
	c.d = dweight;
	c.add = add;
	return c;
}

size_t scratch_linear_bytes(
	const struct k_context *ctx, enum k_dtype dtype, int64_t R, int64_t C, int64_t OC)
{
	struct gemm_call out = forward_call(NULL, NULL, NULL, NULL, R, C, OC);
	struct gemm_call dinp = input_call(NULL, NULL, NULL, R, C, OC);
	struct gemm_call dweight = parameters_call(NULL, NULL, NULL, R, C, OC, true);
	const size_t each[] = {product_scratch_bytes(dtype, &out, false),
		product_scratch_bytes(dtype, &dinp, false),
		product_scratch_bytes(dtype, &dweight, true),
		scratch_column_sum_bytes(ctx, R, C), scratch_column_sum_bytes(ctx, R, OC),
		(size_t)OC * sizeof(float)};
	size_t most = 0;

	for (size_t bytes : each)
		most = bytes > most ? bytes : most;
	return most;
}

/* A fused product needs more memory than an unfused one, but may leave less room. */
size_t scratch_linear_trial_bytes(const struct k_context *ctx, enum k_dtype dtype, int64_t R,
	int64_t C, int64_t OC, int64_t gelu, size_t lent_bytes)
{
	void *there = (void *)(uintptr_t)256; /* never read */
	struct gemm_call out = forward_call(NULL, NULL, NULL, NULL, R, C, OC), fused_out = out;
	struct gemm_call dinp = input_call(NULL, NULL, NULL, R, C, OC), fused_dinp = dinp;
	struct gemm_call dweight = parameters_call(NULL, NULL, NULL, R, C, OC, true);
	const struct gemm_call *const each[] = {&out, &fused_out, &dinp, &fused_dinp, &dweight};
	size_t most = 0;

	fused_out.aux = gelu == OC ? there : NULL;
	if (gelu == C) {
		fused_dinp.epilogue = GEMM_DGELU_SUMS;
		fused_dinp.aux = there;
	}
	for (const struct gemm_call *c : each) {
		size_t bytes = gemm_trial_memory_own_bytes(ctx, dtype, c, lent_bytes);

		most = bytes > most ? bytes : most;
	}
	return most;
}

size_t scratch_linear_part_bytes(
	const struct k_context *ctx, enum k_dtype dtype, int64_t R, int64_t C)
{
	if (dtype != K_BF16 && dtype != K_FP16)
		return 0;
	return (size_t)(gemm_wgmma_sum_parts_max(ctx, R) * C) * sizeof(float);
}

/* dsum: NULL, or (m) += sums of d over n. */
static void multiply_and_sum(
	struct k_stream *s, const char *name, struct gemm_call *call, void *dsum)
{
	int64_t parts = dsum ? gemm_sum_parts(s, call) : 0;
	struct stream_part *part;

	if (parts == 0) {
		gemm_run(s, name, call);
		if (dsum)
			column_sum_add(k_stream_fork(s), dsum, call->d, call->n, call->m);
		return;
	}
	part = stream_part(s, (size_t)(parts * call->m) * sizeof(float));
	if (!part)
		return;
	call->sums = (float *)part->memory;
	gemm_run(s, name, call);
	column_sum_finish_beside(s, &dsum, 1, part, parts, call->m, call->m);
}

static void backward_input(struct k_stream *s, const char *name, void *dinp, void *dsum,
	const void *dout, const void *weight, const void *pre, int64_t R, int64_t C, int64_t OC,
	enum k_gelu gelu)
{
	struct gemm_call apart = input_call(dinp, dout, weight, R, C, OC), fused = apart;
	struct product p;

	fused.epilogue = dsum ? GEMM_DGELU_SUMS : GEMM_DGELU;
	fused.aux = (void *)pre;
	p = product_choose(s, &apart, false);
	/* the fused product's sums run on a branch and delay nothing */
	if (pre && gelu_fits(s->ctx, gelu) &&
		gemm_seconds(s, &fused) < p.seconds + context_pass_seconds(s->ctx, 3 * R * C)) {
		multiply_and_sum(s, name, &fused, dsum);
		return;
	}
	product_run(s, name, &p, NULL);
	if (pre)
		gelu_backward(s, dinp, dsum, pre, R, C, gelu);
}

static void backward_parameters(struct k_stream *s, const char *name, void *dweight, void *dbias,
	const void *dout, const void *inp, int64_t R, int64_t C, int64_t OC, bool add)
{
	struct gemm_call apart = parameters_call(dweight, dout, inp, R, C, OC, add), fused;
	struct product p;

	p = product_choose(s, &apart, dbias != NULL);
	if (!dbias) {
		product_run(s, name, &p, NULL);
		return;
	}
	fused = apart;
	fused.epilogue = GEMM_SUM_B;
	fused.bias = stream_scratch(s, (size_t)OC * k_elem_bytes(s->ctx));
	if (!fused.bias)
		return;
	if (gemm_seconds(s, &fused) < p.seconds) {
		gemm_run(s, name, &fused);
		column_sum_add(s, dbias, fused.bias, 1, OC);
		return;
	}
	product_run(s, name, &p, dbias);
}

/* Both gradients read dout; their outputs do not overlap. */
static void backward(struct k_stream *s, const char *name, void *dinp, void *dweight, void *dbias,
	void *dsum, const void *dout, const void *inp, const void *pre, const void *weight,
	int64_t R, int64_t C, int64_t OC, enum k_gelu gelu, bool add)
{
	struct k_stream *branch;

	if (R <= 0 || !stream_ready(s))
		return;
	branch = dinp && dweight ? k_stream_fork(s) : s;
	if (dinp)
		backward_input(s, name, dinp, dsum, dout, weight, pre, R, C, OC, gelu);
	if (dweight)
		backward_parameters(branch, name, dweight, dbias, dout, inp, R, C, OC, add);
	if (branch != s)
		k_stream_join(s);
}

void k_linear_backward(struct k_stream *s, void *dinp, void *dweight, void *dbias, const void *dout,
	const void *inp, const void *weight, int64_t R, int64_t C, int64_t OC)
{
	backward(s, "k_linear_backward", dinp, dweight, dbias, NULL, dout, inp, NULL, weight, R, C,
		OC, K_GELU_TANH, true);
}

void k_linear_backward_gelu(struct k_stream *s, void *dinp, void *dweight, void *dbias, void *dsum,
	const void *dout, const void *inp, const void *pre, const void *weight, int64_t R,
	int64_t C, int64_t OC, enum k_gelu gelu)
{
	backward(s, "k_linear_backward_gelu", dinp, dweight, dbias, dsum, dout, inp, pre, weight, R,
		C, OC, gelu, true);
}

void k_linear_backward_first(struct k_stream *s, void *dinp, void *dweight, void *dbias, void *dsum,
	const void *dout, const void *inp, const void *pre, const void *weight, int64_t R,
	int64_t C, int64_t OC, enum k_gelu gelu)
{
	backward(s, "k_linear_backward_first", dinp, dweight, dbias, dsum, dout, inp, pre, weight,
		R, C, OC, gelu, false);
}
