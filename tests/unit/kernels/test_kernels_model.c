#include "tests/unit/kernels/kernels_fixture.h"

#include <math.h>
#include <string.h>

static const struct k_dropout drop_off = {0, 0, 0};
static const struct k_dropout drop_on = {0.25, 0x123456789abcdefu, 0xfedcba987654321u};

/* ---- embedding ---- */

struct embedding {
	double *wte, *wpe, *w; /* w: what the loss multiplies the output with */
	const int32_t *tokens;
	int64_t B, T, C;
	const struct k_dropout *drop;
	double *out;
};

static double embedding_loss(void *env)
{
	struct embedding *e = env;

	for (int64_t r = 0; r < e->B * e->T; r++) {
		for (int64_t c = 0; c < e->C; c++)
			e->out[r * e->C + c] = fixture_mask(e->drop, r * e->C + c) *
				(e->wte[e->tokens[r] * e->C + c] + e->wpe[r % e->T * e->C + c]);
	}
	return fixture_dot(e->out, e->w, e->B * e->T * e->C);
}

static void check_embedding(
	int64_t B, int64_t T, int64_t C, int32_t Vp, const struct k_dropout *drop)
{
	int64_t R = B * T;
	struct embedding e = {fixture_random(Vp * C, 1), fixture_random((T + 3) * C, 1),
		fixture_random(R * C, 1), fixture_tokens(R, Vp - 1), B, T, C, drop,
		fixture_host(R * C)};
	double *before = fixture_random(Vp * C, 1), *grad;
	k_real *wte = fixture_device(e.wte, Vp * C), *wpe = fixture_device(e.wpe, (T + 3) * C);
	k_real *out = fixture_poison(R * C), *dout = fixture_device(e.w, R * C);
	k_real *dwte = fixture_device(before, Vp * C);
	k_real *dwpe = fixture_device(fixture_host((T + 3) * C), (T + 3) * C);

	k_embedding_forward(fixture.s, out, e.tokens, wte, wpe, B, T, C, drop);
	k_embedding_backward(fixture.s, dwte, dwpe, dout, e.tokens, NULL, B, T, C, drop);
	embedding_loss(&e);
	fixture_equal("embedding", fixture_copy(out, R * C), e.out, R * C, FIXTURE_FORWARD);
	grad = fixture_copy(dwte, Vp * C);
	for (int64_t i = 0; i < C; i++) /* a row that no token names keeps what it had */
		assert_true(grad[(Vp - 1) * C + i] == before[(Vp - 1) * C + i]);
	for (int64_t i = 0; i < Vp * C; i++)
		grad[i] -= before[i];
	fixture_gradient("dwte", embedding_loss, &e, e.wte, grad, Vp * C, 60);
	fixture_gradient("dwpe", embedding_loss, &e, e.wpe, fixture_copy(dwpe, (T + 3) * C),
		(T + 3) * C, 60);
}

static void embedding(void **state)
{
	check_embedding(1, 1, 1, 2, &drop_off);
	check_embedding(2, 5, 7, 4, &drop_off);
	check_embedding(3, 7, 130, 9, &drop_off);
	check_embedding(2, 5, 7, 4, &drop_on);
	check_embedding(3, 7, 130, 9, &drop_on);
}

/* ---- layernorm ---- */

struct norm {
	double *inp1, *inp2, *weight, *bias, *w;
	int64_t R, C;
	const struct k_dropout *drop; /* NULL: inp1 alone */
	double *residual, *out, *mean, *rstd;
};

static double norm_loss(void *env)
{
	struct norm *n = env;

	for (int64_t r = 0; r < n->R; r++) {
		double *x = n->residual + r * n->C, sum = 0, squares = 0;

		for (int64_t c = 0; c < n->C; c++) {
			int64_t i = r * n->C + c;

			x[c] = n->inp1[i];
			if (n->drop)
				x[c] += fixture_mask(n->drop, i) * n->inp2[i];
			sum += x[c];
		}
		n->mean[r] = sum / (double)n->C;
		for (int64_t c = 0; c < n->C; c++)
			squares += (x[c] - n->mean[r]) * (x[c] - n->mean[r]);
		n->rstd[r] = 1 / sqrt(squares / (double)n->C + 1e-5);
		for (int64_t c = 0; c < n->C; c++)
			n->out[r * n->C + c] =
				(x[c] - n->mean[r]) * n->rstd[r] * n->weight[c] + n->bias[c];
	}
	return fixture_dot(n->out, n->w, n->R * n->C);
}

