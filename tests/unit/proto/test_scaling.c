/* scaling.c against values computed by hand, the engine's bucket plan, and measured steps. */
#include <math.h>

#include "engine/train/plan.h"
#include "proto/stats/scaling.h"
#include "tests/unit/test.h"

static const struct scaling_network slow_between = {{2.0, 100.0}, {10.0, 50.0}};
static const struct scaling_network fast_between = {{2.0, 100.0}, {10.0, 200.0}};
static const struct scaling_network h200 = {{3.4, 319.0}, {9.6, 340.0}};

static void assert_near(double found, double expected)
{
	if (!(fabs(found - expected) < 1e-6 * fabs(expected) + 1e-9))
		fail_msg("%.9g, %.9g expected", found, expected);
}

static double ring(const struct scaling_network *network, int64_t nodes, int64_t per_node)
{
	const struct scaling_world world = {nodes, per_node};

	return scaling_ring_us(network, &world, 4e6);
}

static void test_ring(void **state)
{
	assert_near(ring(&slow_between, 1, 1), 0.0);
	/* 15.4 + 3 hops of 2 + 3 MB at 100 GB/s */
	assert_near(ring(&slow_between, 1, 4), 15.4 + 6.0 + 30.0);
	/* the ring leaves each node once: 2 hops within, 1 between, at the slower rate */
	assert_near(ring(&slow_between, 2, 2), 15.4 + 4.0 + 10.0 + 60.0);
	assert_near(ring(&fast_between, 2, 2), 15.4 + 4.0 + 10.0 + 30.0);
	/* no link within a node is used */
	assert_near(ring(&fast_between, 2, 1), 15.4 + 10.0 + 10.0);
}

static struct scaling_work small_work(int64_t stage, bool overlap)
{
	return (struct scaling_work){.params = 1024000,
		.elem_bytes = 2,
		.zero_stage = stage,
		.accumulation = 1,
		.overlap = overlap,
		.compute_us = 300.0,
		.optimizer_us = 400.0};
}

/* alpha 0 and 100 GB/s: a bucket of 512,000 elements takes 15.4 + 7.68 us on four ranks. */
static struct scaling_prediction predict_small(int64_t stage, bool overlap)
{
	static const struct scaling_network network = {{0.0, 100.0}, {0.0, 100.0}};
	static const struct scaling_world world = {1, 4};
	const struct scaling_work work = small_work(stage, overlap);
	struct scaling_prediction p;

	scaling_predict(&network, &world, &work, 512000, 512000, &p);
	assert_int_equal(p.n_reduce, 2);
	assert_int_equal(p.n_gather, stage > 0 ? 2 : 0);
	assert_true(p.low.step_us < p.expected.step_us && p.expected.step_us < p.high.step_us);
	return p;
}

static void test_step(void **state)
{
	const double bucket = 15.4 + 7.68, norm = 2 * 15.4;
	struct scaling_prediction p = predict_small(1, false);

	/* two reductions, two gathers, the sum of the norm; each rank updates a quarter */
	assert_near(p.expected.comm_us, 4 * bucket + norm);
	assert_near(p.expected.exposed_us, p.expected.comm_us);
	assert_near(p.expected.step_us, 300.0 + 100.0 + 4 * bucket + norm);
	/* the first reduction is hidden by backward, the last gather by forward */
	p = predict_small(1, true);
	assert_near(p.expected.comm_us, 4 * bucket + norm);
	assert_near(p.expected.exposed_us, 2 * bucket + norm);
	assert_near(p.expected.step_us, 400.0 + 2 * bucket + norm + 0.65 * 2 * bucket);
	/* ZeRO-0 reduces twice the bytes and gathers nothing */
	p = predict_small(0, true);
	assert_near(p.expected.comm_us, 4 * bucket);
	assert_near(p.expected.exposed_us, 2 * bucket);
	assert_near(p.expected.step_us, 700.0 + 2 * bucket + 0.65 * 2 * bucket);
}

static void test_one_rank(void **state)
{
	static const struct scaling_world world = {1, 1};
	const struct scaling_work work = small_work(1, true);
	struct scaling_prediction p;

	scaling_predict(&h200, &world, &work, 512000, 512000, &p);
	assert_int_equal(p.n_gather, 0);
	assert_near(p.expected.exposed_us, 0.0);
	assert_near(p.expected.step_us, 700.0);
}

/* Embeddings are complete only at the end of backward, and needed first. */
static void test_late_parameters(void **state)
{
	static const struct scaling_world world = {1, 4};
	struct scaling_work work = small_work(1, true);
	struct scaling_prediction even, late;

	scaling_predict(&h200, &world, &work, 256000, 256000, &even);
	work.late_params = 512000;
	scaling_predict(&h200, &world, &work, 256000, 256000, &late);
	assert_near(late.expected.comm_us, even.expected.comm_us);
	assert_true(late.expected.exposed_us > even.expected.exposed_us);
}

