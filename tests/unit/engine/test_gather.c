/*
 * What ranks have measured, brought together over real collectives. Each has a GPU of a library
 * made for the test, whose path is the program's argument, and another number of samples of it.
 */
#include "engine/segment.h"
#include "tests/unit/engine/ranks.h"
#include "tests/unit/test.h"

enum { STEPS = 5 };

static const char *library;

/* How many samples a rank took: of rank 1 none was to be had. */
static size_t samples_of(int rank)
{
	return rank == 1 ? 0 : (size_t)(3 * rank + 2);
}

static int64_t time_of(int rank, size_t i)
{
	return rank * 1000 + (int64_t)i;
}

static bool fill(struct segment *s, struct warm *w, const struct ranks_self *self, bool gpus)
{
	char error[256];

	if (measure_init(&s->measure, STEPS + 1, 1, 64, self->world))
		return false;
	s->measure.done = STEPS;
	for (int64_t i = 0; i < STEPS; i++)
		s->measure.own[i].step_ns = time_of(self->rank, (size_t)i);
	if (!gpus)
		return true;
	if (gpu_log_create(library, "0000:01:00.0", &w->gpu_log, error, sizeof(error)))
		return false;
	s->gpu.n = s->gpu.capacity = samples_of(self->rank);
	s->gpu.sample = s->gpu.n ? calloc(s->gpu.n, sizeof(*s->gpu.sample)) : NULL;
	for (size_t i = 0; i < s->gpu.n; i++)
		s->gpu.sample[i].utc_ns = time_of(self->rank, i);
	return true;
}

static bool all_there(const struct segment *s, bool gpus)
{
	bool good = gpus ? s->gpus != NULL && s->gpus_room == samples_of(s->world - 1)
			 : s->gpus == NULL;

	for (int rank = 0; rank < s->world && good; rank++) {
		const struct gpu_log_summary *gpu = &s->ranks[rank].gpu;

		for (size_t i = 0; i < STEPS; i++)
			good = good &&
				measure_rank(&s->measure, rank)[i].step_ns == time_of(rank, i);
		good = good && s->ranks[rank].pid > 0 &&
			gpu->samples == (gpus ? (int64_t)samples_of(rank) : 0);
		for (size_t i = 0; i < (size_t)gpu->samples && good; i++)
			good = s->gpus[(size_t)rank * s->gpus_room + i].utc_ns == time_of(rank, i);
	}
	return good && s->measure.slowest[0].step_ns == time_of(s->world - 1, 0);
}

static int gather(struct ranks_self *self)
{
	const bool gpus = *(const bool *)self->arg;
	struct segment s = {.world = self->world, .group = self->all};
	struct warm w = {.collectives = self->c, .comm = self->comm};
	bool good = fill(&s, &w, self, gpus) && segment_gather(&s, &w) && all_there(&s, gpus);

	gpu_log_destroy(w.gpu_log);
	gpu_log_samples_finish(&s.gpu);
	measure_finish(&s.measure);
	free(s.gpus);
	free(s.ranks);
	return good && !s.failure.reason ? 0 : 1;
}

static void of_all_ranks(void **state)
{
	const bool gpus = true;

	assert_int_equal(ranks_run_well(3, gather, &gpus, NULL, 0), 0);
	assert_int_equal(ranks_run_well(1, gather, &gpus, NULL, 0), 0);
}

static void without_a_gpu(void **state)
{
	const bool gpus = false;

	assert_int_equal(ranks_run_well(2, gather, &gpus, NULL, 0), 0);
}

/* L6: steps that were attempted and not applied train nothing. */
static void no_update(void **state)
{
	struct segment s = {.config = {.precision = SPEC_FP16, .fp16_skips_max = 50}};
	const struct measure_step skipped = {.loss = 1, .skipped = 1};

	s.measure.steps = 60;
	s.measure.done = 59;
	assert_true(segment_can_continue(&s, 0, &skipped));
	s.measure.done = 60;
	assert_false(segment_can_continue(&s, 0, &skipped));
	assert_string_equal(s.failure.reason, "no_update");
	assert_false(s.failure.silent);
	s.training.step.applied = 1;
	assert_true(segment_can_continue(&s, 0, &skipped));
	s.measure.done = 50;
	s.training.step.scale.skips_in_place = 50;
	assert_false(segment_can_continue(&s, 1, &skipped));
	assert_string_equal(s.failure.reason, "loss_scale_floor");
	assert_true(s.failure.silent);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_all_ranks),
		cmocka_unit_test(without_a_gpu),
		cmocka_unit_test(no_update),
	};

	if (argc < 2)
		return 2;
	library = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
