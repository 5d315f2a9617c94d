#include <math.h>

#include "engine/train/schedule.h"
#include "tests/unit/test.h"

static struct spec_config config(enum spec_schedule schedule)
{
	return (struct spec_config){.schedule = schedule,
		.lr = 1.0,
		.warmup_min_lr = 0.0,
		.warmup_max_lr = 1.0,
		.warmup_num_steps = 10,
		.total_num_steps = 20,
		.warmup_type = SPEC_WARMUP_LOG,
		.cos_min_ratio = 1e-4};
}

static void assert_lr(
	const struct spec_config *c, int64_t applied, double expected, double tolerance)
{
	double found = schedule_lr(c, applied);

	if (!(fabs(found - expected) <= tolerance))
		fail_msg("step %lld: %.9g, %.9g expected", (long long)applied, found, expected);
}

static void test_constant(void **state)
{
	struct spec_config c = config(SPEC_CONSTANT);

	c.lr = 3e-4;
	assert_lr(&c, 0, 3e-4, 0.0);
	assert_lr(&c, 1000000, 3e-4, 0.0);
}

static void test_warmup_log(void **state)
{
	static const double golden[] = {0, 0, .301, .4771, .6021, .699};
	struct spec_config c = config(SPEC_WARMUP_LR);

	for (int i = 0; i < 6; i++)
		assert_lr(&c, i, golden[i], 5e-5);
	assert_true(schedule_lr(&c, 9) < 1.0);
	assert_lr(&c, 10, 1.0, 1e-15);
	assert_lr(&c, 11, 1.0, 0.0);
	assert_lr(&c, 100000, 1.0, 0.0);
	c.warmup_min_lr = 0.25;
	assert_lr(&c, 0, 0.25, 0.0);
	assert_lr(&c, 1, 0.25, 0.0);
	assert_lr(&c, 2, 0.25 + 0.75 * 0.30103, 1e-5);
}

static void test_warmup_linear(void **state)
{
	struct spec_config c = config(SPEC_WARMUP_LR);

	c.warmup_type = SPEC_WARMUP_LINEAR;
	assert_lr(&c, 0, 0.0, 0.0);
	for (int i = 1; i <= 11; i++)
		assert_lr(&c, i, (i - 1) / 10.0, 1e-15);
	assert_true(schedule_lr(&c, 10) < 1.0);
	assert_lr(&c, 12, 1.0, 0.0);
}

static void test_short_warmup_is_two_steps(void **state)
{
	struct spec_config c = config(SPEC_WARMUP_LR);

	for (int64_t w = 0; w <= 2; w++) {
		c.warmup_num_steps = w;
		assert_lr(&c, 0, 0.0, 0.0);
		assert_lr(&c, 1, 0.0, 0.0);
		assert_lr(&c, 2, 1.0, 1e-15); /* ln 2 / ln 2 */
		assert_lr(&c, 3, 1.0, 0.0);
	}
}

static void test_decay(void **state)
{
	struct spec_config c = config(SPEC_WARMUP_DECAY_LR);

	assert_lr(&c, 2, .30103, 1e-5);
	for (int i = 11; i <= 21; i++)
		assert_lr(&c, i, (21 - i) / 10.0, 1e-12);
	assert_lr(&c, 22, 0.0, 0.0);
	assert_lr(&c, 1000, 0.0, 0.0);
	c.total_num_steps = 5; /* shorter than the warm-up */
	assert_lr(&c, 11, 0.0, 0.0);
}

static void test_cosine(void **state)
{
	static const double golden[] = {1.0, .9755, .9045, .7939};
	struct spec_config c = config(SPEC_WARMUP_COSINE_LR);

	assert_lr(&c, 0, 0.0, 0.0);
	assert_lr(&c, 1, 0.0, 0.0);
	for (int i = 0; i < 4; i++)
		assert_lr(&c, 10 + i, golden[i], 1e-4);
	assert_lr(&c, 20, 1e-4, 1e-12);
	assert_lr(&c, 21, 1e-4, 1e-12);
	assert_lr(&c, 5000, 1e-4, 1e-12);
	c.warmup_min_ratio = 0.1;
	c.lr = 2.0;
	assert_lr(&c, 0, 0.0, 0.0); /* DeepSpeed's before the first step of the schedule */
	assert_lr(&c, 1, 0.2, 1e-15);
	assert_lr(&c, 10, 2.0, 1e-15);
}

/*
 * The rates that a Python program computes from the formulas of DeepSpeed 0.19's lr_schedules.py
 * and of Transformers' get_linear_schedule_with_warmup and get_cosine_schedule_with_warmup, with 12
 * digits: warm-up 7 of 20 steps, from 1e-5 (or 0.1 of the rate) to 3e-4.
 */
