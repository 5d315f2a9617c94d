#include <math.h>

#include "engine/report/measure.h"
#include "tests/unit/test.h"

static struct measure with_times(
	const double *seconds, int64_t n, int64_t warmup, int64_t tokens, int world)
{
	struct measure m;

	assert_int_equal(measure_init(&m, n, warmup, tokens, world), 0);
	for (int64_t i = 0; i < n; i++) {
		m.own[i].step_ns = (int64_t)(seconds[i] * 1e9);
		m.own[i].loss = 5.0 - (double)i;
	}
	m.done = n;
	measure_merge(&m, NULL);
	return m;
}

/* F1: B=4, T=1024, accumulation 8, world 2, half a second */
static void test_tokens_with_accumulation(void **state)
{
	const double seconds[] = {0.5};
	struct measure m = with_times(seconds, 1, 0, 4 * 1024 * 8 * 2, 2);
	struct measure_summary s;

	assert_int_equal(measure_summarise(&m, &s), 0);
	assert_int_equal(s.tokens_total, 65536);
	assert_true(s.tok_s_global == 131072.0);
	assert_true(s.tok_s_per_gpu == 65536.0);
	measure_finish(&m);
}

/* F2 */
static void test_per_gpu_ratio_is_exact(void **state)
{
	int world;

	for (world = 1; world <= 1024; world++) {
		double seconds[5] = {0.1234567, 0.3, 0.0317, 1.7, 0.00021 * world};
		struct measure m = with_times(seconds, 5, 1, 32768 * (int64_t)world + 7, world);
		struct measure_summary s;

		assert_int_equal(measure_summarise(&m, &s), 0);
		assert_true(s.tok_s_global / s.tok_s_per_gpu == (double)world);
		assert_true(fabs(s.tok_s_global * s.seconds_measured / (double)s.tokens_measured -
				    1.0) < 1e-12);
		measure_finish(&m);
	}
}

/* F3 */
static void test_warmup_is_left_out(void **state)
{
	const double seconds[] = {5.0, 1.0, .5, .5, .5, .5, .5, .5, .5, .5};
	struct measure m = with_times(seconds, 10, 2, 65536, 1);
	struct measure_summary s;

	assert_int_equal(measure_summarise(&m, &s), 0);
	assert_int_equal(s.steps_measured, 8);
	assert_true(s.seconds_measured == 4.0);
	assert_true(s.tok_s_global == 131072.0);
	assert_int_equal(s.tokens_total, 655360);
	assert_int_equal(s.tokens_measured, 524288);
	assert_int_equal(s.step.median, 500000000);
	measure_finish(&m);

	m = with_times(seconds, 10, 0, 65536, 1);
	assert_int_equal(measure_summarise(&m, &s), 0);
	assert_true(s.tok_s_global == 65536.0);
	measure_finish(&m);
}

/* As the measure takes them: its own memory. */
static struct measure_step *copy_steps(const struct measure_step *steps, size_t n)
{
	struct measure_step *copy = calloc(n, sizeof(*copy));

	assert_non_null(copy);
	memcpy(copy, steps, n * sizeof(*copy));
	return copy;
}

/* Steps beside a checkpoint, on any rank, are done and do not count, unless there are no others. */
static void test_steps_beside_a_checkpoint(void **state)
{
	struct measure_step all[2][5] = {
		{{.step_ns = 9000000000}, {.step_ns = 1000000000},
			{.step_ns = 3000000000, .saving = 1}, {.step_ns = 4000000000},
			{.step_ns = 1000000000}},
		{{.step_ns = 9000000000}, {.step_ns = 1000000000}, {.step_ns = 3000000000},
			{.step_ns = 4000000000, .saving = 1}, {.step_ns = 1000000000}},
	};
	struct measure_summary s;
	struct measure m;

	assert_int_equal(measure_init(&m, 5, 1, 100, 2), 0);
	m.done = 5;
	measure_merge(&m, copy_steps(&all[0][0], 10));
	assert_int_equal(m.saving, 2);
	assert_true(measure_counts(&m, 1) && measure_counts(&m, 4));
	assert_false(measure_counts(&m, 0) || measure_counts(&m, 2) || measure_counts(&m, 3));
	assert_int_equal(measure_summarise(&m, &s), 0);
	assert_int_equal(s.steps_attempted, 5);
	assert_int_equal(s.steps_measured, 2);
	assert_int_equal(s.tokens_total, 500);
	assert_int_equal(s.tokens_measured, 200);
	assert_true(s.seconds_measured == 2.0);
	assert_int_equal(s.step.median, 1000000000);
	measure_finish(&m);

	for (int i = 1; i < 5; i++)
		all[0][i].saving = 1;
	assert_int_equal(measure_init(&m, 5, 1, 100, 2), 0);
	m.done = 5;
	measure_merge(&m, copy_steps(&all[0][0], 10));
	assert_int_equal(m.saving, 0);
	assert_int_equal(measure_summarise(&m, &s), 0);
	assert_int_equal(s.steps_measured, 4);
	measure_finish(&m);
}

