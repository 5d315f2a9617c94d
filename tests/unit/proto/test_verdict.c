/* estimate.c and verdict.c: golden experiments, and distributions counted by brute force. */
#include <math.h>

#include "proto/stats/verdict.h"
#include "tests/unit/test.h"

static const struct verdict_rules fixed = {.alpha = VERDICT_ALPHA, .margin = VERDICT_MARGIN};

struct golden {
	double d[8];
	double theta, lo, hi, percent, percent_lo, percent_hi;
	int64_t w;
	double p;
	enum verdict verdict;
	enum verdict_reason reason;
	size_t needed;
};

static const struct golden goldens[] = {
	{{.0431, .0447, .0419, .0458, .0440, .0425, .0462, .0436}, .043950, .042500, .045450,
		4.493011, 4.341606, 4.649868, 0, .007812, VERDICT_FASTER, VERDICT_OUTSIDE_ZERO, 0},
	{{.0012, -.0008, .0021, -.0015, .0004, .0017, -.0023, .0009}, .000250, -.001500, .001650,
		.025003, -.149888, .165136, 15, .742188, VERDICT_SAME, VERDICT_WITHIN_MARGIN, 0},
	{{-.0102, -.0117, -.0095, -.4155, -.0131, -.0109, -.0124, -.0088}, -.011300, -.213600,
		-.009500, -1.123639, -19.232861, -.945502, 0, .007812, VERDICT_SLOWER,
		VERDICT_OUTSIDE_ZERO, 0},
	{{.0205, .0187, .0212, -.4155, .0196, .0178, .0221, .0199}, .019600, -.197950, .021200,
		1.979334, -17.958913, 2.142632, 8, .195312, VERDICT_AMBIGUOUS, VERDICT_UNSETTLED,
		12},
	{{.01, .01, -.01, .01, .01, .01, .01, .01}, .010000, 0, .010000, 1.005017, 0, 1.005017, 8,
		.195312, VERDICT_AMBIGUOUS, VERDICT_UNSETTLED, 12},
	{{.02, .02, .02, .02, .02, .02, .02, .02}, .020000, .02, .02, 2.020134, 2.020134, 2.020134,
		0, .007812, VERDICT_AMBIGUOUS, VERDICT_NO_VARIANCE, 0},
	{{.031, -.012, .027, .008, -.019, .035, .014, -.004}, .010250, -.011500, .031000, 1.030271,
		-1.143413, 3.148551, 9, .25, VERDICT_AMBIGUOUS, VERDICT_UNSETTLED, 30},
};

static void logs(const double *d, size_t n, int64_t *q)
{
	for (size_t i = 0; i < n; i++)
		q[i] = llround(1e9 * d[i]);
}

static struct verdict_result decide(const double *d, size_t n)
{
	int64_t q[64];
	struct verdict_input in = {.q = q, .n = n};
	struct verdict_result r;

	logs(d, n, q);
	verdict_decide(&fixed, &in, 1, &r);
	return r;
}

static void test_goldens(void **state)
{
	for (size_t i = 0; i < sizeof(goldens) / sizeof(goldens[0]); i++) {
		const struct golden *g = &goldens[i];
		const struct verdict_result r = decide(g->d, 8);
		const struct estimate *e = &r.estimate;

		assert_true(fabs(e->theta - g->theta) < 1e-9);
		assert_true(e->has_interval);
		assert_true(fabs(e->lo - g->lo) < 1e-9 && fabs(e->hi - g->hi) < 1e-9);
		assert_true(fabs(estimate_throughput_percent(e->theta) - g->percent) < 1e-6);
		assert_true(fabs(estimate_throughput_percent(e->lo) - g->percent_lo) < 1e-6);
		assert_true(fabs(estimate_throughput_percent(e->hi) - g->percent_hi) < 1e-6);
		assert_int_equal(e->w, g->w);
		assert_true(fabs(e->p - g->p) < 1e-6);
		assert_int_equal(r.verdict, g->verdict);
		assert_int_equal(r.reason, g->reason);
		assert_int_equal(r.blocks_needed, g->needed);
	}
	assert_true(fabs(estimate_time_percent(.043950) + 4.299819) < 1e-6);
	assert_true(fabs(estimate_time_percent(-.011300) - 1.136409) < 1e-6);
}

