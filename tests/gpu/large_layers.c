#include "tests/gpu/large_layers.h"

#include <stdio.h>
#include <string.h>

/* Also where its bias has a gradient: OC columns, R of C. */
static void linear(struct big *b, const char *name, int64_t R, int64_t C, int64_t OC)
{
	const int64_t P = R / BIG_PIECES, L = big_last_rows(b);
	struct big_check forward = big_check_begin("linear_forward", big_tolerance(b));
	struct big_check backward = big_check_begin("linear_backward, dinp", big_tolerance(b));
	void *inp, *weight, *bias, *out, *dinp, *piece, *dweight[2], *dbias[2];

	/* trials of products use other operands */
	if (!big_begin(b, name, 2 * R * OC + 3 * R * C + P * OC + 5 * OC * C, 0))
		return;
	inp = big_tensor(b, R * C, 1, 0, 1);
	weight = big_tensor(b, OC * C, 2, 0, 0.04);
	bias = big_tensor(b, OC, 3, 0, 1);
	out = big_room(b, R * OC);
	dinp = big_room(b, R * C);
	piece = big_room(b, P * OC);
	for (int i = 0; i < 2; i++) {
		dweight[i] = big_zeros(b, OC * C);
		dbias[i] = big_zeros(b, OC);
	}
	k_linear_forward(b->s, out, inp, weight, bias, R, C, OC);
	for (int64_t r = 0; r < R; r += P) {
		k_linear_forward(b->s, piece, big_at(b, inp, r * C), weight, bias, P, C, OC);
		big_compare(b, &forward, big_at(b, out, r * OC), piece, P * OC);
	}
	big_check_end(b, &forward);
	big_draw(b, out, 0, R * OC, 4, 0, 1);
	k_linear_backward(b->s, dinp, NULL, NULL, out, inp, weight, R, C, OC);
	for (int64_t r = 0; r < R; r += P) {
		k_linear_backward(
			b->s, piece, NULL, NULL, big_at(b, out, r * OC), inp, weight, P, C, OC);
		big_compare(b, &backward, big_at(b, dinp, r * C), piece, P * C);
	}
	big_check_end(b, &backward);
	big_draw_last(b, out, R * OC, L * OC, 4);
	k_linear_backward(b->s, dinp, dweight[0], dbias[0], out, inp, weight, R, C, OC);
	k_linear_backward(b->s, piece, dweight[1], dbias[1], big_at(b, out, (R - L) * OC),
		big_at(b, inp, (R - L) * C), weight, L, C, OC);
	big_compare_once(b, "linear_backward, dweight of the last rows", big_tolerance(b),
		dweight[0], dweight[1], OC * C);
	big_compare_once(b, "linear_backward, dbias of the last rows", big_tolerance(b), dbias[0],
		dbias[1], OC);
}

void large_vocabulary(struct big *b)
{
	const int64_t Vp = b->small ? 320 : 50304;

	linear(b, "vocabulary", big_rows(b, Vp), b->small ? 64 : 768, Vp);
}

void large_wide_layer(struct big *b)
{
	const int64_t C = b->small ? 64 : 768;

	linear(b, "linear, C to 4 C", big_rows(b, 4 * C), C, 4 * C);
}

/* Operands of a layer with GELU: R of C to W, then W to C. */
struct gelu {
	int64_t R, C, W, P;
	void *before, *layer, *weight, *out, *pre, *dinp, *dout, *piece[3];
};

static void gelu_pieces(struct big *b, struct gelu *g)
{
	const int64_t C = g->C, W = g->W, P = g->P;
	struct big_check forward = big_check_begin("linear_gelu_forward", big_tolerance(b));
	struct big_check backward = big_check_begin("linear_backward_gelu, dinp", big_tolerance(b));

	for (int64_t r = 0; r < g->R; r += P) {
		k_linear_gelu_forward(b->s, g->piece[0], g->piece[1], big_at(b, g->before, r * C),
			g->layer, NULL, P, C, W, K_GELU_TANH);
		big_compare(b, &forward, big_at(b, g->out, r * W), g->piece[0], P * W);
		k_linear_backward_gelu(b->s, g->piece[2], NULL, NULL, NULL,
			big_at(b, g->dout, r * C), g->piece[0], g->piece[1], g->weight, P, W, C,
			K_GELU_TANH);
		big_compare(b, &backward, big_at(b, g->dinp, r * W), g->piece[2], P * W);
	}
	big_check_end(b, &forward);
	big_check_end(b, &backward);
}

