/*
 * gpu_large: operations on tensors of more than 2^31 elements. Results per row must not depend on
 * the number of rows: an operation on all of them at once is compared with itself on small pieces,
 * of sizes that kernels_gpu compares with the CPU library. Sums over rows get gradients only in the
 * last rows, all of them above 2^31 elements, and are compared with sums over these rows. All data
 * stays on the device: the host makes and holds nothing of that size. The last line is "N passed, N
 * failed"; a case without enough memory prints that and is skipped.
 *
 *   gpu_large TYPE [WAY [small]]    TYPE: fp32, tf32, bf16; WAY: of attention, as kernels_gpu's
 */
#include <stdio.h>
#include <string.h>

#include "tests/gpu/large_layers.h"

static const int64_t allowed_bytes = 40000000000;

static void cross_entropy(struct big *b)
{
	const int64_t V = b->small ? 257 : 50257, Vp = b->small ? 320 : 50304;
	const int64_t R = big_rows(b, Vp), P = R / BIG_PIECES;
	struct big_check only = big_check_begin("cross_entropy, losses only", 0);
	struct big_check losses = big_check_begin("cross_entropy, losses", 0);
	struct big_check gradient = big_check_begin("cross_entropy, gradient", 0);
	k_real *all[2], *few;
	int32_t *targets;
	void *logits, *piece;

	if (!big_begin(b, "cross_entropy", (R + P) * Vp, 4 * R))
		return;
	logits = big_tensor(b, R * Vp, 1, 0, 3);
	piece = big_room(b, P * Vp);
	targets = harness_tokens(&b->h, R, (int32_t)V);
	few = big_room_real(b, P);
	for (int i = 0; i < 2; i++)
		all[i] = big_room_real(b, R);
	k_cross_entropy(b->s, all[0], logits, targets, R, V, Vp, 0, NULL);
	k_cross_entropy(b->s, all[1], logits, targets, R, V, Vp, 1, NULL);
	for (int64_t r = 0; r < R; r += P) {
		big_draw(b, piece, r * Vp, P * Vp, 1, 0, 3);
		k_cross_entropy(b->s, few, piece, targets + r, P, V, Vp, 0, NULL);
		big_compare_real(b, &only, all[0] + r, few, P);
		k_cross_entropy(b->s, few, piece, targets + r, P, V, Vp, 1, NULL);
		big_compare_real(b, &losses, all[1] + r, few, P);
		big_compare(b, &gradient, big_at(b, logits, r * Vp), piece, P * Vp);
	}
	big_check_end(b, &only);
	big_check_end(b, &losses);
	big_check_end(b, &gradient);
}

struct heads {
	int64_t B, T, NH, HS, C, P;
	void *qkv, *out, *dout, *dqkv, *few_out, *few_dqkv;
	k_real *lse, *few_lse;
};

static void attention_pieces(struct big *b, struct heads *h)
{
	const int64_t T = h->T, C = h->C, P = h->P, NH = h->NH;
	struct big_check out = big_check_begin("attention_forward", 0);
	struct big_check lse = big_check_begin("attention_forward, lse", 0);
	struct big_check dqkv = big_check_begin("attention_backward", 0);

	k_attention_forward(b->s, h->out, h->lse, h->qkv, h->B, T, NH, h->HS, NULL);
	k_attention_backward(
		b->s, h->dqkv, NULL, h->dout, h->out, h->lse, h->qkv, h->B, T, NH, h->HS, NULL);
	for (int64_t i = 0; i < h->B; i += P) {
		void *qkv = big_at(b, h->qkv, i * T * 3 * C), *dout = big_at(b, h->dout, i * T * C);

		k_attention_forward(b->s, h->few_out, h->few_lse, qkv, P, T, NH, h->HS, NULL);
		big_compare(b, &out, big_at(b, h->out, i * T * C), h->few_out, P * T * C);
		big_compare_real(b, &lse, h->lse + i * NH * T, h->few_lse, P * NH * T);
		k_attention_backward(b->s, h->few_dqkv, NULL, dout, h->few_out, h->few_lse, qkv, P,
			T, NH, h->HS, NULL);
		big_compare(
			b, &dqkv, big_at(b, h->dqkv, i * T * 3 * C), h->few_dqkv, P * T * 3 * C);
	}
	big_check_end(b, &out);
	big_check_end(b, &lse);
	big_check_end(b, &dqkv);
}