static void test_ranks(void **state)
{
	static const struct {
		size_t n;
		int64_t fixed, stopping, looks;
	} ranks[] = {{6, 0, -1, -1}, {7, 2, 0, -1}, {8, 3, 2, 0}, {9, 5, 4, 2}, {10, 8, 6, 3},
		{12, 13, 11, 8}, {16, 29, 26, 20}, {24, 81, 74, 63}, {40, 264, 249, 225}};

	for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
		assert_int_equal(estimate_rank(ranks[i].n, .05), ranks[i].fixed);
		assert_int_equal(estimate_rank(ranks[i].n, .03), ranks[i].stopping);
		assert_int_equal(estimate_rank(ranks[i].n, .0125), ranks[i].looks);
	}
}

/* p of W by all 2^n signs of ranks, for values without ties: W is the smaller sum of ranks. */
static void test_signs_by_brute_force(void **state)
{
	for (size_t n = 1; n <= 10; n++) {
		int64_t q[10];
		struct estimate e;
		size_t extreme = 0;

		for (size_t i = 0; i < n; i++) /* sums of two differ from 0 and from each other */
			q[i] = (int64_t)(1 << i) * (i % 3 == 0 ? -1 : 1);
		assert_int_equal(estimate_paired(q, n, .05, &e), 0);
		for (size_t signs = 0; signs < (size_t)1 << n; signs++) {
			int64_t sum = 0, all = (int64_t)(n * (n + 1) / 2);

			for (size_t i = 0; i < n; i++)
				sum += signs >> i & 1 ? (int64_t)i + 1 : 0;
			extreme += (sum < all - sum ? sum : all - sum) <= e.w;
		}
		assert_true(fabs(e.p - fmin(1.0, (double)extreme / (double)(1 << n))) < 1e-12);
	}
}

/* The same over all splits of 4 + 5 values. */
static void test_splits_by_brute_force(void **state)
{
	const int64_t a[] = {3, 11, 12, 13}, b[] = {1, 2, 4, 5, 10};
	struct estimate e;
	size_t extreme = 0, splits = 0;

	assert_int_equal(estimate_unpaired(a, 4, b, 5, .05, &e), 0);
	for (unsigned mask = 0; mask < 1 << 9; mask++) {
		int64_t u = 0;

		if (__builtin_popcount(mask) != 4)
			continue;
		splits++;
		for (int i = 0; i < 9; i++)
			for (int j = 0; j < i; j++)
				u += (mask >> i & 1) && !(mask >> j & 1);
		extreme += (u < 20 - u ? u : 20 - u) <= e.w;
	}
	assert_int_equal(splits, 126);
	assert_true(fabs(e.p - (double)extreme / 126.0) < 1e-12);
}

static void test_unpaired_rank_of_five(void **state)
{
	const int64_t a[] = {100, 200, 300, 400, 500}, b[] = {1, 2, 3, 4, 5};
	struct verdict_result r;

	assert_int_equal(verdict_unpaired(&fixed, a, 5, b, 5, &r), 0);
	/* k is 2: the third smallest and the third largest of the 25 differences */
	assert_true(fabs(r.estimate.lo - 97e-9) < 1e-15 && fabs(r.estimate.hi - 497e-9) < 1e-15);
	assert_int_equal(r.verdict, VERDICT_SAME); /* a millionth is within the margin */
	assert_int_equal(verdict_unpaired(&fixed, a, 4, b, 5, &r), 0);
	assert_int_equal(r.reason, VERDICT_TOO_FEW);
	assert_int_equal(verdict_unpaired(&fixed, a, 0, b, 5, &r), -EINVAL);
}

static size_t orders_at_least; /* of the permutations below: with |S| or more */

