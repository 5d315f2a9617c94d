#include <stddef.h>

#include "tests/gpu/cases.h"

static struct k_dropout dropout_of(const struct cases_shape *s)
{
	return (struct k_dropout){s->p, 42, 7};
}

/* ---- LayerNorm: shapes are R, C ---- */

static void layernorm(struct harness *h, const struct cases_shape *s)
{
	int64_t R = s->a, C = s->b;
	double tolerance = harness_tolerance(h);
	void *inp = harness_tensor(h, R * C, 0.5, 2);
	void *weight = harness_tensor(h, C, 1, 0.5), *bias = harness_tensor(h, C, 0, 1);
	void *dout = harness_tensor(h, R * C, 0, 1), *dinp = harness_tensor(h, R * C, 0, 1);
	void *dweight = harness_tensor(h, C, 0, 1), *dbias = harness_tensor(h, C, 0, 1);
	void *dsum = harness_tensor(h, C, 0, 1);
	void *out = harness_poison(h, R * C), *apart = harness_poison(h, R * C);
	k_real *mean = harness_poison_real(h, R), *rstd = harness_poison_real(h, R);

	k_layernorm_forward(h->s, out, mean, rstd, inp, weight, bias, R, C);
	harness_result(h, "out", out, R * C, tolerance);
	harness_result_real(h, "mean", mean, R, 1e-5);
	harness_result_real(h, "rstd", rstd, R, 1e-5);
	k_layernorm_backward(
		h->s, apart, dweight, dbias, dsum, dinp, dout, inp, weight, mean, rstd, R, C);
	harness_result(h, "dinp", apart, R * C, tolerance);
	harness_result(h, "dweight", dweight, C, tolerance);
	harness_result(h, "dbias", dbias, C, tolerance);
	harness_result(h, "dsum", dsum, C, tolerance);
	k_layernorm_backward(
		h->s, dinp, dweight, dbias, NULL, dinp, dout, inp, weight, mean, rstd, R, C);
	harness_result(h, "dinp in place", dinp, R * C, tolerance);
	harness_result(h, "dweight again", dweight, C, tolerance);
	k_layernorm_backward(
		h->s, apart, dweight, dbias, NULL, NULL, dout, inp, weight, mean, rstd, R, C);
	harness_result(h, "dinp alone", apart, R * C, tolerance);
}

static void residual(struct harness *h, const struct cases_shape *s)
{
	int64_t R = s->a, C = s->b;
	double tolerance = harness_tolerance(h);
	struct k_dropout drop = dropout_of(s);
	void *inp1 = harness_tensor(h, R * C, 0.5, 2), *inp2 = harness_tensor(h, R * C, 0, 1);
	void *weight = harness_tensor(h, C, 1, 0.5), *bias = harness_tensor(h, C, 0, 1);
	void *out = harness_poison(h, R * C), *sum = harness_poison(h, R * C);
	k_real *mean = harness_poison_real(h, R), *rstd = harness_poison_real(h, R);

	k_residual_layernorm_forward(
		h->s, sum, out, mean, rstd, inp1, inp2, weight, bias, R, C, &drop);
	harness_result(h, "residual", sum, R * C, tolerance);
	harness_result(h, "out", out, R * C, tolerance);
	harness_result_real(h, "mean", mean, R, tolerance);
	harness_result_real(h, "rstd", rstd, R, tolerance);
	k_residual_layernorm_forward(
		h->s, inp1, out, mean, rstd, inp1, inp2, weight, bias, R, C, &drop);
	harness_result(h, "in place", inp1, R * C, tolerance);
}

/* ---- embedding: shapes are B, T, C, Vp ---- */

static void embedding(struct harness *h, const struct cases_shape *s)
{
	int64_t B = s->a, T = s->b, C = s->c, Vp = s->d;
	struct k_dropout drop = dropout_of(s);
	int32_t *tokens = harness_tokens(h, B * T, (int32_t)Vp);
	int32_t *order = (int32_t *)harness_poison_real(h, 2 * B * T);
	void *wte = harness_tensor(h, Vp * C, 0, 1), *wpe = harness_tensor(h, T * C, 0, 1);
	void *dwte = harness_tensor(h, Vp * C, 0, 1), *dwpe = harness_tensor(h, T * C, 0, 1);
	void *dout = harness_tensor(h, B * T * C, 0, 1), *out = harness_poison(h, B * T * C);

	k_embedding_forward(h->s, out, tokens, wte, wpe, B, T, C, &drop);
	harness_result(h, "out", out, B * T * C, harness_tolerance(h));
	k_embedding_backward(h->s, dwte, dwpe, dout, tokens, NULL, B, T, C, &drop);
	harness_result(h, "dwte", dwte, Vp * C, harness_tolerance(h));
	harness_result(h, "dwpe", dwpe, T * C, harness_tolerance(h));
	k_token_order(h->s, order, tokens, B * T);
	k_embedding_backward(h->s, dwte, dwpe, dout, tokens, order, B, T, C, &drop);
	harness_result(h, "dwte, ordered", dwte, Vp * C, harness_tolerance(h));
}

