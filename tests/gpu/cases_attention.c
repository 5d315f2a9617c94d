#include <stddef.h>

#include "tests/gpu/cases.h"

/* Shapes are B, T, NH, HS. As in the engine, attention or the linear layer makes dbias. */
static void attention(struct harness *h, const struct cases_shape *s)
{
	int64_t B = s->a, T = s->b, NH = s->c, HS = s->d, C = NH * HS;
	double tolerance = harness_tolerance(h), lse_tolerance = tolerance < 1e-4 ? 4e-6 : 1e-5;
	struct k_dropout drop = {s->p, 42, 9};
	void *qkv = harness_tensor(h, B * T * 3 * C, 0, 2),
	     *dout = harness_tensor(h, B * T * C, 0, 1);
	void *out = harness_poison(h, B * T * C), *dqkv = harness_poison(h, B * T * 3 * C);
	k_real *lse = harness_poison_real(h, B * NH * T);
	void *dbias = harness_tensor(h, 3 * C, 0, 1), *alone = harness_poison(h, B * T * 3 * C);
	void *inp = harness_tensor(h, B * T * 8, 0, 1), *row = harness_poison(h, C);
	void *weight = harness_tensor(h, 3 * C * 8, 0, 1);
	void *dweight = harness_tensor(h, 3 * C * 8, 0, 1);

	if (h->under_test == K_TF32) /* the inputs are not in tf32: products round them */
		lse_tolerance = tolerance;
	k_attention_forward(h->s, out, lse, qkv, B, T, NH, HS, &drop);
	harness_result(h, "out", out, B * T * C, tolerance);
	harness_result_real(h, "lse", lse, B * NH * T, lse_tolerance);
	if (s->p <= 0) { /* of the first sample */
		k_attention_row(h->s, row, qkv, T, NH, HS);
		harness_result(h, "row", row, C, tolerance);
	}
	k_attention_backward(h->s, alone, NULL, dout, out, lse, qkv, B, T, NH, HS, &drop);
	harness_result(h, "dqkv", alone, B * T * 3 * C, 2 * tolerance);
	if (h->own)
		return;
	if (!k_attention_backward(h->s, dqkv, dbias, dout, out, lse, qkv, B, T, NH, HS, &drop))
		k_linear_backward(h->s, NULL, dweight, dbias, dqkv, inp, weight, B * T, 8, 3 * C);
	harness_same(h, "dqkv with dbias", dqkv, alone, B * T * 3 * C);
	harness_result(h, "dbias", dbias, 3 * C, 2 * tolerance);
}

/*
 * More heads than 65535, a launch's limit in all dimensions but the first. Compares the first and
 * the last of B rows; the last ones lie beyond that head.
 */
static void many_heads(struct harness *h, const struct cases_shape *s)
{
	int64_t B = s->a, T = s->b, NH = s->c, HS = s->d, C = NH * HS, edge = s->e;
	int64_t n = edge * T * C, skip = (B - edge) * T * C, heads = edge * NH * T;
	double tolerance = harness_tolerance(h);
	double lse_tolerance = h->under_test == K_TF32 ? tolerance : 1e-5;
	struct k_dropout drop = {s->p, 42, 9};
	void *qkv = harness_tensor(h, B * T * 3 * C, 0, 2);
	void *dout = harness_tensor(h, B * T * C, 0, 1);
	char *out = harness_poison(h, B * T * C), *dqkv = harness_poison(h, B * T * 3 * C);
	k_real *lse = harness_poison_real(h, B * NH * T);
	size_t bytes = k_elem_bytes(h->ctx);

	k_attention_forward(h->s, out, lse, qkv, B, T, NH, HS, &drop);
	k_attention_backward(h->s, dqkv, NULL, dout, out, lse, qkv, B, T, NH, HS, &drop);
	harness_result(h, "first of out", out, n, tolerance);
	harness_result(h, "last of out", out + (size_t)skip * bytes, n, tolerance);
	harness_result_real(h, "first of lse", lse, heads, lse_tolerance);
	harness_result_real(h, "last of lse", lse + (B - edge) * NH * T, heads, lse_tolerance);
	harness_result(h, "first of dqkv", dqkv, 3 * n, 2 * tolerance);
	harness_result(h, "last of dqkv", dqkv + 3 * (size_t)skip * bytes, 3 * n, 2 * tolerance);
}

const struct cases_case cases_attention[] = {
	{"attention", attention, {1, 64, 1, 64, 0, 0}, true},
	{"attention", attention, {2, 65, 2, 64, 0, 0}, true},
	{"attention", attention, {1, 1, 2, 64, 0, 0}, true},
	{"attention", attention, {2, 33, 3, 64, 0, 0.1}, true},
	{"attention", attention, {1, 76, 2, 64, 0, 0.25}, true},
	{"attention", attention, {1, 50, 2, 32, 0, 0.1}, true},
	{"attention", attention, {1, 40, 3, 20, 0, 0}, true},
	{"attention", attention, {1, 63, 1, 64, 0, 0}, true},
	{"attention", attention, {1, 129, 1, 64, 0, 0}, true},
	{"attention", attention, {2, 127, 2, 64, 0, 0}, false},
	{"attention", attention, {2, 128, 2, 64, 0, 0}, false},
	{"attention", attention, {2, 129, 2, 64, 0, 0.1}, false},
	{"attention", attention, {2, 512, 3, 64, 0, 0}, false},
	{"attention", attention, {2, 200, 3, 64, 0, 0}, false},
	{"attention", attention, {1, 130, 2, 64, 0, 0.25}, false},
	{"attention", attention, {16, 300, 12, 64, 0, 0}, false},
	{"attention", attention, {1, 1024, 4, 64, 0, 0}, false},
	{"attention", attention, {1, 1000, 2, 64, 0, 0.1}, false},
	{"attention", attention, {1, 257, 2, 80, 0, 0}, false},
	{"attention", attention, {1, 100, 1, 128, 0, 0}, false},
	{"attention, many heads", many_heads, {5470, 1, 12, 64, 12, 0.1}, false},
	{NULL, NULL, {0, 0, 0, 0, 0, 0}, false},
};