static void permute(int64_t *v, size_t n, size_t from, int64_t s)
{
	if (from == n) {
		int64_t own = 0;

		for (size_t i = 0; i < n; i++)
			for (size_t j = i + 1; j < n; j++)
				own += v[j] > v[i] ? 1 : -1;
		orders_at_least += llabs(own) >= llabs(s);
		return;
	}
	for (size_t i = from; i < n; i++) {
		int64_t t = v[from];

		v[from] = v[i], v[i] = t;
		permute(v, n, from + 1, s);
		t = v[from], v[from] = v[i], v[i] = t;
	}
}

static void test_trend_by_brute_force(void **state)
{
	static const int64_t samples[][6] = {
		{1, 2, 3, 4, 5, 6}, {2, 1, 3, 5, 4, 6}, {6, 1, 5, 2, 4, 3}, {6, 5, 4, 3, 1, 2}};

	for (size_t i = 0; i < 4; i++) {
		int64_t v[6] = {1, 2, 3, 4, 5, 6};
		struct trend t;

		assert_int_equal(estimate_trend(samples[i], 6, &t), 0);
		orders_at_least = 0;
		permute(v, 6, 0, t.s);
		assert_true(fabs(t.p - (double)orders_at_least / 720.0) < 1e-12);
	}
}

static void test_trend_and_its_size(void **state)
{
	double d[12];
	struct verdict_result r;

	for (size_t i = 0; i < 12; i++)
		d[i] = .002 * (double)i + (i % 2 ? .0001 : 0);
	r = decide(d, 12);
	assert_int_equal(r.reason, VERDICT_TREND);
	assert_true(fabs(r.trend.slope * 1e-9 - .002) < 1e-4);
	for (size_t i = 0; i < 12; i++) /* significant, but below the margin in all */
		d[i] *= .1;
	r = decide(d, 12);
	assert_true(r.trend.p < .01);
	assert_int_equal(r.verdict, VERDICT_SAME);
}

static void test_few_blocks(void **state)
{
	struct verdict_result r = decide(goldens[0].d, 7);

	assert_int_equal(r.reason, VERDICT_TOO_FEW);
	assert_true(r.estimate.has_interval);
	r = decide(goldens[0].d, 5);
	assert_false(r.estimate.has_interval);
	assert_true(fabs(r.estimate.theta - .0439) < 1e-3);
	r = decide(goldens[0].d, 0);
	assert_int_equal(r.reason, VERDICT_TOO_FEW);
}

static void test_order_of_reasons(void **state)
{
	int64_t q[8], control[8], zero[8] = {0};
	struct verdict_input in = {.q = q, .n = 8};
	struct verdict_result r;

	logs(goldens[0].d, 8, q);
	logs(goldens[0].d, 8, control);
	in.control_q = control;
	verdict_decide(&fixed, &in, 1, &r);
	assert_int_equal(r.reason, VERDICT_CONTROL);
	in.unequal_work = true;
	verdict_decide(&fixed, &in, 1, &r);
	assert_int_equal(r.reason, VERDICT_UNEQUAL_WORK);
	in = (struct verdict_input){.q = zero, .n = 8, .control_q = zero};
	verdict_decide(&fixed, &in, 1, &r);
	assert_int_equal(r.verdict, VERDICT_SAME);
	assert_int_equal(r.reason, VERDICT_IDENTICAL);
	for (size_t i = 0; i < 8; i++) /* a control that is significant and small is no reason */
		control[i] = 1000000 + (int64_t)i;
	in = (struct verdict_input){.q = q, .n = 8, .control_q = control};
	verdict_decide(&fixed, &in, 1, &r);
	assert_int_equal(r.verdict, VERDICT_FASTER);
}

