#include "engine/train/loss_scale.h"
#include "proto/spec/spec.h"
#include "tests/unit/test.h"

static struct spec_config config(void)
{
	return (struct spec_config){.precision = SPEC_FP16,
		.fp16_loss_scale = 0.0,
		.fp16_initial_scale_power = 16,
		.fp16_loss_scale_window = 1000,
		.fp16_hysteresis = 2,
		.fp16_min_loss_scale = 1.0};
}

static void test_growth_after_the_window(void **state)
{
	struct spec_config c = config();
	struct loss_scale s;

	loss_scale_init(&s, &c);
	for (int64_t it = 0; it <= 2001; it++) {
		loss_scale_update(&s, false);
		assert_true(s.scale == (it < 1000 ? 65536.0 : it < 2000 ? 131072.0 : 262144.0));
	}
}

static void run(struct loss_scale *s, const char *events, const double *golden)
{
	for (size_t i = 0; events[i] != '\0'; i++) {
		loss_scale_update(s, events[i] == 'o');
		assert_true(s->scale == golden[i]);
	}
}

static void test_hysteresis(void **state)
{
	static const double golden[] = {65536, 65536, 32768, 16384};
	static const double consecutive[] = {65536, 65536, 65536, 32768};
	struct spec_config c = config();
	struct loss_scale s;

	loss_scale_init(&s, &c);
	run(&s, "o.oo", golden);
	c.fp16_consecutive_hysteresis = true;
	loss_scale_init(&s, &c);
	run(&s, "o.oo", consecutive);
}

static void test_hysteresis_of_one(void **state)
{
	static const double golden[] = {32768, 32768, 16384, 8192};
	struct spec_config c = config();
	struct loss_scale s;

	c.fp16_hysteresis = 1;
	loss_scale_init(&s, &c);
	run(&s, "o.oo", golden);
}

/* growth resets what hysteresis has used up, and the window counts from the last overflow */
static void test_window_from_the_last_overflow(void **state)
{
	static const double golden[] = {65536, 65536, 65536, 65536, 131072, 131072, 65536};
	struct spec_config c = config();
	struct loss_scale s;

	c.fp16_loss_scale_window = 3;
	loss_scale_init(&s, &c);
	run(&s,
		"o...."
		"oo",
		golden);
}

static void test_floor(void **state)
{
	struct spec_config c = config();
	struct loss_scale s;

	c.fp16_initial_scale_power = 2;
	c.fp16_hysteresis = 1;
	loss_scale_init(&s, &c);
	loss_scale_update(&s, true);
	loss_scale_update(&s, true);
	assert_true(s.scale == 1.0);
	assert_int_equal(s.skips_in_place, 0);
	for (int i = 1; i <= 5; i++) {
		loss_scale_update(&s, true);
		assert_true(s.scale == 1.0);
		assert_int_equal(s.skips_in_place, i);
	}
	loss_scale_update(&s, false);
	assert_int_equal(s.skips_in_place, 0);
}

/* L6: hysteresis does not hide that nothing is applied, and the scale stays within its bounds. */
static void test_bounds(void **state)
{
	struct spec_config c = config();
	struct loss_scale s;

	c.fp16_hysteresis = 1000;
	loss_scale_init(&s, &c);
	for (int i = 1; i <= 60; i++) {
		loss_scale_update(&s, true);
		assert_int_equal(s.skips_in_place, i);
	}
	c.fp16_loss_scale_window = 1;
	loss_scale_init(&s, &c);
	for (int i = 0; i < 100; i++)
		loss_scale_update(&s, false);
	assert_true(s.scale == 16777216.0);
	c.fp16_initial_scale_power = 30;
	loss_scale_init(&s, &c);
	for (int i = 0; i < 3; i++)
		loss_scale_update(&s, false);
	assert_true(s.scale == 0x1p30);
}

/*
 * The published order updates the scale and then unscales, so on a step where it grows gradients
 * come out half as large. Ours keeps the scale that backward used.
 */
static void test_growth_step_unscales_with_the_scale_of_backward(void **state)
{
	struct spec_config c = config();
	struct loss_scale s;
	const double gradient = 3.0;
	double used = 0.0, scaled = 0.0;

	loss_scale_init(&s, &c);
	for (int it = 0; it <= 1000; it++) {
		used = s.scale;
		scaled = gradient * used;
		loss_scale_update(&s, false);
	}
	assert_true(scaled / used == gradient);
	assert_true(scaled / s.scale == gradient / 2.0);
}

static void test_fixed(void **state)
{
	struct spec_config c = config();
	struct loss_scale s;

	c.fp16_loss_scale = 128.0;
	loss_scale_init(&s, &c);
	for (int i = 0; i < 3000; i++) {
		loss_scale_update(&s, i % 2 == 0);
		assert_true(s.scale == 128.0);
	}
	c.precision = SPEC_FP32;
	loss_scale_init(&s, &c);
	assert_true(s.scale == 1.0);
	loss_scale_update(&s, true);
	loss_scale_update(&s, true);
	assert_int_equal(s.skips_in_place, 2);
	assert_true(s.scale == 1.0);
}

TEST_MAIN(cmocka_unit_test(test_growth_after_the_window), cmocka_unit_test(test_hysteresis),
	cmocka_unit_test(test_hysteresis_of_one),
	cmocka_unit_test(test_window_from_the_last_overflow), cmocka_unit_test(test_floor),
	cmocka_unit_test(test_bounds),
	cmocka_unit_test(test_growth_step_unscales_with_the_scale_of_backward),
	cmocka_unit_test(test_fixed))
