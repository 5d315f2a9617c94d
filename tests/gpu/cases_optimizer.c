#include <math.h>
#include <stddef.h>

#include "tests/gpu/cases.h"

/*
 * ---- AdamW: shapes are elements of the arena, first, length, gap and number of the ranges; p: the
 * gradients' size, 0 for 1 ----
 */

enum { RANGES_MAX = 400, DECAYED = 3 };

static void adamw(struct harness *h, const struct cases_shape *s, bool compact, double tolerance)
{
	int64_t n = s->a, owned = 0;
	bool same = k_elem_bytes(h->ctx) == sizeof(k_real);
	struct k_range ranges[RANGES_MAX], decayed[DECAYED];
	struct k_step_state state = {.lr = 1e-2, .t = 3, .grad_mul = 0.5};
	struct k_adamw a = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
	double size = s->p > 0 ? s->p : 1, square = size * size / 2;
	struct k_step_state *on_device;

	for (int64_t i = 0; i < s->e; i++) {
		ranges[i] = (struct k_range){s->b + i * (s->c + s->d), s->c};
		owned += s->c;
	}
	for (int64_t i = 0; i < DECAYED; i++)
		decayed[i] = (struct k_range){(3 * i + 1) * n / 10, n / 10};
	a.master_compact = compact;
	a.grads = harness_tensor(h, n, 0, size);
	a.m = harness_real(h, owned, 0, size);
	a.v = harness_real(h, owned, square, square);
	a.master = harness_real(h, compact ? owned : n, 0, 1);
	a.params = same && !compact ? (void *)a.master : harness_tensor(h, n, 0, 1);
	a.ranges = harness_bytes(h, ranges, (size_t)s->e * sizeof *ranges);
	a.n_ranges = s->e;
	a.decayed = harness_bytes(h, decayed, sizeof decayed);
	a.n_decayed = DECAYED;
	on_device = harness_bytes(h, &state, sizeof state);
	k_adamw_step(h->s, &a, on_device);
	harness_result_real(h, "master", a.master, compact ? owned : n, tolerance);
	harness_result_real(h, "m", a.m, owned, tolerance);
	harness_result_real(h, "v", a.v, owned, tolerance);
	if (tolerance == 0)
		harness_result(h, "params", a.params, n, tolerance);
	else
		harness_result(h, "params", a.params, n, harness_tolerance(h));
}

static void adamw_near(struct harness *h, const struct cases_shape *s)
{
	adamw(h, s, true, 4e-6);
}

static void adamw_exact(struct harness *h, const struct cases_shape *s)
{
	adamw(h, s, false, 0);
}

static void adamw_exact_compact(struct harness *h, const struct cases_shape *s)
{
	adamw(h, s, true, 0);
}

/* ---- shapes are n ---- */

static void sum_squares(struct harness *h, const struct cases_shape *s)
{
	void *x = harness_tensor(h, s->a, 0, 3);
	struct k_exact_sum sum = {{0}, 0};
	struct k_step_state state = {.clip = 1, .loss_scale = 8};
	struct k_exact_sum *on_device = harness_bytes(h, &sum, sizeof sum);
	struct k_step_state *step = harness_bytes(h, &state, sizeof state);
	double values[K_EXACT_LIMBS + 5];

	k_sum_squares(h->s, on_device, x, s->a);
	k_sum_squares(h->s, on_device, x, s->a / 2);
	k_step_prepare(h->s, step, on_device);
	k_copy_out(h->s, &sum, on_device, sizeof sum);
	k_copy_out(h->s, &state, step, sizeof state);
	k_stream_sync(h->s, INT64_MAX);
	for (int i = 0; i < K_EXACT_LIMBS; i++)
		values[i] = (double)sum.limb[i];
	values[K_EXACT_LIMBS] = (double)sum.nonfinite;
	values[K_EXACT_LIMBS + 1] = k_exact_value(&sum);
	values[K_EXACT_LIMBS + 2] = state.grad_norm;
	values[K_EXACT_LIMBS + 3] = state.grad_mul;
	values[K_EXACT_LIMBS + 4] = (double)state.skip;
	h->result(h, "sum and step", values, K_EXACT_LIMBS + 5, 0);
}

/* An inf and a nan: both count; the step is skipped. */
static void nonfinite(struct harness *h, const struct cases_shape *s)
{
	char bad[16];
	void *x = harness_tensor(h, s->a, 0, 3);
	struct k_exact_sum sum = {{0}, 0};
	struct k_step_state state = {.clip = 1, .loss_scale = 8};
	struct k_exact_sum *on_device = harness_bytes(h, &sum, sizeof sum);
	struct k_step_state *step = harness_bytes(h, &state, sizeof state);
	size_t elem = k_elem_bytes(h->ctx);
	double values[3];

	harness_encode(k_context_dtype(h->ctx), (double)INFINITY, bad);
	k_copy_in(h->s, x, bad, elem);
	harness_encode(k_context_dtype(h->ctx), (double)NAN, bad);
	k_copy_in(h->s, (char *)x + (size_t)(s->a - 1) * elem, bad, elem);
	k_sum_squares(h->s, on_device, x, s->a);
	k_step_prepare(h->s, step, on_device);
	k_copy_out(h->s, &sum, on_device, sizeof sum);
	k_copy_out(h->s, &state, step, sizeof state);
	k_stream_sync(h->s, INT64_MAX);
	values[0] = (double)sum.nonfinite;
	values[1] = k_exact_value(&sum);
	values[2] = (double)state.skip;
	h->result(h, "counts", values, 3, 0);
}

