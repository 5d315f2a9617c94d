#include <math.h>

#include "kernels/cpu/stream.h"
#include "kernels/cpu/vec.h"

enum { CHUNK_BLOCKS = 512, LIMB_BITS = 32, LOWEST_BIT = 448, MANTISSA_BITS = 53 };
static const uint64_t limb_mask = 0xffffffff;

double k_exact_value(const struct k_exact_sum *sum)
{
	double value = 0;
	int64_t carry = 0;

	/* Carries first; then each addition, from the lowest limb up, rounds once. */
	for (int i = 0; i < K_EXACT_LIMBS; i++) {
		int64_t limb = sum->limb[i] + carry;

		carry = limb >> LIMB_BITS;
		value += ldexp((double)(limb & (int64_t)limb_mask), LIMB_BITS * i - LOWEST_BIT);
	}
	return value + ldexp((double)carry, LIMB_BITS * K_EXACT_LIMBS - LOWEST_BIT);
}

/* d >= 0 */
static void add(struct k_exact_sum *sum, double d)
{
	int exponent, limb, shift;
	uint64_t mantissa, low, high;

	if (d == 0)
		return;
	mantissa = (uint64_t)ldexp(frexp(d, &exponent), MANTISSA_BITS);
	exponent += LOWEST_BIT - MANTISSA_BITS;
	if (exponent < 0) { /* below the lowest limb: in the double build only */
		mantissa = exponent > -64 ? mantissa >> -exponent : 0;
		exponent = 0;
	}
	limb = exponent / LIMB_BITS;
	shift = exponent % LIMB_BITS;
	if (limb + 2 >= K_EXACT_LIMBS) {
		sum->nonfinite++;
		return;
	}
	low = (mantissa & limb_mask) << shift;
	high = (mantissa >> LIMB_BITS) << shift;
	sum->limb[limb] += (int64_t)(low & limb_mask);
	sum->limb[limb + 1] += (int64_t)((low >> LIMB_BITS) + (high & limb_mask));
	sum->limb[limb + 2] += (int64_t)(high >> LIMB_BITS);
}

static void add_block(struct k_exact_sum *sum, const struct vec *vec, const k_real *x, int64_t n)
{
	double d = vec->squares(x, n);
	k_real finite[K_SUM_BLOCK_ELEMS];

	if (!isfinite(d)) {
		for (int64_t i = 0; i < n; i++) {
			bool bad = !isfinite((double)x[i] * (double)x[i]);

			sum->nonfinite += bad;
			finite[i] = bad ? 0 : x[i];
		}
		d = vec->squares(finite, n);
	}
	if (isfinite(d))
		add(sum, d);
	else
		sum->nonfinite++;
}

struct squares {
	const struct vec *vec;
	struct k_exact_sum *sum;
	const k_real *x;
	int64_t n;
};

/* Integer additions: the order of the threads does not matter. */
static void squares_chunk(void *arg, int64_t chunk, void *scratch)
{
	const struct squares *a = arg;
	int64_t first = chunk * CHUNK_BLOCKS * K_SUM_BLOCK_ELEMS;
	int64_t end = first + CHUNK_BLOCKS * K_SUM_BLOCK_ELEMS;
	struct k_exact_sum part = {0};

	if (end > a->n)
		end = a->n;
	for (int64_t i = first; i < end; i += K_SUM_BLOCK_ELEMS)
		add_block(&part, a->vec, a->x + i,
			end - i < K_SUM_BLOCK_ELEMS ? end - i : K_SUM_BLOCK_ELEMS);
	for (int i = 0; i < K_EXACT_LIMBS; i++)
		__atomic_fetch_add(&a->sum->limb[i], part.limb[i], __ATOMIC_RELAXED);
	__atomic_fetch_add(&a->sum->nonfinite, part.nonfinite, __ATOMIC_RELAXED);
}

static int run_squares(struct k_stream *s, const void *args)
{
	struct squares a = *(const struct squares *)args;
	int64_t elems = CHUNK_BLOCKS * K_SUM_BLOCK_ELEMS;

	pool_run(s->pool, (a.n + elems - 1) / elems, squares_chunk, &a);
	return 0;
}

void k_sum_squares(struct k_stream *s, struct k_exact_sum *sum, const void *x, int64_t n)
{
	struct squares a = {s->ctx->vec, sum, x, n};

	stream_submit(s, "k_sum_squares", run_squares, &a, sizeof a);
}

struct prepare {
	struct k_step_state *state;
	const struct k_exact_sum *sum;
};

static int run_prepare(struct k_stream *s, const void *args)
{
	const struct prepare *a = args;
	struct k_step_state *state = a->state;
	double norm = sqrt(k_exact_value(a->sum)) / state->loss_scale, c = 1;

	if (a->sum->nonfinite != 0) {
		state->skip = 1;
		state->grad_norm = NAN;
		state->grad_mul = 0;
		return 0;
	}
	if (state->clip > 0 && (norm + 1e-6) / state->clip > 1)
		c = (norm + 1e-6) / state->clip;
	state->skip = 0;
	state->grad_norm = norm;
	state->grad_mul = 1 / (c * state->loss_scale);
	return 0;
}

void k_step_prepare(struct k_stream *s, struct k_step_state *state, const struct k_exact_sum *sum)
{
	struct prepare a = {state, sum};

	stream_submit(s, "k_step_prepare", run_prepare, &a, sizeof a);
}