static void test_stalls(void **state)
{
	int64_t q[8], times[100];
	struct verdict_input in = {.q = q, .n = 8};
	struct verdict_result r;

	logs(goldens[0].d, 8, q); /* FASTER */
	in.stalled_b = 6;
	verdict_decide(&fixed, &in, 1, &r);
	assert_int_equal(r.reason, VERDICT_STALLS);
	in.stalled_b = 0, in.stalled_a = 6; /* the slower arm stalls: the claim holds */
	verdict_decide(&fixed, &in, 1, &r);
	assert_int_equal(r.verdict, VERDICT_FASTER);
	logs(goldens[1].d, 8, q); /* SAME */
	verdict_decide(&fixed, &in, 1, &r);
	assert_int_equal(r.reason, VERDICT_STALLS);
	in.stalled_a = 4; /* p .125 */
	verdict_decide(&fixed, &in, 1, &r);
	assert_int_equal(r.verdict, VERDICT_SAME);

	for (size_t i = 0; i < 100; i++)
		times[i] = 1000;
	assert_false(verdict_stalled(times, 100));
	times[50] = 2500; /* 1000 beyond 1.5 medians, 0.985 % of the sum */
	assert_false(verdict_stalled(times, 100));
	times[50] = 2600;
	assert_true(verdict_stalled(times, 100));
	assert_true(fabs(estimate_coin_p(5, 0) - .0625) < 1e-12);
	assert_true(fabs(estimate_coin_p(0, 0) - 1.0) < 1e-12);
	assert_true(fabs(estimate_coin_p(3, 3) - 1.0) < 1e-12);
}

static void test_holm(void **state)
{
	int64_t strong[8], weak[8], none[8];
	struct verdict_input in[3] = {
		{.q = strong, .n = 8}, {.q = weak, .n = 8}, {.q = none, .n = 8}};
	struct verdict_result r[3];
	double d[8];

	logs(goldens[0].d, 8, strong);
	for (size_t i = 0; i < 8; i++)
		d[i] = goldens[0].d[i] * (i == 0 ? -.5 : 1); /* W is small, not 0 */
	logs(d, 8, weak);
	logs(goldens[6].d, 8, none);
	verdict_decide(&fixed, in, 3, r);
	assert_true(fabs(r[0].p_holm - 3 * r[0].estimate.p) < 1e-12);
	assert_true(fabs(r[1].p_holm - 2 * r[1].estimate.p) < 1e-12);
	assert_true(fabs(r[2].p_holm - r[2].estimate.p) < 1e-12);
	assert_int_equal(verdict_blocks_least(1, .05), 6);
	assert_int_equal(verdict_blocks_least(7, .05), 9); /* log2(280) is 8.13 */
	assert_int_equal(verdict_blocks_least(15, .05), 10);
	for (size_t m = 1; m <= 15; m++) { /* exactly: the smallest p times m is significant */
		const size_t n = verdict_blocks_least(m, .05);

		assert_true((double)m * ldexp(2.0, -(int)n) <= .05);
		assert_true(n == 1 || (double)m * ldexp(2.0, 1 - (int)n) > .05);
	}
}

static void test_many_blocks(void **state)
{
	int64_t *q = calloc(ESTIMATE_PAIRS_MAX + 1, sizeof(*q));
	struct estimate e;

	for (size_t i = 0; i < ESTIMATE_PAIRS_MAX; i++)
		q[i] = 20000000 + (int64_t)(i * 7919 % 1000) * 1000;
	assert_int_equal(estimate_paired(q, ESTIMATE_PAIRS_MAX, .05, &e), 0);
	assert_true(e.has_interval && e.lo > .0204 && e.hi < .0206 && e.p < 1e-100);
	assert_int_equal(estimate_paired(q, ESTIMATE_PAIRS_MAX + 1, .05, &e), -EINVAL);
	free(q);
}

TEST_MAIN(cmocka_unit_test(test_goldens), cmocka_unit_test(test_ranks),
	cmocka_unit_test(test_signs_by_brute_force), cmocka_unit_test(test_splits_by_brute_force),
	cmocka_unit_test(test_unpaired_rank_of_five), cmocka_unit_test(test_trend_by_brute_force),
	cmocka_unit_test(test_trend_and_its_size), cmocka_unit_test(test_few_blocks),
	cmocka_unit_test(test_order_of_reasons), cmocka_unit_test(test_stalls),
	cmocka_unit_test(test_holm), cmocka_unit_test(test_many_blocks))