static void gelu_last(struct big *b, struct gelu *g)
{
	const int64_t R = g->R, C = g->C, W = g->W, L = big_last_rows(b);
	void *dsum[2] = {big_zeros(b, W), big_zeros(b, W)};

	big_draw_last(b, g->dout, R * C, L * C, 4);
	k_linear_backward_gelu(b->s, g->dinp, NULL, NULL, dsum[0], g->dout, g->out, g->pre,
		g->weight, R, W, C, K_GELU_TANH);
	/* the kind of pre depends on the size */
	k_linear_gelu_forward(b->s, g->piece[0], g->piece[1], big_at(b, g->before, (R - L) * C),
		g->layer, NULL, L, C, W, K_GELU_TANH);
	k_linear_backward_gelu(b->s, g->piece[2], NULL, NULL, dsum[1],
		big_at(b, g->dout, (R - L) * C), g->piece[0], g->piece[1], g->weight, L, W, C,
		K_GELU_TANH);
	big_compare_once(b, "linear_backward_gelu, dsum of the last rows", big_tolerance(b),
		dsum[0], dsum[1], W);
}

void large_gelu(struct big *b)
{
	struct gelu g = {.C = b->small ? 64 : 768};
	int64_t R, W;

	g.W = W = 4 * g.C;
	g.R = R = big_rows(b, W);
	g.P = R / BIG_PIECES;
	if (!big_begin(b, "gelu", 4 * R * W + 3 * R * g.C + 3 * g.P * W + 6 * W * g.C, 0))
		return;
	g.before = big_tensor(b, R * g.C, 1, 0, 1);
	g.layer = big_tensor(b, W * g.C, 2, 0, 0.04);
	g.weight = big_tensor(b, W * g.C, 3, 0, 0.04);
	g.dout = big_tensor(b, R * g.C, 4, 0, 1);
	g.out = big_room(b, R * W);
	g.pre = big_room(b, R * W);
	g.dinp = big_room(b, R * W);
	for (int i = 0; i < 3; i++)
		g.piece[i] = big_room(b, g.P * W);
	k_linear_gelu_forward(b->s, g.out, g.pre, g.before, g.layer, NULL, R, g.C, W, K_GELU_TANH);
	k_linear_gelu_again(b->s, g.dinp, g.pre, g.before, g.layer, NULL, R, g.C, W, K_GELU_TANH);
	big_compare_once(b, "linear_gelu_again", 0, g.dinp, g.out, R * W);
	k_linear_backward_gelu(b->s, g.dinp, NULL, NULL, NULL, g.dout, g.out, g.pre, g.weight, R, W,
		g.C, K_GELU_TANH);
	gelu_pieces(b, &g);
	gelu_last(b, &g);
}

/* Tensors of a norm's rows, R of C. */
struct norm {
	int64_t R, C, P;
	void *inp, *other, *sum, *out, *piece[2];
	void *weight, *bias;
	k_real *mean, *rstd, *few_mean, *few_rstd;
};

static void norm_forward(struct big *b, struct norm *n)
{
	const int64_t C = n->C, P = n->P;
	struct big_check out = big_check_begin("layernorm_forward", 0);
	struct big_check mean = big_check_begin("layernorm_forward, mean", 0);
	struct big_check rstd = big_check_begin("layernorm_forward, rstd", 0);
	struct big_check both = big_check_begin("residual_layernorm_forward, out", 0);
	struct big_check residual = big_check_begin("residual_layernorm_forward, residual", 0);

	k_residual_layernorm_forward(b->s, n->sum, n->out, n->mean, n->rstd, n->inp, n->other,
		n->weight, n->bias, n->R, C, NULL);
	for (int64_t r = 0; r < n->R; r += P) {
		k_residual_layernorm_forward(b->s, n->piece[0], n->piece[1], n->few_mean,
			n->few_rstd, big_at(b, n->inp, r * C), big_at(b, n->other, r * C),
			n->weight, n->bias, P, C, NULL);
		big_compare(b, &residual, big_at(b, n->sum, r * C), n->piece[0], P * C);
		big_compare(b, &both, big_at(b, n->out, r * C), n->piece[1], P * C);
	}
	k_layernorm_forward(b->s, n->out, n->mean, n->rstd, n->inp, n->weight, n->bias, n->R, C);
	for (int64_t r = 0; r < n->R; r += P) {
		k_layernorm_forward(b->s, n->piece[0], n->few_mean, n->few_rstd,
			big_at(b, n->inp, r * C), n->weight, n->bias, P, C);
		big_compare(b, &out, big_at(b, n->out, r * C), n->piece[0], P * C);
		big_compare_real(b, &mean, n->mean + r, n->few_mean, P);
		big_compare_real(b, &rstd, n->rstd + r, n->few_rstd, P);
	}
	big_check_end(b, &residual);
	big_check_end(b, &both);
	big_check_end(b, &out);
	big_check_end(b, &mean);
	big_check_end(b, &rstd);
}

