/*
 * The same bits on one thread, on several, and on a stream with a thread of its own; and again when
 * the operation is repeated.
 */
#include <string.h>

#include "tests/unit/kernels/kernels_fixture.h"

enum { OUTPUTS = 4 };

struct outputs {
	k_real *at[OUTPUTS];
	int64_t n[OUTPUTS];
};

typedef void operation(struct k_stream *s, struct outputs *out);

/* Inputs are the same whenever an operation is called: the fixture's numbers start again. */
static k_real *input(int64_t n, double by)
{
	return fixture_device(fixture_random(n, by), n);
}

static k_real *output(struct outputs *out, int i, int64_t n, double by)
{
	out->n[i] = n;
	out->at[i] = by == 0 ? fixture_poison(n) : input(n, by);
	return out->at[i];
}

static const struct k_dropout drop = {0.1, 99, 7};

static void linear_forward(struct k_stream *s, struct outputs *out)
{
	int64_t R = 700, C = 96, OC = 640;

	k_linear_gelu_forward(s, output(out, 0, R * OC, 0), output(out, 1, R * OC, 0),
		input(R * C, 1), input(OC * C, 1), input(OC, 1), R, C, OC, K_GELU_TANH);
	k_linear_forward(
		s, output(out, 2, R * OC, 0), input(R * C, 1), input(OC * C, 1), NULL, R, C, OC);
}

static void linear_backward(struct k_stream *s, struct outputs *out)
{
	int64_t R = 700, C = 96, OC = 640;

	k_linear_backward_gelu(s, output(out, 0, R * C, 0), output(out, 1, OC * C, 1),
		output(out, 2, OC, 1), output(out, 3, C, 1), input(R * OC, 1), input(R * C, 1),
		input(R * C, 1), input(OC * C, 1), R, C, OC, K_GELU_EXACT);
}

static void attention(struct k_stream *s, struct outputs *out)
{
	int64_t B = 2, T = 200, NH = 3, HS = 32, n = B * T * NH * HS;
	k_real *qkv = input(3 * n, 1), *o = output(out, 0, n, 0);
	k_real *lse = output(out, 1, B * NH * T, 0);

	k_attention_forward(s, o, lse, qkv, B, T, NH, HS, &drop);
	k_attention_backward(
		s, output(out, 2, 3 * n, 0), NULL, input(n, 1), o, lse, qkv, B, T, NH, HS, &drop);
}

static void layernorm(struct k_stream *s, struct outputs *out)
{
	int64_t R = 3000, C = 40;
	k_real *inp = input(R * C, 1), *residual = output(out, 3, R * C, 0);
	k_real *mean = input(R, 1), *rstd = input(R, 1), *weight = input(C, 1);
	k_real *dweight = output(out, 2, 3 * C, 1);

	k_residual_layernorm_forward(s, residual, output(out, 0, R * C, 0), mean, rstd, inp,
		input(R * C, 1), weight, input(C, 1), R, C, &drop);
	k_layernorm_backward(s, output(out, 1, R * C, 0), dweight, dweight + C, dweight + 2 * C,
		input(R * C, 1), input(R * C, 1), residual, weight, mean, rstd, R, C);
}

static void embedding(struct k_stream *s, struct outputs *out)
{
	int64_t B = 3, T = 100, C = 200, V = 50;
	int32_t *tokens = fixture_tokens(B * T, (int32_t)V);

	k_embedding_forward(s, output(out, 0, B * T * C, 0), tokens, input(V * C, 1),
		input(T * C, 1), B, T, C, &drop);
	k_embedding_backward(s, output(out, 1, V * C, 1), output(out, 2, T * C, 1),
		input(B * T * C, 1), tokens, NULL, B, T, C, &drop);
}

static void cross_entropy(struct k_stream *s, struct outputs *out)
{
	int64_t R = 61, V = 3001, Vp = 3072;
	k_real *logits = output(out, 1, R * Vp, 3);

	k_cross_entropy(s, output(out, 0, R, 0), logits, fixture_tokens(R, (int32_t)V), R, V, Vp,
		0.5, NULL);
}

static void optimizer(struct k_stream *s, struct outputs *out)
{
	static struct k_exact_sum sum;
	static struct k_step_state step;
	static const struct k_range range = {0, 200000};
	k_real *p = output(out, 0, range.n, 1), *g = input(range.n, 1);

	out->n[2] = range.n;
	out->at[2] = fixture_device(fixture_host(range.n), range.n);
	memset(&sum, 0, sizeof sum);
	step = (struct k_step_state){.lr = 0.1, .clip = 1, .loss_scale = 2, .t = 1};
	k_sum_squares(s, &sum, g, range.n);
	k_step_prepare(s, &step, &sum);
	k_adamw_step(s,
		&(struct k_adamw){.beta1 = 0.9,
			.beta2 = 0.999,
			.eps = 1e-8,
			.weight_decay = 0.1,
			.master = p,
			.params = p,
			.grads = g,
			.m = output(out, 1, range.n, 1),
			.v = out->at[2],
			.ranges = &range,
			.n_ranges = 1,
			.decayed = &range,
			.n_decayed = 1},
		&step);
	k_init_normal(s, output(out, 3, range.n, 0), range.n, 5, 6, 7, 0, 1);
}

static struct outputs run(operation *op, int threads, enum k_stream_kind kind)
{
	struct outputs out = {0};
	struct k_stream *s;

	fixture_restart();
	k_context_set_threads(fixture.ctx, threads);
	assert_int_equal(k_stream_create(fixture.ctx, kind, "test", &s), 0);
	op(s, &out);
	assert_int_equal(k_stream_sync(s, INT64_MAX), 0);
	k_stream_destroy(s);
	return out;
}

static void check(operation *op)
{
	struct outputs want = run(op, 1, K_STREAM_COMPUTE);

	for (int threads = 1; threads <= 4; threads++) {
		struct outputs got = run(op, threads < 4 ? threads : 1,
			threads < 4 ? K_STREAM_COMPUTE : K_STREAM_COMM);

		for (int i = 0; i < OUTPUTS && want.at[i]; i++)
			assert_memory_equal(
				got.at[i], want.at[i], (size_t)want.n[i] * sizeof(k_real));
	}
}

static void same_bits(void **state)
{
	check(linear_forward);
	check(linear_backward);
	check(attention);
	check(layernorm);
	check(embedding);
	check(cross_entropy);
	check(optimizer);
}

FIXTURE_MAIN(FIXTURE_TEST(same_bits))
