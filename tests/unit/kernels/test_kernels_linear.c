/* Linear layers, with and without GELU on either side. */
#include "tests/unit/kernels/kernels_fixture.h"

#include <math.h>

static double gelu_reference(double x, enum k_gelu gelu)
{
	if (gelu == K_GELU_EXACT)
		return 0.5 * x * (1 + erf(x / sqrt(2)));
	return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

struct linear {
	double *inp, *weight, *bias, *w;
	int64_t R, C, OC;
	bool gelu_after, gelu_before; /* out = gelu(layer), layer(gelu(inp)) */
	enum k_gelu gelu;
	double *pre, *out, *active;
};

static double linear_loss(void *env)
{
	struct linear *l = env;

	for (int64_t i = 0; i < l->R * l->C; i++)
		l->active[i] = l->gelu_before ? gelu_reference(l->inp[i], l->gelu) : l->inp[i];
	for (int64_t r = 0; r < l->R; r++) {
		for (int64_t o = 0; o < l->OC; o++) {
			double sum = fixture_dot(l->active + r * l->C, l->weight + o * l->C, l->C);

			sum += l->bias ? l->bias[o] : 0;
			l->pre[r * l->OC + o] = sum;
			l->out[r * l->OC + o] = l->gelu_after ? gelu_reference(sum, l->gelu) : sum;
		}
	}
	return fixture_dot(l->out, l->w, l->R * l->OC);
}

static struct linear make_linear(int64_t R, int64_t C, int64_t OC, bool bias)
{
	return (struct linear){.inp = fixture_random(R * C, 2),
		.weight = fixture_random(OC * C, 1),
		.bias = bias ? fixture_random(OC, 1) : NULL,
		.w = fixture_random(R * OC, 1),
		.R = R,
		.C = C,
		.OC = OC,
		.pre = fixture_host(R * OC),
		.out = fixture_host(R * OC),
		.active = fixture_host(R * C)};
}

static void check_linear_forward(struct linear *l)
{
	int64_t n = l->R * l->OC;
	k_real *out = fixture_poison(n), *pre = fixture_poison(n), *again = fixture_poison(n);
	k_real *inp = fixture_device(l->inp, l->R * l->C);
	k_real *weight = fixture_device(l->weight, l->OC * l->C);
	k_real *bias = l->bias ? fixture_device(l->bias, l->OC) : NULL;

	linear_loss(l);
	if (!l->gelu_after) {
		k_linear_forward(fixture.s, out, inp, weight, bias, l->R, l->C, l->OC);
	} else {
		k_linear_gelu_forward(
			fixture.s, out, pre, inp, weight, bias, l->R, l->C, l->OC, l->gelu);
		k_linear_gelu_again(
			fixture.s, again, pre, inp, weight, bias, l->R, l->C, l->OC, l->gelu);
		assert_memory_equal(
			fixture_copy(again, n), fixture_copy(out, n), (size_t)n * sizeof(double));
		fixture_equal("pre", fixture_copy(pre, n), l->pre, n, FIXTURE_FORWARD);
	}
	fixture_equal("linear", fixture_copy(out, n), l->out, n, FIXTURE_FORWARD);
}

static void check_linear_backward(struct linear *l, bool want_dinp)
{
	int64_t nw = l->OC * l->C, ni = l->R * l->C;
	double *before = fixture_random(nw + l->OC, 1), *grad;
	k_real *dweight = fixture_device(before, nw), *dbias = fixture_device(before + nw, l->OC);
	k_real *dinp = want_dinp ? fixture_poison(ni) : NULL;
	k_real *dout = fixture_device(l->w, l->R * l->OC), *inp = fixture_device(l->inp, ni);
	k_real *weight = fixture_device(l->weight, nw);

	linear_loss(l);
	if (l->gelu_before)
		k_linear_backward_gelu(fixture.s, dinp, dweight, l->bias ? dbias : NULL, NULL, dout,
			fixture_device(l->active, ni), inp, weight, l->R, l->C, l->OC, l->gelu);
	else
		k_linear_backward(fixture.s, dinp, dweight, l->bias ? dbias : NULL, dout, inp,
			weight, l->R, l->C, l->OC);
	grad = fixture_copy(dweight, nw);
	for (int64_t i = 0; i < nw; i++)
		grad[i] -= before[i];
	fixture_gradient("dweight", linear_loss, l, l->weight, grad, nw, 6);
	if (want_dinp)
		fixture_gradient("dinp", linear_loss, l, l->inp, fixture_copy(dinp, ni), ni, 6);
	grad = fixture_copy(dbias, l->OC);
	for (int64_t i = 0; i < l->OC; i++)
		grad[i] -= before[nw + i];
	if (l->bias)
		fixture_gradient("dbias", linear_loss, l, l->bias, grad, l->OC, 6);
	else
		assert_true(grad[0] == 0);
}

/* Onto what is no number, as the same onto zeros. */
static void check_linear_first(const struct linear *l)
{
	int64_t nw = l->OC * l->C, ni = l->R * l->C, no = l->R * l->OC;
	double *zeros = fixture_random(nw + l->OC + l->C, 0);
	k_real *sums[] = {
		fixture_device(zeros, nw + l->OC + l->C), fixture_device(zeros, nw + l->OC + l->C)};
	k_real *dinp[] = {fixture_poison(ni), fixture_poison(ni)};
	k_real *dout = fixture_device(l->w, no), *inp = fixture_device(l->inp, ni);
	k_real *first = fixture_poison(nw), *weight = fixture_device(l->weight, nw);
	k_real *pre = l->gelu_before ? inp : NULL;

	if (pre)
		k_linear_backward_gelu(fixture.s, dinp[0], sums[0], sums[0] + nw,
			sums[0] + nw + l->OC, dout, inp, pre, weight, l->R, l->C, l->OC, l->gelu);
	else
		k_linear_backward(fixture.s, dinp[0], sums[0], sums[0] + nw, dout, inp, weight,
			l->R, l->C, l->OC);
	k_linear_backward_first(fixture.s, dinp[1], first, sums[1] + nw,
		pre ? sums[1] + nw + l->OC : NULL, dout, inp, pre, weight, l->R, l->C, l->OC,
		l->gelu);
	assert_memory_equal(
		fixture_copy(dinp[0], ni), fixture_copy(dinp[1], ni), (size_t)ni * sizeof(double));
	assert_memory_equal(
		fixture_copy(sums[0], nw), fixture_copy(first, nw), (size_t)nw * sizeof(double));
	assert_memory_equal(fixture_copy(sums[0] + nw, l->OC + l->C),
		fixture_copy(sums[1] + nw, l->OC + l->C), (size_t)(l->OC + l->C) * sizeof(double));
}

static void check_linear(int64_t R, int64_t C, int64_t OC)
{
	for (int bias = 0; bias < 2; bias++) {
		struct linear l = make_linear(R, C, OC, bias);

		check_linear_forward(&l);
		check_linear_backward(&l, true);
		check_linear_backward(&l, false);
		check_linear_first(&l);
		for (int gelu = 0; gelu < 2; gelu++) {
			l.gelu = gelu ? K_GELU_EXACT : K_GELU_TANH;
			l.gelu_after = true;
			check_linear_forward(&l);
			l.gelu_after = false;
			l.gelu_before = true;
			check_linear_backward(&l, true);
			check_linear_first(&l);
			l.gelu_before = false;
		}
	}
}

static void linear_small(void **state)
{
	check_linear(1, 1, 1);
	check_linear(3, 5, 7);
	check_linear(70, 33, 19);
}

/* More than one tile in each direction, the last ones cut short. */
static void linear_tiles(void **state)
{
	check_linear(531, 5, 70);
	check_linear(9, 270, 15);
	check_linear(9, 11, 530);
}

static void gelu_values(void **state)
{
	enum { N = 20001 };
	double *x = fixture_host(N), *want = fixture_host(N), *slope = fixture_host(N);

	for (int i = 0; i < N; i++)
		x[i] = (double)(float)((i - N / 2) * 0.001);
	for (int kind = 0; kind < 2; kind++) {
		enum k_gelu gelu = kind ? K_GELU_EXACT : K_GELU_TANH;
		k_real *pre = fixture_device(x, N), *out = fixture_poison(N);
		k_real *grad = fixture_poison(N);

		for (int i = 0; i < N; i++) {
			double h = 1e-5;

			want[i] = gelu_reference(x[i], gelu);
			slope[i] =
				(gelu_reference(x[i] + h, gelu) - gelu_reference(x[i] - h, gelu)) /
				(2 * h);
			grad[i] = 1;
		}
		fixture.ctx->vec->gelu(out, pre, N, gelu);
		fixture.ctx->vec->gelu_backward(grad, pre, N, gelu);
		for (int i = 0; i < N; i++) {
			assert_true(fabs((double)out[i] - want[i]) <= 2e-7 * fmax(1, fabs(x[i])));
			assert_true(fabs((double)grad[i] - slope[i]) <= 5e-7);
		}
	}
}

static void gelu_extremes(void **state)
{
	double x[8] = {-1e30, -100, -40, 0, 40, 100, 1e30, (double)NAN};

	for (int kind = 0; kind < 2; kind++) {
		enum k_gelu gelu = kind ? K_GELU_EXACT : K_GELU_TANH;
		k_real *pre = fixture_device(x, 8), *out = fixture_poison(8);
		double ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
		k_real *grad = fixture_device(ones, 8);

		fixture.ctx->vec->gelu(out, pre, 8, gelu);
		fixture.ctx->vec->gelu_backward(grad, pre, 8, gelu);
		for (int i = 0; i < 7; i++) {
			double want = x[i] > 0 ? x[i] : 0,
			       slope = x[i] > 0 ? 1
				: x[i] < 0      ? 0
						: 0.5;

			assert_true(fabs((double)out[i] - want) <= 1e-6 * want + 1e-8);
			assert_true(fabs((double)grad[i] - slope) <= 1e-6);
		}
		assert_true(isnan(out[7]));
		assert_true(isnan(grad[7]));
	}
}

FIXTURE_MAIN(FIXTURE_TEST(linear_small), FIXTURE_TEST(linear_tiles), FIXTURE_TEST(gelu_values),
	FIXTURE_TEST(gelu_extremes))
