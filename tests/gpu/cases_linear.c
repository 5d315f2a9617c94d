#include <math.h>
#include <stddef.h>

#include "tests/gpu/cases.h"

/* Shapes are R, C, OC. Weights are small, so that outputs are of size 1. */

static double weight_size(const struct cases_shape *s)
{
	return sqrt(3.0 / (double)s->b);
}

static void forward(struct harness *h, const struct cases_shape *s)
{
	int64_t R = s->a, C = s->b, OC = s->c;
	void *inp = harness_tensor(h, R * C, 0, 1);
	void *weight = harness_tensor(h, OC * C, 0, weight_size(s));
	void *bias = harness_tensor(h, OC, 0, 1);
	void *out = harness_poison(h, R * OC), *bare = harness_poison(h, R * OC);

	k_linear_forward(h->s, out, inp, weight, bias, R, C, OC);
	harness_result(h, "out", out, R * OC, harness_tolerance(h));
	k_linear_forward(h->s, bare, inp, weight, NULL, R, C, OC);
	harness_result(h, "no bias", bare, R * OC, harness_tolerance(h));
}

static void gelu(struct harness *h, const struct cases_shape *s, enum k_gelu kind)
{
	int64_t R = s->a, C = s->b, OC = s->c;
	void *inp = harness_tensor(h, R * C, 0, 1);
	void *weight = harness_tensor(h, OC * C, 0, weight_size(s));
	void *bias = harness_tensor(h, OC, 0, 1);
	void *out = harness_poison(h, R * OC), *pre = harness_poison(h, R * OC);
	void *again = harness_poison(h, R * OC);

	k_linear_gelu_forward(h->s, out, pre, inp, weight, bias, R, C, OC, kind);
	harness_result(h, "out", out, R * OC, harness_tolerance(h));
	k_linear_gelu_again(h->s, again, pre, inp, weight, bias, R, C, OC, kind);
	harness_same(h, "again", again, out, R * OC);
}

static void gelu_tanh(struct harness *h, const struct cases_shape *s)
{
	gelu(h, s, K_GELU_TANH);
}

static void gelu_exact(struct harness *h, const struct cases_shape *s)
{
	gelu(h, s, K_GELU_EXACT);
}

static void backward(struct harness *h, const struct cases_shape *s)
{
	int64_t R = s->a, C = s->b, OC = s->c;
	void *inp = harness_tensor(h, R * C, 0, 1);
	void *weight = harness_tensor(h, OC * C, 0, weight_size(s));
	void *dout = harness_tensor(h, R * OC, 0, 1);
	void *dweight = harness_tensor(h, OC * C, 0, 1), *dbias = harness_tensor(h, OC, 0, 1);
	void *dinp = harness_poison(h, R * C), *alone = harness_poison(h, R * C);
	void *first = harness_poison(h, OC * C), *beside = harness_poison(h, R * C);

	k_linear_backward(h->s, dinp, dweight, dbias, dout, inp, weight, R, C, OC);
	harness_result(h, "dinp", dinp, R * C, harness_tolerance(h));
	harness_result(h, "dweight", dweight, OC * C, harness_tolerance(h));
	harness_result(h, "dbias", dbias, OC, harness_tolerance(h));
	k_linear_backward(h->s, NULL, dweight, NULL, dout, inp, weight, R, C, OC);
	harness_result(h, "dweight 2", dweight, OC * C, harness_tolerance(h));
	k_linear_backward(h->s, alone, NULL, NULL, dout, inp, weight, R, C, OC);
	harness_result(h, "dinp alone", alone, R * C, harness_tolerance(h));
	k_linear_backward_first(h->s, beside, first, dbias, NULL, dout, inp, NULL, weight, R, C, OC,
		K_GELU_TANH);
	harness_result(h, "dinp first", beside, R * C, harness_tolerance(h));
	harness_result(h, "dweight first", first, OC * C, harness_tolerance(h));
	harness_result(h, "dbias 2", dbias, OC, harness_tolerance(h));
}

