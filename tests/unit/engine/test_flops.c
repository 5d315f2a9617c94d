#include <math.h>

#include "engine/report/flops.h"
#include "tests/unit/test.h"

static struct spec_config gpt2(int64_t batch)
{
	return (struct spec_config){.model = {.n_layer = 12, .n_head = 12, .n_embd = 768},
		.seq_len = 1024,
		.batch = batch};
}

/* The totals of tests/bench/floor for 4x1024x1, 8x1024x4 and 1x512x1. */
static void test_as_the_floor(void **state)
{
	struct spec_config c = gpt2(4);
	struct flops f;

	flops_count(&c, 50304, &f);
	assert_true(fabs(f.model / 3307657494528.0 - 1) < 1e-12);
	assert_true(f.hardware == f.model);
	c.batch = 32;
	flops_count(&c, 50304, &f);
	assert_true(fabs(f.model / 26461259956224.0 - 1) < 1e-12);
	c.batch = 1;
	c.seq_len = 512;
	flops_count(&c, 50304, &f);
	assert_true(fabs(f.model / 396545753088.0 - 1) < 1e-12);
}

static void test_recomputation(void **state)
{
	struct spec_config c = gpt2(4);
	struct flops f;

	c.recompute = SPEC_RECOMPUTE_FULL;
	flops_count(&c, 50304, &f);
	/* 11 blocks of 16 R C C and 2 R C (T + 1) */
	assert_true(
		f.hardware - f.model == 11.0 * (16.0 * 4096 * 768 * 768 + 2.0 * 4096 * 768 * 1025));
}

static void test_cards(void **state)
{
	assert_true(flops_peak("NVIDIA H200") == 989);
	assert_true(flops_peak("NVIDIA H100 80GB HBM3") == 989);
	assert_true(flops_peak("NVIDIA A100-SXM4-80GB") == 312);
	assert_true(flops_peak("Tesla V100-SXM2-16GB") == 125);
	assert_true(flops_peak("Tesla T4") == 65);
	assert_true(flops_peak("NVIDIA T400 4GB") == 0);
	assert_true(flops_peak("AMD EPYC 9T4X") == 0);
}

TEST_MAIN(cmocka_unit_test(test_as_the_floor), cmocka_unit_test(test_recomputation),
	cmocka_unit_test(test_cards))
