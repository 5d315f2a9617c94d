#include <math.h>

#include "daemon/runs/pace.h"
#include "tests/unit/test.h"

#define MS INT64_C(1000000)

static void assert_about(double found, double expected)
{
	assert_true(fabs(found - expected) < 1e-9 * (1 + expected));
}

/* As long as no segment has been trained the steps are all that is known. */
static void test_first_segment(void **state)
{
	struct pace p;

	pace_begin(&p, 1000 * MS);
	pace_step(&p, 0, 1, 10.0 * MS, 1100 * MS);
	assert_about(pace_left_s(&p, 1, 5, 3), 0.010 * (4 + 15));
	/* one step is said to have taken an hour; the clock knows better */
	pace_step(&p, 0, 3, 3600e9, 1140 * MS);
	assert_about(pace_left_s(&p, 3, 5, 3), 0.020 * (2 + 15));
}

/* 32,000 segments of two steps of 1 ms that take 35 ms each, with all that is between them. */
static void test_short_segments(void **state)
{
	struct pace p;
	int64_t now = 5000 * MS;

	pace_begin(&p, now);
	for (int64_t i = 0; i < 1641; i++) {
		now += 35 * MS;
		pace_step(&p, i, 2, 1.0 * MS, now);
		pace_trained(&p, now);
	}
	pace_step(&p, 1641, 1, 1.0 * MS, now + MS);
	assert_about(pace_left_s(&p, 1, 2, 32000 - 1642), 0.001 + 30358 * 0.035);
	assert_about(pace_left_s(&p, 2, 2, 0), 0);
}

/* The next run begins from nothing. */
static void test_begin(void **state)
{
	struct pace p;

	pace_begin(&p, 0);
	pace_step(&p, 0, 1, 1e9, MS);
	pace_trained(&p, 1000 * MS);
	pace_begin(&p, 2000 * MS);
	pace_step(&p, 0, 1, 2.0 * MS, 2001 * MS);
	assert_about(pace_left_s(&p, 1, 2, 1), 0.002 * 3);
}

TEST_MAIN(cmocka_unit_test(test_first_segment), cmocka_unit_test(test_short_segments),
	cmocka_unit_test(test_begin))
