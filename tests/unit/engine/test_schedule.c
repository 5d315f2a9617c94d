#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/train/schedule.h"

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

	(void)state;
	c.lr = 3e-4;
	assert_lr(&c, 0, 3e-4, 0.0);
	assert_lr(&c, 1000000, 3e-4, 0.0);
}

static void test_warmup_log(void **state)
{
	static const double golden[] = {0, 0, .301, .4771, .6021, .699};
	struct spec_config c = config(SPEC_WARMUP_LR);
	int i;

	(void)state;
	for (i = 0; i < 6; i++)
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
	int i;

	(void)state;
	c.warmup_type = SPEC_WARMUP_LINEAR;
	assert_lr(&c, 0, 0.0, 0.0);
	for (i = 1; i <= 11; i++)
		assert_lr(&c, i, (i - 1) / 10.0, 1e-15);
	assert_true(schedule_lr(&c, 10) < 1.0);
	assert_lr(&c, 12, 1.0, 0.0);
}

static void test_short_warmup_is_two_steps(void **state)
{
	struct spec_config c = config(SPEC_WARMUP_LR);
	int64_t w;

	(void)state;
	for (w = 0; w <= 2; w++) {
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
	int i;

	(void)state;
	assert_lr(&c, 2, .30103, 1e-5);
	for (i = 11; i <= 21; i++)
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
	int i;

	(void)state;
	assert_lr(&c, 0, 0.0, 0.0);
	assert_lr(&c, 1, 0.0, 0.0);
	for (i = 0; i < 4; i++)
		assert_lr(&c, 10 + i, golden[i], 1e-4);
	assert_lr(&c, 20, 1e-4, 1e-12);
	assert_lr(&c, 21, 1e-4, 1e-12);
	assert_lr(&c, 5000, 1e-4, 1e-12);
	c.warmup_min_ratio = 0.1;
	c.lr = 2.0;
	assert_lr(&c, 0, 0.2, 1e-15);
	assert_lr(&c, 1, 0.2, 1e-15);
	assert_lr(&c, 10, 2.0, 1e-15);
}

/* a skipped step does not advance the rate: the schedule is a function of applied steps alone */
static void test_skipped_steps(void **state)
{
	struct spec_config c = config(SPEC_WARMUP_LR);
	int64_t applied = 0, attempt;

	(void)state;
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_constant),
		cmocka_unit_test(test_warmup_log),
		cmocka_unit_test(test_warmup_linear),
		cmocka_unit_test(test_short_warmup_is_two_steps),
		cmocka_unit_test(test_decay),
		cmocka_unit_test(test_cosine),
		cmocka_unit_test(test_skipped_steps),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