static struct norm make_norm(int64_t R, int64_t C, const struct k_dropout *drop)
{
	return (struct norm){fixture_random(R * C, 2), fixture_random(R * C, 2),
		fixture_random(C, 1), fixture_random(C, 1), fixture_random(R * C, 1), R, C, drop,
		fixture_host(R * C), fixture_host(R * C), fixture_host(R), fixture_host(R)};
}

/* dinp, dweight and dbias are added to: each starts from something. */
static void check_norm_backward(
	struct norm *n, k_real *inp, k_real *weight, k_real *mean, k_real *rstd)
{
	int64_t R = n->R, C = n->C, RC = R * C;
	double *before = fixture_random(RC + 2 * C, 1), *grad;
	k_real *d = fixture_device(before, RC + 2 * C), *masked = fixture_poison(RC);

	k_layernorm_backward(fixture.s, d, d + RC, d + RC + C, NULL, d, fixture_device(n->w, RC),
		inp, weight, mean, rstd, R, C);
	grad = fixture_copy(d, RC + 2 * C);
	for (int64_t i = 0; i < RC + 2 * C; i++)
		grad[i] -= before[i];
	fixture_gradient("dinp1", norm_loss, n, n->inp1, grad, RC, 60);
	fixture_gradient("dweight", norm_loss, n, n->weight, grad + RC, C, 60);
	fixture_gradient("dbias", norm_loss, n, n->bias, grad + RC + C, C, 60);
	if (!n->drop)
		return;
	k_dropout_backward(fixture.s, masked, fixture_device(grad, RC), RC, n->drop);
	fixture_gradient("dinp2", norm_loss, n, n->inp2, fixture_copy(masked, RC), RC, 60);
}

static void check_norm(int64_t R, int64_t C, const struct k_dropout *drop, bool in_place)
{
	struct norm n = make_norm(R, C, drop);
	k_real *inp1 = fixture_device(n.inp1, R * C), *inp2 = fixture_device(n.inp2, R * C);
	k_real *weight = fixture_device(n.weight, C), *bias = fixture_device(n.bias, C);
	k_real *out = fixture_poison(R * C), *mean = fixture_poison(R), *rstd = fixture_poison(R);
	k_real *residual = in_place ? inp1 : fixture_poison(R * C);

	if (drop)
		k_residual_layernorm_forward(
			fixture.s, residual, out, mean, rstd, inp1, inp2, weight, bias, R, C, drop);
	else
		k_layernorm_forward(fixture.s, out, mean, rstd, inp1, weight, bias, R, C);
	norm_loss(&n);
	fixture_equal("out", fixture_copy(out, R * C), n.out, R * C, FIXTURE_FORWARD);
	fixture_equal("mean", fixture_copy(mean, R), n.mean, R, FIXTURE_FORWARD);
	fixture_equal("rstd", fixture_copy(rstd, R), n.rstd, R, FIXTURE_FORWARD);
	if (drop)
		fixture_equal("residual", fixture_copy(residual, R * C), n.residual, R * C,
			FIXTURE_FORWARD);
	check_norm_backward(&n, drop ? residual : inp1, weight, mean, rstd);
}

static void layernorm(void **state)
{
	check_norm(1, 5, NULL, false);
	check_norm(3, 7, NULL, false);
	check_norm(5, 64, NULL, false);
	check_norm(150, 33, NULL, false);
	check_norm(2500, 4, NULL, false);
}

static void residual_layernorm(void **state)
{
	check_norm(3, 7, &drop_off, false);
	check_norm(3, 7, &drop_off, true);
	check_norm(37, 33, &drop_on, false);
	check_norm(37, 33, &drop_on, true);
}

/* ---- attention ---- */

struct attention {
	double *qkv, *w;
	int64_t B, T, NH, HS;
	const struct k_dropout *drop;
	double *out, *lse, *prob;
};