static void test_warmup_refused(void **state)
{
	struct measure m;

	assert_int_equal(measure_init(&m, 10, 10, 1, 1), -EINVAL);
	assert_int_equal(measure_init(&m, 10, 11, 1, 1), -EINVAL);
	assert_int_equal(measure_init(&m, 0, 0, 1, 1), -EINVAL);
	assert_int_equal(measure_init(&m, 10, 9, 1, 1), 0);
	measure_finish(&m);
}

static void test_slowest_of_each(void **state)
{
	struct measure_step all[3][2] = {
		{{.step_ns = 10, .data_ns = 1, .loss = 2.5, .lr = 1e-4, .end_utc_ns = 100},
			{.step_ns = 9}},
		{{.step_ns = 12, .forward_ns = 5, .loss = 2.5, .end_utc_ns = 99}, {.step_ns = 7}},
		{{.step_ns = 11, .data_ns = 3, .exposed_comm_ns = 4, .loss = 2.5},
			{.step_ns = 30, .skipped = 0}},
	};
	struct measure m;

	all[0][1].skipped = 1;
	assert_int_equal(measure_init(&m, 5, 0, 1, 3), 0);
	m.done = 2; /* a run that was cancelled early */
	measure_merge(&m, copy_steps(&all[0][0], 6));
	assert_int_equal(m.slowest[0].step_ns, 12);
	assert_int_equal(m.slowest[0].data_ns, 3);
	assert_int_equal(m.slowest[0].forward_ns, 5);
	assert_int_equal(m.slowest[0].exposed_comm_ns, 4);
	assert_int_equal(m.slowest[0].end_utc_ns, 100);
	assert_true(m.slowest[0].loss == 2.5 && m.slowest[0].lr == 1e-4);
	assert_int_equal(m.slowest[1].step_ns, 30);
	assert_int_equal(m.slowest[1].skipped, 1);
	for (int rank = 0; rank < 3; rank++)
		for (int i = 0; i < 2; i++)
			assert_memory_equal(
				&measure_rank(&m, rank)[i], &all[rank][i], sizeof(all[0][0]));
	measure_finish(&m);
}

/* L1: the ranks are slow in turns. Elapsed are 3 s, the sum of each step's slowest is 4 s. */
static void test_elapsed_time(void **state)
{
	struct measure_step all[2][3] = {
		{{.step_ns = 9000000000}, {.step_ns = 1000000000, .forward_ns = 600000000},
			{.step_ns = 2000000000, .forward_ns = 1800000000}},
		{{.step_ns = 9000000000},
			{.step_ns = 2000000000,
				.forward_ns = 200000000,
				.exposed_comm_ns = 1000000000},
			{.step_ns = 900000000}},
	};
	struct measure_summary s;
	struct measure m;

	assert_int_equal(measure_init(&m, 3, 1, 300, 2), 0);
	m.done = 3;
	measure_merge(&m, copy_steps(&all[0][0], 6));
	assert_int_equal(measure_summarise(&m, &s), 0);
	assert_true(s.seconds_measured == 3.0);
	assert_true(fabs(s.tok_s_global - 200.0) < 1e-9);
	assert_int_equal(s.step.median, 2000000000);
	assert_int_equal(measure_elapsed_ns(&m, 0), 12000000000);
	assert_true(fabs(s.phases.forward - 0.65) < 1e-12);
	assert_true(fabs(s.phases.exposed_comm - 0.25) < 1e-12);
	assert_true(fabs(s.phases.work - (1.5 + 0.95) / 2) < 1e-12);
	measure_finish(&m);
}