/* Column sums, if this way has them; then row 0 of each head, which sees one key. */
static void attention_sums_and_dropout(struct big *b, struct heads *h)
{
	const int64_t B = h->B, T = h->T, C = h->C, NH = h->NH, HS = h->HS, last = B - 1;
	const struct k_dropout drop = {0.5, BIG_SEED, BIG_PLACE, NULL};
	void *dbias[2] = {big_zeros(b, 3 * C), big_zeros(b, 3 * C)};
	const size_t elem = k_elem_bytes(b->h.ctx);
	int64_t wrong = 0, kept = 0;

	big_draw_last(b, h->dout, B * T * C, T * C, 2);
	if (k_attention_backward(
		    b->s, h->dqkv, dbias[0], h->dout, h->out, h->lse, h->qkv, B, T, NH, HS, NULL)) {
		k_attention_backward(b->s, h->few_dqkv, dbias[1], big_at(b, h->dout, last * T * C),
			big_at(b, h->out, last * T * C), h->lse + last * NH * T,
			big_at(b, h->qkv, last * T * 3 * C), 1, T, NH, HS, NULL);
		big_compare_once(b, "attention_backward, dbias of the last rows", big_tolerance(b),
			dbias[0], dbias[1], 3 * C);
	}
	big_draw(b, h->qkv, 0, B * T * 3 * C, 1, 1, 0);
	k_attention_forward(b->s, h->out, h->lse, h->qkv, B, T, NH, HS, &drop);
	for (int64_t i = 0; i < B; i++) {
		k_copy_out(b->s, b->host[0], big_at(b, h->out, i * T * C), (size_t)C * elem);
		k_stream_sync(b->s, INT64_MAX);
		for (int64_t j = 0; j < C; j++) {
			uint64_t at = (uint64_t)((i * NH + j / HS) * T * T);
			bool keep = big_philox(BIG_SEED, BIG_PLACE, at) >= 0x80000000;
			char want[4] = "";

			harness_encode(k_context_dtype(b->h.ctx), keep ? 2 : 0, want);
			wrong += memcmp(b->host[0] + (size_t)j * elem, want, elem) != 0;
			kept += keep;
		}
	}
	printf("  %lld of %lld kept, %lld wrong\n", (long long)kept, (long long)(B * C),
		(long long)wrong);
	big_verdict(b, "attention_forward with dropout: by the host's draws",
		wrong == 0 && kept > B * C / 4);
}

static void attention(struct big *b)
{
	struct heads h = {.T = b->small ? 8 : 1024, .NH = b->small ? 2 : 12, .HS = 64};

	h.C = h.NH * h.HS;
	h.B = big_rows(b, h.T * 3 * h.C);
	h.P = h.B / BIG_PIECES;
	if (!big_begin(
		    b, "attention", (8 * h.B + 4 * h.P) * h.T * h.C, (h.B + h.P) * h.NH * h.T * 2))
		return;
	h.qkv = big_tensor(b, h.B * h.T * 3 * h.C, 1, 0, 1);
	h.dqkv = big_room(b, h.B * h.T * 3 * h.C);
	h.out = big_room(b, h.B * h.T * h.C);
	h.dout = big_tensor(b, h.B * h.T * h.C, 2, 0, 1);
	h.few_out = big_room(b, h.P * h.T * h.C);
	h.few_dqkv = big_room(b, h.P * h.T * 3 * h.C);
	h.lse = big_room_real(b, h.B * h.NH * h.T);
	h.few_lse = big_room_real(b, h.P * h.NH * h.T);
	attention_pieces(b, &h);
	attention_sums_and_dropout(b, &h);
}

/* Drawn, cast, added and squared at once and in pieces. */
static void long_arrays(struct big *b)
{
	const int64_t n = big_rows(b, 1024) * 1024, P = n / BIG_PIECES;
	struct big_check cast = big_check_begin("init_normal and cast", 0);
	struct big_check added = big_check_begin("sum_in_order", 0);
	struct k_exact_sum sums[2] = {{{0}, 0}, {{0}, 0}}, *all, *few;
	void *x, *y, *piece;
	const void *srcs[2];
	k_real *real;

	if (!big_begin(b, "long arrays", 2 * n + P, n))
		return;
	real = big_room_real(b, n);
	x = big_room(b, n);
	y = big_room(b, n);
	piece = big_room(b, P);
	all = harness_bytes(&b->h, &sums[0], sizeof *all);
	few = harness_bytes(&b->h, &sums[1], sizeof *few);
	k_init_normal(b->s, real, n, BIG_SEED, 1, 0, 0, 1);
	k_cast(b->s, x, real, n);
	k_sum_squares(b->s, all, x, n);
	srcs[0] = srcs[1] = x;
	k_sum_in_order(b->s, y, srcs, 2, n);
	for (int64_t i = 0; i < n; i += P) {
		big_draw(b, piece, i, P, 1, 0, 1);
		big_compare(b, &cast, big_at(b, x, i), piece, P);
		k_sum_squares(b->s, few, piece, P);
		srcs[0] = srcs[1] = piece;
		k_sum_in_order(b->s, piece, srcs, 2, P);
		big_compare(b, &added, big_at(b, y, i), piece, P);
	}
	big_check_end(b, &cast);
	big_check_end(b, &added);
	k_copy_out(b->s, &sums[0], all, sizeof sums[0]);
	k_copy_out(b->s, &sums[1], few, sizeof sums[1]);
	k_stream_sync(b->s, INT64_MAX);
	printf("  sums of squares %.17g, %.17g\n", k_exact_value(&sums[0]),
		k_exact_value(&sums[1]));
	big_verdict(b, "sum_squares: the same",
		k_exact_value(&sums[0]) == k_exact_value(&sums[1]) && k_exact_value(&sums[0]) > 0);
}