static void attention_query(struct attention *a, int64_t b, int64_t h, int64_t t)
{
	int64_t C = a->NH * a->HS, head = b * a->NH + h;
	const double *q = a->qkv + (b * a->T + t) * 3 * C + h * a->HS;
	const double *k = a->qkv + b * a->T * 3 * C + C + h * a->HS, *v = k + C;
	double *out = a->out + (b * a->T + t) * C + h * a->HS, sum = 0;

	for (int64_t i = 0; i <= t; i++) {
		a->prob[i] = exp(fixture_dot(q, k + i * 3 * C, a->HS) / sqrt((double)a->HS));
		sum += a->prob[i];
	}
	a->lse[head * a->T + t] = log(sum);
	memset(out, 0, (size_t)a->HS * sizeof *out);
	for (int64_t i = 0; i <= t; i++) {
		double p = a->prob[i] / sum * fixture_mask(a->drop, (head * a->T + t) * a->T + i);

		for (int64_t j = 0; j < a->HS; j++)
			out[j] += p * v[i * 3 * C + j];
	}
}

static double attention_loss(void *env)
{
	struct attention *a = env;

	for (int64_t b = 0; b < a->B; b++) {
		for (int64_t h = 0; h < a->NH; h++) {
			for (int64_t t = 0; t < a->T; t++)
				attention_query(a, b, h, t);
		}
	}
	return fixture_dot(a->out, a->w, a->B * a->T * a->NH * a->HS);
}

static void check_attention(
	int64_t B, int64_t T, int64_t NH, int64_t HS, const struct k_dropout *drop)
{
	int64_t n = B * T * NH * HS;
	struct attention a = {fixture_random(3 * n, 1.5), fixture_random(n, 1), B, T, NH, HS, drop,
		fixture_host(n), fixture_host(B * NH * T), fixture_host(T)};
	k_real *qkv = fixture_device(a.qkv, 3 * n), *out = fixture_poison(n);
	k_real *lse = fixture_poison(B * NH * T), *dqkv = fixture_poison(3 * n);

	k_attention_forward(fixture.s, out, lse, qkv, B, T, NH, HS, drop);
	k_attention_backward(
		fixture.s, dqkv, NULL, fixture_device(a.w, n), out, lse, qkv, B, T, NH, HS, drop);
	attention_loss(&a);
	fixture_equal("attention", fixture_copy(out, n), a.out, n, FIXTURE_FORWARD);
	if (drop->p <= 0) { /* the last row of the last sample by itself */
		int64_t C = NH * HS, before = (B - 1) * T;

		k_attention_row(fixture.s, out, qkv + before * 3 * C, T, NH, HS);
		fixture_equal("last row", fixture_copy(out, C), a.out + (before + T - 1) * C, C,
			FIXTURE_FORWARD);
	}
	fixture_equal("lse", fixture_copy(lse, B * NH * T), a.lse, B * NH * T, FIXTURE_FORWARD);
	fixture_gradient("dqkv", attention_loss, &a, a.qkv, fixture_copy(dqkv, 3 * n), 3 * n, 29);
}

static void attention(void **state)
{
	check_attention(1, 1, 1, 1, &drop_off);
	check_attention(2, 5, 3, 7, &drop_off);
	check_attention(1, 64, 1, 8, &drop_off);
	check_attention(2, 65, 2, 5, &drop_off);
	check_attention(1, 131, 2, 16, &drop_off);
}

static void attention_dropout(void **state)
{
	check_attention(2, 5, 3, 7, &drop_on);
	check_attention(1, 65, 2, 5, &drop_on);
	check_attention(1, 130, 1, 3, &drop_on);
}

/* ---- cross-entropy ---- */

struct entropy {
	double *logits;
	const int32_t *targets;
	int64_t R, V, Vp;
	double scale;
	double *losses;
};

static double entropy_loss(void *env)
{
	struct entropy *e = env;
	double sum = 0;

	for (int64_t r = 0; r < e->R; r++) {
		const double *x = e->logits + r * e->Vp;
		double total = 0, most = x[0];

		for (int64_t v = 0; v < e->V; v++)
			most = fmax(most, x[v]);
		for (int64_t v = 0; v < e->V; v++)
			total += exp(x[v] - most);
		e->losses[r] = log(total) + most - x[e->targets[r]];
		sum += e->losses[r];
	}
	return sum * e->scale;
}

