/*
 * Ranks that share the choices of their kernels while one of them stands still, is killed or has
 * no memory: the others hear of it in time, and keep what they had. CPU kernels make no choices;
 * here each rank says that it made some.
 */
#include <signal.h>

#include "engine/comm/patience.h"
#include "engine/train/tuned.h"
#include "tests/unit/engine/ranks.h"
#include "tests/unit/test.h"

static const int64_t second_ns = 1000 * 1000 * 1000;
static const int64_t limit_ns = INT64_C(60) * 1000 * 1000 * 1000;
enum { WORLD = 3, CHOICES = 4, LOST = 1 };

/* What becomes of rank LOST: it stops for good, before it is asked for its choices or after it has
 * reported how many. */
enum how { NOTHING, STOPPED, STOPPED_LATER, KILLED, KILLED_LATER };

static struct k_choice choices[CHOICES];

/* The kernels of a rank; they are linked in place of those that choose nothing. */
void __wrap_k_context_info(const struct k_context *ctx, struct k_device_info *out);
int64_t __wrap_k_choices(const struct k_context *ctx, struct k_choice *out, int64_t max);
int64_t __wrap_k_choices_set(struct k_context *ctx, const struct k_choice *choices, int64_t n);

void __wrap_k_context_info(const struct k_context *ctx, struct k_device_info *out)
{
	*out = (struct k_device_info){.choices = "GPU 1"};
}

int64_t __wrap_k_choices(const struct k_context *ctx, struct k_choice *out, int64_t max)
{
	if (max > 0)
		memcpy(out, choices, sizeof(choices));
	return CHOICES;
}

int64_t __wrap_k_choices_set(struct k_context *ctx, const struct k_choice *set, int64_t n)
{
	int64_t changed = 0;

	for (int64_t i = 0; i < n && i < CHOICES; i++) {
		changed += memcmp(&choices[i], &set[i], sizeof(choices[i])) != 0;
		choices[i] = set[i];
	}
	return changed;
}

static void choose(int rank)
{
	memset(choices, 0, sizeof(choices));
	for (int i = 0; i < CHOICES; i++) {
		choices[i].product.m = i + 1;
		choices[i].algorithm[0] = (uint64_t)(100 * rank + i);
	}
}

static void be_lost(struct ranks_self *self, enum how how)
{
	int64_t n = CHOICES, counts[WORLD];

	if (how == STOPPED_LATER || how == KILLED_LATER) {
		collectives_gather_all(self->all, counts, &n, sizeof(n), self->comm);
		k_stream_sync(self->comm, limit_ns);
	}
	kill(getpid(), how == KILLED || how == KILLED_LATER ? SIGKILL : SIGSTOP);
}

/* 0 when all went as it should. */
static int share(struct ranks_self *self)
{
	enum how how = *(const enum how *)self->arg;
	const struct tuned_peers peers = {.collectives = self->c,
		.group = self->all,
		.comm = self->comm,
		.patience_ns = PATIENCE_NS};
	int64_t changed = -7;
	struct tuned t;
	int rc;

	choose(self->rank);
	tuned_init(&t, self->ctx, NULL);
	if (how && self->rank == LOST)
		be_lost(self, how);
	rc = tuned_share(&t, &peers, self->rank, &changed);
	ranks_keep_error(self);
	if (!how)
		return rc || changed != (self->rank ? CHOICES : 0) || choices[2].algorithm[0] != 2;
	return rc != -EPIPE || changed != -7 || t.sha256[0] ||
		choices[2].algorithm[0] != (uint64_t)(100 * self->rank + 2);
}

static struct ranks_end end;

static void run(enum how how)
{
	struct ranks_options options = {.world = WORLD,
		.timeout_ns = how == STOPPED || how == STOPPED_LATER ? 3 * second_ns : 0,
		.fn = share,
		.arg = &how};

	assert_int_equal(ranks_run(&options, &end), 0);
	for (int r = 0; r < WORLD; r++)
		if (!how || r != LOST)
			assert_int_equal(end.exit_status[r], 0);
}

static void all_take_those_of_rank_0(void **state)
{
	run(NOTHING);
}

static void one_stops(void **state)
{
	static const char text[] = "rank 1: no message for 3 s in gather";
	for (enum how how = STOPPED; how <= STOPPED_LATER; how++) {
		run(how);
		for (int r = 0; r < WORLD; r++)
			if (r != LOST)
				assert_memory_equal(
					ranks_error_of(&end, r), text, sizeof(text) - 1);
	}
}

static void one_is_killed(void **state)
{
	for (enum how how = KILLED; how <= KILLED_LATER; how++) {
		run(how);
		assert_int_equal(end.exit_status[LOST], -SIGKILL);
		for (int r = 0; r < WORLD; r++)
			if (r != LOST)
				assert_memory_equal(ranks_error_of(&end, r), "rank 1: ", 8);
	}
}

TEST_MAIN(cmocka_unit_test(all_take_those_of_rank_0), cmocka_unit_test(one_stops),
	cmocka_unit_test(one_is_killed))