static void adamw_step(
	struct big *b, k_real *master, void *params, void *grads, k_real *m, k_real *v, int64_t n)
{
	const struct k_range all = {0, n};
	const struct k_step_state state = {.lr = 0.1, .loss_scale = 1, .t = 1, .grad_mul = 1};
	struct k_range *ranges = harness_bytes(&b->h, &all, sizeof all);
	struct k_adamw args = {.beta1 = 0.9,
		.beta2 = 0.95,
		.eps = 1e-8,
		.weight_decay = 0.1,
		.master = master,
		.params = params,
		.grads = grads,
		.m = m,
		.v = v,
		.ranges = ranges,
		.n_ranges = 1,
		.decayed = ranges,
		.n_decayed = 1};

	k_zero(b->s, m, (size_t)n * sizeof *m);
	k_zero(b->s, v, (size_t)n * sizeof *v);
	k_adamw_step(b->s, &args, harness_bytes(&b->h, &state, sizeof state));
}

static void adamw(struct big *b)
{
	const int64_t n = big_rows(b, 1024) * 1024, P = n / BIG_PIECES;
	const bool apart = k_elem_bytes(b->h.ctx) == 2; /* masters differ from parameters */
	struct big_check params = big_check_begin("adamw_step, params", 0);
	struct big_check masters = big_check_begin("adamw_step, masters", 0);
	struct big_check moments = big_check_begin("adamw_step, second moments", 0);
	void *grads, *low, *few_low, *few_grads;
	k_real *real[3], *few[3];

	if (!big_begin(b, "adamw", (n + P) * (apart ? 2 : 1), 3 * (n + P)))
		return;
	for (int i = 0; i < 3; i++) {
		real[i] = big_room_real(b, n);
		few[i] = big_room_real(b, P);
	}
	grads = big_tensor(b, n, 2, 0, 1);
	few_grads = big_room(b, P);
	low = apart ? big_room(b, n) : real[0];
	few_low = apart ? big_room(b, P) : few[0];
	k_init_normal(b->s, real[0], n, BIG_SEED, 1, 0, 0, 1);
	adamw_step(b, real[0], low, grads, real[1], real[2], n);
	for (int64_t i = 0; i < n; i += P) {
		k_init_normal(b->s, few[0], P, BIG_SEED, 1, i, 0, 1);
		big_draw(b, few_grads, i, P, 2, 0, 1);
		adamw_step(b, few[0], few_low, few_grads, few[1], few[2], P);
		big_compare(b, &params, big_at(b, low, i), few_low, P);
		big_compare_real(b, &masters, real[0] + i, few[0], P);
		big_compare_real(b, &moments, real[2] + i, few[2], P);
	}
	big_check_end(b, &params);
	big_check_end(b, &masters);
	big_check_end(b, &moments);
}

int main(int argc, char **argv)
{
	static void (*const cases[])(struct big * b) = {cross_entropy, large_vocabulary,
		large_wide_layer, large_gelu, large_layernorm, large_dropout, large_embedding,
		attention, long_arrays, adamw};
	int dtype = argc > 1 ? harness_dtype(argv[1]) : -1;
	int way = argc > 2 ? harness_way(argv[2]) : K_ATTENTION_BEST;
	bool small = argc > 3 && strcmp(argv[3], "small") == 0;
	struct big b;

	/* values are read as fp32 or its upper half */
	if (dtype < 0 || dtype == K_FP16 || way < 0 || (argc > 3 && !small)) {
		fprintf(stderr, "usage: gpu_large fp32|tf32|bf16 [WAY [small]]\n");
		return 2;
	}
	if (big_init(&b, (enum k_dtype)dtype, (enum k_attention)way, small, allowed_bytes) < 0)
		return 1;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0] && !k_context_error(b.h.ctx); i++)
		cases[i](&b);
	if (k_context_error(b.h.ctx)) {
		printf("context: %s\n", k_context_error(b.h.ctx));
		b.failed++;
	}
	if (b.skipped > 0)
		printf("%d skipped\n", b.skipped);
	printf("%d passed, %d failed\n", b.passed, b.failed);
	big_finish(&b);
	return b.failed == 0 ? 0 : 1;
}