static void check_entropy(int64_t R, int64_t V, int64_t Vp, double by)
{
	struct entropy e = {fixture_random(R * Vp, by), fixture_tokens(R, (int32_t)V), R, V, Vp,
		0.37, fixture_host(R)};
	k_real *logits = fixture_device(e.logits, R * Vp), *losses = fixture_poison(R);
	double *grad;

	for (int64_t r = 0; r < R; r++) {
		for (int64_t v = V; v < Vp; v++)
			logits[r * Vp + v] = (k_real)NAN;
	}
	entropy_loss(&e);
	k_cross_entropy(fixture.s, losses, logits, e.targets, R, V, Vp, 0, NULL);
	fixture_equal("losses", fixture_copy(losses, R), e.losses, R, FIXTURE_FORWARD);
	for (int64_t i = 0; i < R * Vp; i++) /* untouched */
		assert_true(i % Vp >= V ? isnan(logits[i]) : logits[i] == (k_real)e.logits[i]);
	k_cross_entropy(fixture.s, losses, logits, e.targets, R, V, Vp, e.scale, NULL);
	fixture_equal("losses", fixture_copy(losses, R), e.losses, R, FIXTURE_FORWARD);
	for (int64_t i = 0; i < R * Vp; i++) {
		if (i % Vp >= V)
			assert_true(logits[i] == 0);
	}
	grad = fixture_copy(logits, R * Vp);
	fixture_gradient("logits", entropy_loss, &e, e.logits, grad, R * Vp, 60);
}

static void cross_entropy(void **state)
{
	check_entropy(1, 1, 1, 1);
	check_entropy(3, 5, 8, 3);
	check_entropy(7, 300, 300, 3);
	check_entropy(2, 5003, 5056, 8);
	check_entropy(4, 17, 64, 80);
}

/* A factor read when the operation runs is as good as one in the call. */
static void cross_entropy_times(void **state)
{
	enum { R = 5, V = 17, Vp = 24 };
	double *x = fixture_random(R * Vp, 2), times = 0.5;
	const int32_t *targets = fixture_tokens(R, V);
	k_real *want = fixture_device(x, R * Vp), *logits = fixture_device(x, R * Vp);
	k_real losses[R];

	k_cross_entropy(fixture.s, losses, want, targets, R, V, Vp, 0.37 * times, NULL);
	k_cross_entropy(fixture.s, losses, logits, targets, R, V, Vp, 0.37, &times);
	assert_memory_equal(logits, want, R * Vp * sizeof(*want));
}

static void losses_are_summed_in_order(void **state)
{
	enum { N = 4099 };
	k_real *losses = fixture_device(fixture_random(N, 3), N);
	double sum = 2, want = 2;

	for (int i = 0; i < N; i++)
		want += (double)losses[i];
	k_sum_losses(fixture.s, &sum, losses, N);
	assert_true(sum == want);
	k_sum_losses(fixture.s, &sum, losses, 0);
	assert_true(sum == want);
}

static void cross_entropy_refuses_targets(void **state)
{
	double x[8] = {0};
	int32_t targets[2] = {3, 4};
	k_real *logits = fixture_device(x, 8), losses[2];

	k_cross_entropy(fixture.s, losses, logits, targets, 2, 4, 4, 1, NULL);
	assert_string_equal(
		k_context_error(fixture.ctx), "k_cross_entropy: target 4 in row 1, 0..3 expected");
	for (int i = 0; i < 8; i++)
		assert_true(logits[i] == 0);
}

static int teardown_failed(void **state)
{
	return fixture_teardown(state) == 0 ? -1 : 0;
}

FIXTURE_MAIN(FIXTURE_TEST(embedding), FIXTURE_TEST(layernorm), FIXTURE_TEST(residual_layernorm),
	FIXTURE_TEST(attention), FIXTURE_TEST(attention_dropout), FIXTURE_TEST(cross_entropy),
	FIXTURE_TEST(cross_entropy_times), FIXTURE_TEST(losses_are_summed_in_order),
	cmocka_unit_test_setup_teardown(
		cross_entropy_refuses_targets, fixture_setup, teardown_failed))