/* ---- cross-entropy: shapes are R, V, Vp ---- */

static void cross_entropy(struct harness *h, const struct cases_shape *s)
{
	int64_t R = s->a, V = s->b, Vp = s->c;
	void *logits = harness_tensor(h, R * Vp, 0, 8);
	int32_t *targets = harness_tokens(h, R, (int32_t)V);
	k_real *losses = harness_poison_real(h, R), *only = harness_poison_real(h, R);
	double half = 0.5, total = 3;
	const double *times = harness_bytes(h, &half, sizeof half);
	double *sum = harness_bytes(h, &total, sizeof total);

	k_cross_entropy(h->s, only, logits, targets, R, V, Vp, 0, NULL);
	harness_result_real(h, "losses only", only, R, 1e-5);
	harness_result(h, "untouched", logits, R * Vp, 1e-12);
	k_cross_entropy(h->s, losses, logits, targets, R, V, Vp, 2, times);
	harness_result_real(h, "losses", losses, R, 1e-5);
	k_sum_losses(h->s, sum, losses, R);
	k_copy_out(h->s, &total, sum, sizeof total);
	k_stream_sync(h->s, INT64_MAX);
	h->result(h, "sum of losses", &total, 1, 1e-5);
	harness_result(h, "gradient", logits, R * Vp, harness_tolerance(h) + 1e-5);
}

/* ---- dropout's gradient: shapes are n ---- */

static void dropout(struct harness *h, const struct cases_shape *s)
{
	struct k_dropout drop = dropout_of(s);
	void *dout = harness_tensor(h, s->a, 0, 1), *dinp = harness_poison(h, s->a);
	void *again = harness_tensor(h, s->a, 0, 1);
	uint64_t from = 1;

	k_dropout_backward(h->s, dinp, dout, s->a, &drop);
	harness_result(h, "dinp", dinp, s->a, harness_tolerance(h));
	k_dropout_backward(h->s, dout, dout, s->a, &drop);
	harness_result(h, "in place", dout, s->a, harness_tolerance(h));
	drop.offset -= from;
	drop.offset_from = harness_bytes(h, &from, sizeof from);
	k_dropout_backward(h->s, dinp, again, s->a, &drop);
	harness_result(h, "offset in memory", dinp, s->a, harness_tolerance(h));
}

const struct cases_case cases_layers[] = {
	{"layernorm", layernorm, {37, 64, 0, 0, 0, 0}, true},
	{"layernorm", layernorm, {5, 33, 0, 0, 0, 0}, true},
	{"layernorm", layernorm, {6, 384, 0, 0, 0, 0}, true},
	{"layernorm", layernorm, {10, 768, 0, 0, 0, 0}, true},
	{"layernorm", layernorm, {16, 1024, 0, 0, 0, 0}, true},
	{"layernorm", layernorm, {700, 768, 0, 0, 0, 0}, false},
	{"layernorm", layernorm, {701, 768, 0, 0, 0, 0}, false},
	{"layernorm", layernorm, {3000, 1024, 0, 0, 0, 0}, false},
	{"layernorm", layernorm, {129, 1600, 0, 0, 0, 0}, false},
	{"residual_layernorm", residual, {37, 64, 0, 0, 0, 0}, true},
	{"residual_layernorm", residual, {5, 33, 0, 0, 0, 0.1}, true},
	{"residual_layernorm", residual, {10, 768, 0, 0, 0, 0}, true},
	{"residual_layernorm", residual, {700, 768, 0, 0, 0, 0.1}, false},
	{"residual_layernorm", residual, {129, 1600, 0, 0, 0, 0.25}, false},
	{"embedding", embedding, {2, 16, 64, 40, 0, 0}, true},
	{"embedding", embedding, {3, 7, 33, 5, 0, 0.1}, true},
	{"embedding", embedding, {4, 512, 768, 320, 0, 0.1}, false},
	{"embedding", embedding, {4, 256, 128, 1, 0, 0}, false},
	{"embedding", embedding, {8, 1024, 64, 50304, 0, 0}, false},
	{"cross_entropy", cross_entropy, {9, 257, 320, 0, 0, 0}, true},
	{"cross_entropy", cross_entropy, {5, 30, 31, 0, 0, 0}, true},
	{"cross_entropy", cross_entropy, {33, 50257, 50304, 0, 0, 0}, false},
	{"cross_entropy", cross_entropy, {4, 3000, 3000, 0, 0, 0}, false},
	{"dropout_backward", dropout, {1000, 0, 0, 0, 0, 0.1}, true},
	{"dropout_backward", dropout, {4099, 0, 0, 0, 0, 0.5}, true},
	{NULL, NULL, {0, 0, 0, 0, 0, 0}, false},
};