static void test_buckets_are_the_plan(void **state)
{
	static const int64_t sizes[] = {1000000, 2500000, 24999999, 500000000};
	static const struct scaling_world worlds[] = {{1, 1}, {1, 4}, {3, 2}, {64, 8}};
	struct scaling_work work = small_work(1, true);
	struct scaling_prediction p;
	struct plan plan;
	char error[512];

	work.params = 124475904;
	for (size_t w = 0; w < 4; w++) {
		for (size_t i = 0; i < 16; i++) {
			const int64_t reduce = sizes[i / 4], gather = sizes[i % 4];
			const int ranks = (int)(worlds[w].nodes * worlds[w].per_node);

			if (gather < reduce)
				continue;
			assert_int_equal(plan_make(&plan, work.params, ranks, reduce, gather, error,
						 sizeof(error)),
				0);
			scaling_predict(&h200, &worlds[w], &work, reduce, gather, &p);
			assert_int_equal(p.n_reduce, plan.n_reduce);
			assert_int_equal(p.n_gather, ranks > 1 ? plan.n_gather : 0);
		}
	}
}

static const struct scaling_model gpt2 = {12, 768, 50257, 1024, true};

static void test_model(void **state)
{
	struct scaling_model untied = gpt2;

	untied.tied_head = false;
	assert_int_equal(scaling_params(&gpt2), 124439808);
	assert_int_equal(scaling_params(&untied), 163037184);
	assert_int_equal(scaling_late_params(&gpt2), 39383808);
}

/* One H200, tests/bench/RESULTS.md, ms a step. */
static void test_measured_computation(void **state)
{
	static const struct {
		int64_t sequences, seq_len, accumulation;
		double tflops, ms;
	} steps[] = {{64, 1024, 1, SCALING_TFLOPS_16BIT, 100.07},
		{32, 128, 1, SCALING_TFLOPS_16BIT, 7.06}, {16, 512, 1, SCALING_TFLOPS_16BIT, 13.09},
		{2, 512, 2, SCALING_TFLOPS_16BIT, 5.51}, {32, 128, 1, SCALING_TFLOPS_TF32, 15.0},
		{32, 128, 1, SCALING_TFLOPS_FP32, 66.55}};

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		const double us = scaling_optimizer_us(scaling_params(&gpt2)) +
			scaling_compute_us(&gpt2, steps[i].seq_len, steps[i].sequences,
				steps[i].accumulation, steps[i].tflops);

		if (fabs(us / 1e3 / steps[i].ms - 1.0) > SCALING_COMPUTE_ERROR)
			fail_msg("%lld x %lld: %.2f ms, measured %.2f",
				(long long)steps[i].sequences, (long long)steps[i].seq_len,
				us / 1e3, steps[i].ms);
	}
}

/* The experiment of bucket sizes on four H200: each measured step is within its bars. */
static void test_measured_buckets(void **state)
{
	static const struct {
		int64_t elems, buckets;
		double ms;
	} arms[] = {{500000000, 1, 9.19}, {25000000, 7, 8.91}, {5000000, 33, 10.5},
		{1000000, 163, 14.4}};
	static const struct scaling_world world = {1, 4};
	const struct scaling_work work = {.params = 163037184,
		.late_params = 39383808,
		.elem_bytes = 2,
		.zero_stage = 1,
		.accumulation = 2,
		.overlap = true,
		.compute_us = 7260.0,
		.optimizer_us = scaling_optimizer_us(163037184)};
	struct scaling_prediction p;

	for (size_t i = 0; i < 4; i++) {
		scaling_predict(&h200, &world, &work, arms[i].elems, arms[i].elems, &p);
		assert_int_equal(p.n_reduce, arms[i].buckets);
		if (p.low.step_us > 1e3 * arms[i].ms || p.high.step_us < 1e3 * arms[i].ms)
			fail_msg("%lld buckets: %.2f to %.2f ms, measured %.2f",
				(long long)p.n_reduce, p.low.step_us / 1e3, p.high.step_us / 1e3,
				arms[i].ms);
	}
}

TEST_MAIN(cmocka_unit_test(test_ring), cmocka_unit_test(test_step), cmocka_unit_test(test_one_rank),
	cmocka_unit_test(test_late_parameters), cmocka_unit_test(test_buckets_are_the_plan),
	cmocka_unit_test(test_model), cmocka_unit_test(test_measured_computation),
	cmocka_unit_test(test_measured_buckets))