static void backward_gelu(struct harness *h, const struct cases_shape *s, enum k_gelu kind)
{
	int64_t R = s->a, C = s->b, OC = s->c;
	void *inp = harness_poison(h, R * C), *pre = harness_poison(h, R * C);
	void *before = harness_tensor(h, R * OC, 0, 1);
	void *layer = harness_tensor(h, OC * C, 0, 3 * sqrt(3.0 / (double)OC));
	void *weight = harness_tensor(h, OC * C, 0, weight_size(s));
	void *dout = harness_tensor(h, R * OC, 0, 1);
	void *dweight = harness_tensor(h, OC * C, 0, 1), *dbias = harness_tensor(h, OC, 0, 1);
	void *dsum = harness_tensor(h, C, 0, 1);
	void *dinp = harness_poison(h, R * C), *alone = harness_poison(h, R * C);
	void *first = harness_poison(h, OC * C), *beside = harness_poison(h, R * C);

	k_linear_gelu_forward(h->s, inp, pre, before, layer, NULL, R, OC, C, kind);
	k_linear_backward_gelu(
		h->s, alone, NULL, NULL, dsum, dout, inp, pre, weight, R, C, OC, kind);
	harness_result(h, "dinp alone", alone, R * C, harness_tolerance(h));
	harness_result(h, "dsum", dsum, C, harness_tolerance(h));
	if (h->own)
		return;
	k_linear_backward_gelu(
		h->s, dinp, dweight, dbias, NULL, dout, inp, pre, weight, R, C, OC, kind);
	harness_result(h, "dinp", dinp, R * C, harness_tolerance(h));
	harness_result(h, "dweight", dweight, OC * C, harness_tolerance(h));
	harness_result(h, "dbias", dbias, OC, harness_tolerance(h));
	k_linear_backward_first(h->s, beside, first, dbias, dsum, dout, inp, pre, weight, R, C, OC,
		kind);
	harness_result(h, "dinp first", beside, R * C, harness_tolerance(h));
	harness_result(h, "dweight first", first, OC * C, harness_tolerance(h));
	harness_result(h, "dsum 2", dsum, C, harness_tolerance(h));
}

static void backward_tanh(struct harness *h, const struct cases_shape *s)
{
	backward_gelu(h, s, K_GELU_TANH);
}

static void backward_exact(struct harness *h, const struct cases_shape *s)
{
	backward_gelu(h, s, K_GELU_EXACT);
}

#define SHAPES(name, run)                                                                          \
	{name, run, {64, 64, 192, 0, 0, 0}, true}, {name, run, {33, 40, 24, 0, 0, 0}, true},       \
		{name, run, {17, 31, 13, 0, 0, 0}, true},                                          \
		{name, run, {1, 64, 64, 0, 0, 0}, false},                                          \
		{name, run, {1024, 768, 3072, 0, 0, 0}, false},                                    \
	{                                                                                          \
		name, run, {300, 384, 1000, 0, 0, 0}, false                                        \
	}

const struct cases_case cases_linear[] = {
	SHAPES("linear_forward", forward),
	SHAPES("linear_gelu_tanh", gelu_tanh),
	SHAPES("linear_gelu_exact", gelu_exact),
	SHAPES("linear_backward", backward),
	SHAPES("linear_backward_tanh", backward_tanh),
	SHAPES("linear_backward_exact", backward_exact),
	{NULL, NULL, {0, 0, 0, 0, 0, 0}, false},
};

/* Whole results, partial ones in each direction, fewer than blocks, many per block. */
#define PRODUCTS(name, run, ...) \
	{name, run, {128, 64, 192, 0, 0, 0}, true}, {name, run, {1, 8, 8, 0, 0, 0}, true}, \
		{name, run, {33, 40, 24, 0, 0, 0}, true}, \
		{name, run, {200, 72, 200, 0, 0, 0}, true}, \
		{name, run, {257, 136, 1000, 0, 0, 0}, false}, \
		{name, run, {300, 384, 1000, 0, 0, 0}, false}, \
		{name, run, {1024, 768, 3072, 0, 0, 0}, false}, \
	{ \
		name, run, {__VA_ARGS__, 0, 0, 0}, false \
	}

const struct cases_case cases_products[] = {
	PRODUCTS("own_gelu", gelu_tanh, 4000, 128, 4104),
	PRODUCTS("own_slope", backward_tanh, 2100, 4104, 128),
	{NULL, NULL, {0, 0, 0, 0, 0, 0}, false},
};
