#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/kernels/kernels_fixture.h"

/* Known answers published with Random123 (kat_vectors, philox4x32 10). */
static const struct {
	uint32_t counter[4], key[2], out[4];
} known[] = {
	{{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
	{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff},
		{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
	{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0},
		{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

static void philox_known_answers(void **state)
{
	for (int i = 0; i < 3; i++) {
		const uint32_t *c = known[i].counter, *k = known[i].key;
		struct vec_key key = {k[0] | (uint64_t)k[1] << 32, c[2] | (uint64_t)c[3] << 32};
		uint32_t words[VEC_PHILOX_WORDS], plain[4];

		fixture.ctx->vec->philox(words, key, c[0] | (uint64_t)c[1] << 32);
		assert_memory_equal(words, known[i].out, sizeof known[i].out);
		fixture_philox(plain, c, k);
		assert_memory_equal(plain, known[i].out, sizeof known[i].out);
	}
}

static void philox_counts_blocks(void **state)
{
	struct vec_key key = {12345678901234567u, 98765432109876543u};
	uint32_t words[VEC_PHILOX_WORDS];
	uint64_t first = 0xfffffffa; /* the low word of the counter wraps on the way */

	fixture.ctx->vec->philox(words, key, first);
	for (uint64_t i = 0; i < VEC_PHILOX_WORDS / 4; i++) {
		uint32_t counter[4] = {(uint32_t)(first + i), (uint32_t)((first + i) >> 32),
			(uint32_t)key.place, (uint32_t)(key.place >> 32)};
		uint32_t k[2] = {(uint32_t)key.seed, (uint32_t)(key.seed >> 32)}, want[4];

		fixture_philox(want, counter, k);
		assert_memory_equal(words + 4 * i, want, sizeof want);
	}
}

static double normal_reference(uint64_t seed, uint32_t stream, int64_t i)
{
	uint32_t counter[4] = {(uint32_t)(i / 4), (uint32_t)((i / 4) >> 32), stream, 0x696e6974};
	uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, w[4];
	double radius, angle;

	fixture_philox(w, counter, key);
	radius = sqrt(-2 * log(((w[i % 4 / 2 * 2] >> 9) + 0.5) / 8388608));
	angle = 2 * acos(-1) * ((w[i % 4 / 2 * 2 + 1] >> 8) / 16777216.0);
	return radius * (i % 2 ? sin(angle) : cos(angle));
}

static void init_is_normal(void **state)
{
	enum { N = 200003 };
	double mean = 0, squares = 0, fourth = 0, worst = 0;
	k_real *out = fixture_poison(N);

	k_init_normal(fixture.s, out, N, 0x0123456789abcdef, 42, 1000000007, 0.5, 2);
	for (int64_t i = 0; i < N; i++) {
		double z = ((double)out[i] - 0.5) / 2;

		worst = fmax(
			worst, fabs(z - normal_reference(0x0123456789abcdef, 42, 1000000007 + i)));
		mean += z / N;
		squares += z * z / N;
		fourth += z * z * z * z / N;
	}
	assert_true(worst < 2e-6);
	assert_true(fabs(mean) < 0.01);
	assert_true(fabs(squares - 1) < 0.02);
	assert_true(fabs(fourth - 3) < 0.1);
}

/* Ranks and threads ask for parts: the values are those of the whole. */
static void init_does_not_depend_on_the_cut(void **state)
{
	enum { N = 140000 };
	k_real *whole = fixture_poison(N), *parts = fixture_poison(N), *other = fixture_poison(N);
	int64_t at = 0;

	k_init_normal(fixture.s, whole, N, 7, 3, 0, 0, 0.02);
	for (int64_t n = 1; at < N; at += n, n = n * 2 + 1) {
		n = n < N - at ? n : N - at;
		k_init_normal(fixture.s, parts + at, n, 7, 3, at, 0, 0.02);
	}
	assert_memory_equal(whole, parts, N * sizeof *whole);
	k_init_normal(fixture.s, other, N, 7, 4, 0, 0, 0.02);
	assert_memory_not_equal(whole, other, N * sizeof *whole);
	k_init_normal(fixture.s, other, N, 8, 3, 0, 0, 0.02);
	assert_memory_not_equal(whole, other, N * sizeof *whole);
}

static void dropout_mask_is_as_drawn(void **state)
{
	enum { N = 50001 };
	struct k_dropout drop = {0.1, 0xabcdef0123456789u, 77};
	double *dout = fixture_random(N, 1), *want = fixture_host(N);
	k_real *in_place = fixture_device(dout, N), *dinp = fixture_poison(N);
	int kept = 0;

	for (int64_t i = 0; i < N; i++) {
		double mask = fixture_mask(&drop, i);

		want[i] = dout[i] * mask;
		kept += mask != 0;
	}
	k_dropout_backward(fixture.s, dinp, in_place, N, &drop);
	fixture_equal("dinp", fixture_copy(dinp, N), want, N, FIXTURE_FORWARD);
	k_dropout_backward(fixture.s, in_place, in_place, N, &drop);
	assert_memory_equal(in_place, dinp, N * sizeof *dinp);
	assert_true(abs(kept - N * 9 / 10) < 500);
	k_dropout_backward(fixture.s, dinp, fixture_device(dout, N), N, NULL);
	fixture_equal("p = 0", fixture_copy(dinp, N), dout, N, 0);
}

static void dropout_offset_may_lie_in_memory(void **state)
{
	enum { N = 5003 };
	uint64_t from = 1000;
	struct k_dropout whole = {0.5, 5, 1077}, parts = {0.5, 5, 77, &from};
	k_real *dout = fixture_device(fixture_random(N, 1), N);
	k_real *want = fixture_poison(N), *dinp = fixture_poison(N);

	k_dropout_backward(fixture.s, want, dout, N, &whole);
	k_dropout_backward(fixture.s, dinp, dout, N, &parts);
	assert_memory_equal(dinp, want, N * sizeof *want);
	from = 1001;
	k_dropout_backward(fixture.s, dinp, dout, N, &parts);
	assert_memory_not_equal(dinp, want, N * sizeof *want);
}

static void fill_and_cast(void **state)
{
	enum { N = 70001 };
	k_real *a = fixture_poison(N + 1), *b = fixture_poison(N + 1);

	k_fill(fixture.s, a, N, 0.1);
	k_cast(fixture.s, b, a, N);
	for (int i = 0; i < N; i++)
		assert_true(a[i] == (k_real)0.1 && b[i] == (k_real)0.1);
	assert_true(isnan(a[N]) && isnan(b[N]));
}

FIXTURE_MAIN(FIXTURE_TEST(philox_known_answers), FIXTURE_TEST(philox_counts_blocks),
	FIXTURE_TEST(init_is_normal), FIXTURE_TEST(init_does_not_depend_on_the_cut),
	FIXTURE_TEST(dropout_mask_is_as_drawn), FIXTURE_TEST(dropout_offset_may_lie_in_memory),
	FIXTURE_TEST(fill_and_cast))