/* Per collective the shortest wait is the transfer, the rest is for the slowest rank. */
static void test_exposed_parts(void **state)
{
	/* two steps of three waits each, of two ranks */
	static const float waits[2][6] = {{10, 50, 0, 10, 5, 20}, {40, 10, 0, 10, 5, 20}};
	struct measure_step all[2][3] = {0};
	struct measure_summary s;
	struct measure m;
	float *row;

	assert_int_equal(measure_init(&m, 3, 1, 300, 2), 0);
	m.done = 1;
	assert_null(measure_keep_waits(&m, 3)); /* a warm-up */
	for (m.done = 2; m.done <= 3; m.done++) {
		assert_null(measure_keep_waits(&m, 0));
		row = measure_keep_waits(&m, 3);
		assert_non_null(row);
		memcpy(row, &waits[0][3 * (m.done - 2)], 3 * sizeof(*row));
	}
	m.done = 3;
	assert_null(measure_keep_waits(&m, 3)); /* no room */
	for (int rank = 0; rank < 2; rank++)
		for (int i = 1; i < 3; i++)
			all[rank][i] = (struct measure_step){
				.step_ns = 1000000000, .exposed_comm_ns = 180000000};
	measure_merge(&m, copy_steps(&all[0][0], 6));
	assert_int_equal(measure_summarise(&m, &s), 0);
	assert_true(isnan(s.exposed_transfer) && isnan(s.exposed_wait)); /* not gathered */
	m.waits.all = malloc(sizeof(waits));
	assert_non_null(m.waits.all);
	memcpy(m.waits.all, waits, sizeof(waits));
	assert_int_equal(measure_summarise(&m, &s), 0);
	/* transfer 10 + 10 + 0 + 10 + 5 + 20 of a mean of 90 */
	assert_true(fabs(s.exposed_transfer - .18 * 55 / 90) < 1e-9);
	assert_true(fabs(s.exposed_wait - .18 * 35 / 90) < 1e-9);
	assert_true(s.exposed_transfer + s.exposed_wait == s.phases.exposed_comm);
	assert_int_equal(s.split_steps, 2);
	measure_finish(&m);
}

/* Steps end together; rank 2 is the one with 9 of 10 ms for itself, once the warm-up is over. */
static void test_the_slow_rank(void **state)
{
	static const int64_t waits_ms[4][3] = {{0, 4, 6}, {0, 3, 5}, {9, 1, 1}, {0, 2, 4}};
	struct measure_step all[4][3] = {0};
	struct measure_slowest slowest;
	struct measure_phases phases;
	struct measure m;

	for (int rank = 0; rank < 4; rank++)
		for (int i = 0; i < 3; i++) {
			all[rank][i].step_ns = 10000000;
			all[rank][i].exposed_comm_ns = waits_ms[rank][i] * 1000000;
			all[rank][i].forward_ns = (rank + 1) * 100000;
		}
	assert_int_equal(measure_init(&m, 3, 1, 1, 4), 0);
	m.done = 3;
	measure_merge(&m, copy_steps(&all[0][0], 12));
	assert_int_equal(measure_find_slowest(&m, &slowest), 0);
	assert_int_equal(slowest.rank, 2);
	assert_true(fabs(slowest.work_mean_s - 9e-3) < 1e-12);
	assert_true(fabs(slowest.others_median_s - 6e-3) < 1e-12); /* of 5, 6 and 7 */
	assert_int_equal(slowest.parts, 2);
	assert_int_equal(slowest.most_in, 2);
	measure_rank_phases(&m, 3, &phases);
	assert_true(fabs(phases.work - 7e-3) < 1e-12);
	assert_true(fabs(phases.exposed_comm - 3e-3) < 1e-12);
	assert_true(fabs(phases.forward - 4e-4) < 1e-12);
	m.done = 1;
	assert_int_equal(measure_find_slowest(&m, &slowest), -ENODATA);
	measure_finish(&m);
}

