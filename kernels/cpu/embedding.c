#include "kernels/cpu/dropout.h"
#include "kernels/cpu/stream.h"

/* Forward is split by rows, backward by stripes of columns: each sum then has one order. */
enum { CHUNK_ROWS = 16, STRIPE = 64 };

struct embedding {
	const struct vec *vec;
	k_real *out; /* forward */
	const k_real *wte, *wpe;
	k_real *dwte, *dwpe; /* backward */
	const k_real *dout;
	const int32_t *tokens;
	int64_t B, T, C;
	struct k_dropout drop;
};

static void forward_chunk(void *arg, int64_t chunk, void *scratch)
{
	const struct embedding *a = arg;
	int64_t first = chunk * CHUNK_ROWS, end = first + CHUNK_ROWS, C = a->C;

	if (end > a->B * a->T)
		end = a->B * a->T;
	for (int64_t r = first; r < end; r++) {
		k_real *out = a->out + r * C;

		a->vec->add(out, a->wte + a->tokens[r] * C, a->wpe + r % a->T * C, C);
		dropout_apply(a->vec, out, out, C, &a->drop, r * C);
	}
}

static int run_forward(struct k_stream *s, const void *args)
{
	struct embedding a = *(const struct embedding *)args;

	dropout_resolve(&a.drop);
	pool_run(s->pool, (a.B * a.T + CHUNK_ROWS - 1) / CHUNK_ROWS, forward_chunk, &a);
	return 0;
}

void k_embedding_forward(struct k_stream *s, void *out, const int32_t *tokens, const void *wte,
	const void *wpe, int64_t B, int64_t T, int64_t C, const struct k_dropout *drop)
{
	struct embedding a = {.vec = s->ctx->vec,
		.out = out,
		.tokens = tokens,
		.wte = wte,
		.wpe = wpe,
		.B = B,
		.T = T,
		.C = C,
		.drop = dropout_copy(drop)};

	stream_submit(s, "k_embedding_forward", run_forward, &a, sizeof a);
}

static void backward_stripe(void *arg, int64_t chunk, void *scratch)
{
	const struct embedding *a = arg;
	int64_t C = a->C, c = chunk * STRIPE, width = C - c < STRIPE ? C - c : STRIPE;
	k_real masked[STRIPE];

	for (int64_t r = 0; r < a->B * a->T; r++) {
		k_real *dwte = a->dwte + a->tokens[r] * C + c, *dwpe = a->dwpe + r % a->T * C + c;
		const k_real *dout = a->dout + r * C + c;

		if (a->drop.p != 0) {
			dropout_apply(a->vec, masked, dout, width, &a->drop, r * C + c);
			dout = masked;
		}
		a->vec->add(dwte, dwte, dout, width);
		a->vec->add(dwpe, dwpe, dout, width);
	}
}

static int run_backward(struct k_stream *s, const void *args)
{
	struct embedding a = *(const struct embedding *)args;

	dropout_resolve(&a.drop);
	pool_run(s->pool, (a.C + STRIPE - 1) / STRIPE, backward_stripe, &a);
	return 0;
}

/* Backward takes rows unsorted. */
void k_token_order(struct k_stream *s, int32_t *order, const int32_t *tokens, int64_t R)
{
}

void k_embedding_backward(struct k_stream *s, void *dwte, void *dwpe, const void *dout,
	const int32_t *tokens, const int32_t *order, int64_t B, int64_t T, int64_t C,
	const struct k_dropout *drop)
{
	struct embedding a = {.vec = s->ctx->vec,
		.dwte = dwte,
		.dwpe = dwpe,
		.dout = dout,
		.tokens = tokens,
		.B = B,
		.T = T,
		.C = C,
		.drop = dropout_copy(drop)};

	stream_submit(s, "k_embedding_backward", run_backward, &a, sizeof a);
}