static void test_published_formulas(void **state)
{
	enum { POINTS = 13 };
	static const int applied[POINTS] = {0, 1, 2, 3, 6, 7, 8, 12, 19, 20, 21, 22, 40};
	static const struct {
		enum spec_schedule schedule;
		enum spec_warmup warmup;
		double end_ratio, rate[POINTS];
	} rows[] = {
		{SPEC_WARMUP_LR, SPEC_WARMUP_LOG, 0,
			{1e-05, 1e-05, 0.000113300084261, 0.000173726759876, 0.000277026844137,
				3e-4, 3e-4, 3e-4, 3e-4, 3e-4, 3e-4, 3e-4, 3e-4}},
		{SPEC_WARMUP_LR, SPEC_WARMUP_LINEAR, 0,
			{1e-05, 1e-05, 5.14285714286e-05, 9.28571428571e-05, 0.000217142857143,
				0.000258571428571, 3e-4, 3e-4, 3e-4, 3e-4, 3e-4, 3e-4, 3e-4}},
		{SPEC_WARMUP_DECAY_LR, SPEC_WARMUP_LOG, 0,
			{1e-05, 1e-05, 0.000113300084261, 0.000173726759876, 0.000277026844137,
				3e-4, 3e-4, 0.000210769230769, 5.46153846154e-05, 3.23076923077e-05,
				1e-05, 1e-05, 1e-05}},
		{SPEC_WARMUP_DECAY_LR, SPEC_WARMUP_LINEAR, 0,
			{1e-05, 1e-05, 5.14285714286e-05, 9.28571428571e-05, 0.000217142857143,
				0.000258571428571, 3e-4, 0.000210769230769, 5.46153846154e-05,
				3.23076923077e-05, 1e-05, 1e-05, 1e-05}},
		{SPEC_WARMUP_COSINE_LR, SPEC_WARMUP_LOG, 0.05,
			{0, 3e-05, 0.000126175940519, 0.000182435259194, 0.000278611199714, 3e-4,
				0.000295859208983, 0.000208031196404, 1.91407910168e-05, 1.5e-05,
				1.5e-05, 1.5e-05, 1.5e-05}},
		{SPEC_WARMUP_COSINE_LR, SPEC_WARMUP_LINEAR, 0.05,
			{0, 3e-05, 6.85714285714e-05, 0.000107142857143, 0.000222857142857,
				0.000261428571429, 0.000295859208983, 0.000208031196404,
				1.91407910168e-05, 1.5e-05, 1.5e-05, 1.5e-05, 1.5e-05}},
		{SPEC_LINEAR, SPEC_WARMUP_LOG, 0,
			{0, 4.28571428571e-05, 8.57142857143e-05, 0.000128571428571,
				0.000257142857143, 3e-4, 0.000276923076923, 0.000184615384615,
				2.30769230769e-05, 0, 0, 0, 0}},
		{SPEC_COSINE, SPEC_WARMUP_LOG, 0,
			{0, 4.28571428571e-05, 8.57142857143e-05, 0.000128571428571,
				0.000257142857143, 3e-4, 0.000295641272614, 0.000203190733056,
				4.35872738609e-06, 0, 0, 0, 0}},
		{SPEC_COSINE, SPEC_WARMUP_LOG, 0.1,
			{0, 4.28571428571e-05, 8.57142857143e-05, 0.000128571428571,
				0.000257142857143, 3e-4, 0.000296077145353, 0.000212871659751,
				3.39228546475e-05, 3e-05, 3e-05, 3e-05, 3e-05}},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct spec_config c = config(rows[i].schedule);

		c.lr = c.warmup_max_lr = 3e-4;
		c.warmup_min_lr = 1e-5;
		c.warmup_min_ratio = 0.1;
		c.warmup_num_steps = 7;
		c.warmup_type = rows[i].warmup;
		c.cos_min_ratio = rows[i].end_ratio;
		for (size_t k = 0; k < POINTS; k++)
			assert_lr(&c, applied[k], rows[i].rate[k], 1e-15);
	}
}

static void test_linear_and_cosine_without_warmup(void **state)
{
	struct spec_config c = config(SPEC_LINEAR);

	c.warmup_num_steps = 0;
	c.cos_min_ratio = 0;
	assert_lr(&c, 0, 1.0, 0.0);
	assert_lr(&c, 5, 0.75, 1e-15);
	c.schedule = SPEC_COSINE;
	assert_lr(&c, 0, 1.0, 0.0);
	assert_lr(&c, 10, 0.5, 1e-15);
	c.warmup_num_steps = c.total_num_steps; /* nothing is left after the warm-up */
	assert_lr(&c, 19, 0.95, 1e-15);
	assert_lr(&c, 21, 0.0, 1e-15);
	c.schedule = SPEC_LINEAR;
	assert_lr(&c, 20, 0.0, 0.0);
}

/* a skipped step does not advance the rate: the schedule is a function of applied steps alone */
static void test_skipped_steps(void **state)
{
	struct spec_config c = config(SPEC_WARMUP_LR);
	int64_t applied = 0, attempt;

	for (attempt = 0; attempt < 10; attempt++) {
		double lr = schedule_lr(&c, applied);

		if (attempt < 3)
			assert_true(lr == schedule_lr(&c, 0));
		else
			assert_true(lr == schedule_lr(&c, attempt - 3));
		applied += attempt >= 3;
	}
	assert_int_equal(applied, 7);
}

TEST_MAIN(cmocka_unit_test(test_constant), cmocka_unit_test(test_warmup_log),
	cmocka_unit_test(test_warmup_linear), cmocka_unit_test(test_short_warmup_is_two_steps),
	cmocka_unit_test(test_decay), cmocka_unit_test(test_cosine),
	cmocka_unit_test(test_published_formulas),
	cmocka_unit_test(test_linear_and_cosine_without_warmup),
	cmocka_unit_test(test_skipped_steps))