static void sum_in_order(struct harness *h, const struct cases_shape *s)
{
	void *a = harness_tensor(h, s->a, 0, 1), *b = harness_tensor(h, s->a, 0, 1);
	void *c = harness_tensor(h, s->a, 0, 1), *d = harness_poison(h, s->a);
	const void *srcs[] = {a, b, c};
	double tolerance = s->b ? 0 : harness_tolerance(h);

	k_sum_in_order(h->s, d, srcs, 3, s->a);
	harness_result(h, "sum", d, s->a, tolerance);
	k_sum_in_order(h->s, b, srcs, 3, s->a);
	harness_result(h, "onto a source", b, s->a, tolerance);
}

static void cast(struct harness *h, const struct cases_shape *s)
{
	k_real *in = harness_real(h, s->a, 0, 1);
	void *out = harness_poison(h, s->a);

	k_cast(h->s, out, in, s->a);
	harness_result(h, "out", out, s->a, harness_tolerance(h));
	k_fill(h->s, in, s->a, 0.25);
	harness_result_real(h, "filled", in, s->a, 1e-12);
}

/* a: n, b: first */
static void init_normal(struct harness *h, const struct cases_shape *s)
{
	k_real *out = harness_poison_real(h, s->a);

	k_init_normal(h->s, out, s->a, UINT64_C(0x123456789abcdef0), 5, s->b, 0.25, 0.02);
	harness_result_real(h, "out", out, s->a, 0);
}

static void dropout(struct harness *h, const struct cases_shape *s)
{
	struct k_dropout drop = {s->p, UINT64_C(0x123456789abcdef0), 77};
	void *dout = harness_tensor(h, s->a, 0, 1), *dinp = harness_poison(h, s->a);

	k_dropout_backward(h->s, dinp, dout, s->a, &drop);
	harness_result(h, "dinp", dinp, s->a, 0);
}

const struct cases_case cases_optimizer[] = {
	{"adamw", adamw_near, {20000, 0, 4096, 256, 4, 0}, true},
	{"adamw", adamw_near, {20000, 3, 71, 5, 200, 0}, true},
	{"sum_in_order", sum_in_order, {4096, 0, 0, 0, 0, 0}, true},
	{"sum_in_order", sum_in_order, {1001, 0, 0, 0, 0, 0}, true},
	{"cast", cast, {4096, 0, 0, 0, 0, 0}, true},
	{"cast", cast, {1003, 0, 0, 0, 0, 0}, true},
	{NULL, NULL, {0, 0, 0, 0, 0, 0}, false},
};

const struct cases_case cases_exact[] = {
	{"init_normal", init_normal, {1000, 0, 0, 0, 0, 0}, true},
	{"init_normal", init_normal, {777, 12345678901, 0, 0, 0, 0}, true},
	{"init_normal", init_normal, {2000003, 3, 0, 0, 0, 0}, false},
	{"dropout_backward", dropout, {4099, 0, 0, 0, 0, 0.1}, true},
	{"adamw", adamw_exact, {20000, 0, 4096, 256, 4, 0}, true},
	{"adamw", adamw_exact, {300000, 3, 701, 5, 400, 0}, false},
	{"adamw", adamw_exact_compact, {20000, 3, 71, 5, 200, 0}, true},
	{"adamw", adamw_exact, {20000, 0, 4096, 256, 4, 1e-15}, true},
	{"adamw", adamw_exact, {20000, 0, 4096, 256, 4, 1e-18}, true},
	{"adamw", adamw_exact, {20000, 0, 4096, 256, 4, 1e9}, true},
	{"adamw", adamw_exact, {3000000, 0, 3000000, 0, 1, 0}, false},
	{"sum_squares", sum_squares, {128, 0, 0, 0, 0, 0}, true},
	{"sum_squares", sum_squares, {10007, 0, 0, 0, 0, 0}, true},
	{"sum_squares", sum_squares, {3000000, 0, 0, 0, 0, 0}, false},
	{"nonfinite", nonfinite, {1000, 0, 0, 0, 0, 0}, true},
	{"sum_in_order", sum_in_order, {1001, 1, 0, 0, 0, 0}, true},
	{NULL, NULL, {0, 0, 0, 0, 0, 0}, false},
};