/* other is the output's gradient; sum is added to the input's. */
static void norm_backward(struct big *b, struct norm *n)
{
	const int64_t R = n->R, C = n->C, P = n->P, L = big_last_rows(b);
	static const char *const names[] = {"layernorm_backward, dweight of the last rows",
		"layernorm_backward, dbias of the last rows",
		"layernorm_backward, dsum of the last rows"};
	struct big_check dinp = big_check_begin("layernorm_backward, dinp", 0);
	void *sums[2][3];

	for (int i = 0; i < 6; i++)
		sums[i / 3][i % 3] = big_zeros(b, C);
	k_layernorm_backward(b->s, n->out, sums[0][0], sums[0][1], sums[0][2], n->sum, n->other,
		n->inp, n->weight, n->mean, n->rstd, R, C);
	for (int64_t r = 0; r < R; r += P) {
		k_layernorm_backward(b->s, n->piece[0], sums[1][0], sums[1][1], sums[1][2],
			big_at(b, n->sum, r * C), big_at(b, n->other, r * C),
			big_at(b, n->inp, r * C), n->weight, n->mean + r, n->rstd + r, P, C);
		big_compare(b, &dinp, big_at(b, n->out, r * C), n->piece[0], P * C);
	}
	big_check_end(b, &dinp);
	big_draw_last(b, n->other, R * C, L * C, 2);
	for (int i = 0; i < 6; i++)
		k_zero(b->s, sums[i / 3][i % 3], (size_t)C * k_elem_bytes(b->h.ctx));
	k_layernorm_backward(b->s, n->out, sums[0][0], sums[0][1], sums[0][2], NULL, n->other,
		n->inp, n->weight, n->mean, n->rstd, R, C);
	k_layernorm_backward(b->s, n->piece[0], sums[1][0], sums[1][1], sums[1][2], NULL,
		big_at(b, n->other, (R - L) * C), big_at(b, n->inp, (R - L) * C), n->weight,
		n->mean + R - L, n->rstd + R - L, L, C);
	for (int i = 0; i < 3; i++)
		big_compare_once(b, names[i], big_tolerance(b), sums[0][i], sums[1][i], C);
}

void large_layernorm(struct big *b)
{
	struct norm n = {.C = b->small ? 64 : 768};

	n.R = big_rows(b, n.C);
	n.P = n.R / BIG_PIECES;
	if (!big_begin(b, "layernorm", (4 * n.R + 2 * n.P) * n.C, 3 * n.R))
		return;
	n.inp = big_tensor(b, n.R * n.C, 1, 0.5, 2);
	n.other = big_tensor(b, n.R * n.C, 2, 0, 1);
	n.sum = big_room(b, n.R * n.C);
	n.out = big_room(b, n.R * n.C);
	for (int i = 0; i < 2; i++)
		n.piece[i] = big_room(b, n.P * n.C);
	n.weight = big_tensor(b, n.C, 3, 1, 0.5);
	n.bias = big_tensor(b, n.C, 4, 0, 1);
	n.mean = big_room_real(b, n.R);
	n.rstd = big_room_real(b, n.R);
	n.few_mean = big_room_real(b, n.P);
	n.few_rstd = big_room_real(b, n.P);
	norm_forward(b, &n);
	norm_backward(b, &n);
}