/* One step that was held up makes the mean: it was so in two of eight parts. */
static void test_one_step_is_no_slow_rank(void **state)
{
	enum { STEPS = 25 };
	struct measure_step all[2][STEPS] = {0};
	struct measure_slowest slowest;
	struct measure m;

	for (int i = 0; i < STEPS; i++) {
		all[0][i].step_ns = all[1][i].step_ns = 10000000;
		if (i == 3 || i == STEPS - 1)
			all[1][i].exposed_comm_ns = 9000000;
		else
			all[0][i].exposed_comm_ns = 400000;
	}
	assert_int_equal(measure_init(&m, STEPS, 0, 1, 2), 0);
	m.done = STEPS;
	measure_merge(&m, copy_steps(&all[0][0], 2 * (size_t)STEPS));
	assert_int_equal(measure_find_slowest(&m, &slowest), 0);
	assert_int_equal(slowest.rank, 0);
	assert_int_equal(slowest.parts, 8);
	assert_int_equal(slowest.most_in, 2);
	measure_finish(&m);
}

static void test_one_rank_is_not_slow(void **state)
{
	struct measure_slowest slowest;
	struct measure m;

	assert_int_equal(measure_init(&m, 2, 0, 1, 1), 0);
	m.own[1].step_ns = 7;
	m.done = 2;
	measure_merge(&m, NULL);
	assert_int_equal(m.slowest[1].step_ns, 7);
	assert_ptr_equal(measure_rank(&m, 0), m.own);
	assert_int_equal(measure_find_slowest(&m, &slowest), -ENODATA);
	measure_finish(&m);
}

/* C7, F6: skipped steps and losses that are not finite */
static void test_skips_and_nonfinite(void **state)
{
	double seconds[10] = {.5, .5, .5, .5, .5, .5, .5, .5, .5, .5};
	struct measure m = with_times(seconds, 10, 0, 100, 1);
	struct measure_summary s;

	for (int i = 0; i < 3; i++)
		m.slowest[i].skipped = 1;
	m.slowest[0].loss = (double)NAN;
	m.slowest[9].loss = (double)INFINITY;
	assert_int_equal(measure_summarise(&m, &s), 0);
	assert_int_equal(s.steps_attempted, 10);
	assert_int_equal(s.steps_applied, 7);
	assert_int_equal(s.steps_skipped, 3);
	assert_true(s.tok_s_global == 200.0); /* all attempted steps count */
	assert_int_equal(s.nonfinite, 2);
	assert_true(s.loss_first == 4.0);
	assert_true(s.loss_last == -3.0);
	assert_true(s.loss_mean == 0.5);
	for (int i = 0; i < 10; i++)
		m.slowest[i].loss = (double)NAN;
	assert_int_equal(measure_summarise(&m, &s), 0);
	assert_true(isnan(s.loss_mean) && isnan(s.loss_first) && isnan(s.loss_last));
	measure_finish(&m);
}

static void test_phases(void **state)
{
	const double seconds[] = {9, 1, 1};
	struct measure m = with_times(seconds, 3, 1, 1, 1);
	struct measure_summary s;

	for (int i = 0; i < 3; i++) {
		m.own[i].data_ns = i * 1000000000;
		m.own[i].forward_ns = 100000000;
		m.own[i].backward_ns = 200000000;
		m.own[i].exposed_comm_ns = 300000000;
		m.own[i].optimizer_ns = 400000000;
	}
	assert_int_equal(measure_summarise(&m, &s), 0);
	assert_true(fabs(s.phases.data - 1.5) < 1e-12);
	assert_true(fabs(s.phases.forward - 0.1) < 1e-12);
	assert_true(fabs(s.phases.backward - 0.2) < 1e-12);
	assert_true(fabs(s.phases.exposed_comm - 0.3) < 1e-12);
	assert_true(fabs(s.phases.optimizer - 0.4) < 1e-12);
	m.done = 1; /* cancelled inside the warm-up */
	assert_int_equal(measure_summarise(&m, &s), -ENODATA);
	measure_finish(&m);
}

TEST_MAIN(cmocka_unit_test(test_tokens_with_accumulation),
	cmocka_unit_test(test_per_gpu_ratio_is_exact), cmocka_unit_test(test_warmup_is_left_out),
	cmocka_unit_test(test_warmup_refused), cmocka_unit_test(test_steps_beside_a_checkpoint),
	cmocka_unit_test(test_slowest_of_each), cmocka_unit_test(test_elapsed_time),
	cmocka_unit_test(test_exposed_parts), cmocka_unit_test(test_the_slow_rank),
	cmocka_unit_test(test_one_step_is_no_slow_rank),
	cmocka_unit_test(test_one_rank_is_not_slow), cmocka_unit_test(test_skips_and_nonfinite),
	cmocka_unit_test(test_phases))
