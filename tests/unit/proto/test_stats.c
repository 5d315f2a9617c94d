/* stats.c against the golden ranks and figures of cases F1, F3 and F5. */
#include "proto/stats/stats.h"
#include "tests/unit/test.h"

/* samples 1..n: the value at rank r is r */
static void fill(int64_t *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		v[i] = (int64_t)i + 1;
}

/* a fixed mixing of 1..n: i * 37 mod 101 visits each of 1..100 once */
static void fill_mixed(int64_t *v)
{
	for (size_t i = 1; i <= 100; i++)
		v[i - 1] = (int64_t)(i * 37 % 101);
}

static void test_p95_ranks(void **state)
{
	static const struct {
		size_t n;
		int64_t rank;
	} golden[] = {{1, 1}, {10, 10}, {20, 19}, {21, 20}, {40, 38}, {100, 95}};
	int64_t v[100], out;

	for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
		fill(v, golden[i].n);
		assert_int_equal(stats_percentile(v, golden[i].n, 95, &out), 0);
		assert_int_equal(out, golden[i].rank);
	}
}

static void test_every_rank_is_the_formula(void **state)
{
	int64_t v[250], out;

	for (size_t n = 1; n <= 250; n++) {
		fill(v, n);
		for (int p = 1; p <= 100; p++) {
			assert_int_equal(stats_percentile(v, n, p, &out), 0);
			assert_int_equal(out, ((size_t)p * n + 99) / 100);
		}
	}
}

static void test_order_of_input(void **state)
{
	int64_t sorted[100], mixed[100], out;
	struct stats_summary a, b;

	fill(sorted, 100);
	fill_mixed(mixed);
	assert_int_equal(stats_percentile(mixed, 100, 95, &out), 0);
	assert_int_equal(out, 95);
	assert_int_equal(mixed[0], 37); /* the caller's array is not sorted in place */
	assert_int_equal(stats_summarise(sorted, 100, &a), 0);
	assert_int_equal(stats_summarise(mixed, 100, &b), 0);
	assert_memory_equal(&a, &b, sizeof(a));
}

static void test_summary_is_ordered(void **state)
{
	int64_t v[60];
	struct stats_summary s;

	for (size_t n = 1; n <= 60; n++) {
		for (size_t i = 0; i < n; i++)
			v[i] = (int64_t)(i * i * 7919 % 97);
		assert_int_equal(stats_summarise(v, n, &s), 0);
		assert_int_equal(s.n, n);
		assert_true(s.min <= s.median && s.median <= s.p95 && s.p95 <= s.max);
		assert_true((double)s.min <= s.mean && s.mean <= (double)s.max);
	}
}

static void test_summary_values(void **state)
{
	const int64_t v[] = {40, 10, 30, 20};
	struct stats_summary s;

	assert_int_equal(stats_summarise(v, 4, &s), 0);
	assert_int_equal(s.total, 100);
	assert_true(s.mean > 24.999 && s.mean < 25.001);
	assert_int_equal(s.min, 10);
	assert_int_equal(
		s.median, 20); /* nearest rank: the 2nd of 4, never a mean of two samples */
	assert_int_equal(s.p95, 40);
	assert_int_equal(s.max, 40);
}

static void test_refusals_leave_output(void **state)
{
	const int64_t v[] = {1, 2};
	const int64_t huge[] = {INT64_MAX, 1};
	int64_t out = -7;
	struct stats_summary s = {.n = 99};

	assert_int_equal(stats_percentile(v, 0, 95, &out), -EINVAL);
	assert_int_equal(stats_percentile(v, 2, 0, &out), -EINVAL);
	assert_int_equal(stats_percentile(v, 2, 101, &out), -EINVAL);
	assert_int_equal(out, -7);
	assert_int_equal(stats_summarise(v, 0, &s), -EINVAL);
	assert_int_equal(stats_summarise(huge, 2, &s), -EOVERFLOW);
	assert_int_equal(s.n, 99);
}

static void test_tokens_per_s(void **state)
{
	/* F1: B 4, T 1024, accumulation 8, world 2, 0.5 s */
	const int64_t tokens = (int64_t)4 * 1024 * 8 * 2;
	/* F3: [5.0, 1.0, 0.5 x 8] s, first two dropped */
	const int64_t steps[] = {5000000000, 1000000000, 500000000, 500000000, 500000000, 500000000,
		500000000, 500000000, 500000000, 500000000};
	struct stats_summary s;

	assert_int_equal(tokens, 65536);
	assert_true(stats_tokens_per_s(tokens, 500000000) == 131072.0);
	assert_int_equal(stats_summarise(steps + 2, 8, &s), 0);
	assert_int_equal(s.total, 4000000000);
	assert_true(stats_tokens_per_s(8 * tokens, s.total) == 131072.0);
	assert_int_equal(stats_summarise(steps, 10, &s), 0);
	assert_true(stats_tokens_per_s(10 * tokens, s.total) == 65536.0);
	assert_true(stats_tokens_per_s(tokens, 0) == 0.0);
}

TEST_MAIN(cmocka_unit_test(test_p95_ranks), cmocka_unit_test(test_every_rank_is_the_formula),
	cmocka_unit_test(test_order_of_input), cmocka_unit_test(test_summary_is_ordered),
	cmocka_unit_test(test_summary_values), cmocka_unit_test(test_refusals_leave_output),
	cmocka_unit_test(test_tokens_per_s))