/* Kept ones become 2; the host draws the masks near places where a count could overflow. */
static void dropout_windows(struct big *b, const void *x, int64_t n)
{
	const int64_t width = b->small ? n : 1 << 16;
	const int64_t from[] = {0, n / 4 / 64 * 64, ((int64_t)1 << 31) - width / 2, n - width};
	const size_t elem = k_elem_bytes(b->h.ctx);
	int64_t kept = 0, wrong = 0, seen = 0;

	for (int i = 0; i < 4; i++) {
		if (from[i] + width > n)
			continue;
		k_copy_out(b->s, b->host[0], (const char *)x + (size_t)from[i] * elem,
			(size_t)width * elem);
		k_stream_sync(b->s, INT64_MAX);
		for (int64_t j = 0; j < width; j++) {
			uint64_t at = (uint64_t)(from[i] + j);
			bool keep = big_philox(BIG_SEED, BIG_PLACE, at) >= 0x80000000;
			char want[4] = "";

			harness_encode(k_context_dtype(b->h.ctx), keep ? 2 : 0, want);
			wrong += memcmp(b->host[0] + (size_t)j * elem, want, elem) != 0;
			kept += keep;
		}
		seen += width;
	}
	printf("  %lld of %lld kept, %lld wrong\n", (long long)kept, (long long)seen,
		(long long)wrong);
	big_verdict(b, "dropout_backward: by the host's draws", wrong == 0 && kept > seen / 4);
}

void large_dropout(struct big *b)
{
	const int64_t T = b->small ? 8 : 1024, C = b->small ? 64 : 768, R = big_rows(b, C * T) * T;
	const struct k_dropout drop = {0.5, BIG_SEED, BIG_PLACE, NULL};
	k_real *mean, *rstd;
	void *ones, *zero, *none, *one, *made, *out;
	int32_t *tokens;

	if (!big_begin(b, "dropout", 4 * R * C, 2 * R))
		return;
	ones = big_tensor(b, R * C, 1, 1, 0);
	one = big_tensor(b, T * C, 1, 1, 0);
	zero = big_zeros(b, R * C);
	none = big_zeros(b, T * C);
	made = big_room(b, R * C);
	out = big_room(b, R * C);
	mean = big_room_real(b, R);
	rstd = big_room_real(b, R);
	tokens = harness_tokens(&b->h, R, 1);
	k_dropout_backward(b->s, made, ones, R * C, &drop);
	dropout_windows(b, made, R * C);
	k_residual_layernorm_forward(
		b->s, zero, out, mean, rstd, zero, ones, one, one, R, C, &drop);
	big_compare_once(b, "residual_layernorm_forward with dropout", 0, zero, made, R * C);
	k_embedding_forward(b->s, out, tokens, one, none, R / T, T, C, &drop);
	big_compare_once(b, "embedding_forward with dropout", 0, out, made, R * C);
}

void large_embedding(struct big *b)
{
	const int64_t T = b->small ? 8 : 1024, C = b->small ? 64 : 768, Vp = b->small ? 320 : 50304;
	const int64_t B = big_rows(b, T * C), P = B / BIG_PIECES, last = (B - 1) * T;
	struct big_check forward = big_check_begin("embedding_forward", 0);
	void *wte, *wpe, *out, *piece, *dwte[2], *dwpe[2];
	int32_t *tokens;

	if (!big_begin(b, "embedding", (B + P) * T * C + 3 * (Vp + T) * C, 4 * B * T))
		return;
	wte = big_tensor(b, Vp * C, 1, 0, 1);
	wpe = big_tensor(b, T * C, 2, 0, 1);
	out = big_room(b, B * T * C);
	piece = big_room(b, P * T * C);
	tokens = harness_tokens(&b->h, B * T, (int32_t)Vp);
	for (int i = 0; i < 2; i++) {
		dwte[i] = big_zeros(b, Vp * C);
		dwpe[i] = big_zeros(b, T * C);
	}
	k_embedding_forward(b->s, out, tokens, wte, wpe, B, T, C, NULL);
	for (int64_t r = 0; r < B; r += P) {
		k_embedding_forward(b->s, piece, tokens + r * T, wte, wpe, P, T, C, NULL);
		big_compare(b, &forward, big_at(b, out, r * T * C), piece, P * T * C);
	}
	big_check_end(b, &forward);
	big_draw_last(b, out, B * T * C, T * C, 3);
	k_embedding_backward(b->s, dwte[0], dwpe[0], out, tokens, NULL, B, T, C, NULL);
	k_embedding_backward(b->s, dwte[1], dwpe[1], big_at(b, out, last * C), tokens + last, NULL,
		1, T, C, NULL);
	big_compare_once(b, "embedding_backward, dwte of the last rows", big_tolerance(b), dwte[0],
		dwte[1], Vp * C);
	big_compare_once(b, "embedding_backward, dwpe of the last rows", big_tolerance(b), dwpe[0],
		dwpe[1], T * C);
}
