/*
 * Changes of state without memory to write them: the run stays, its state is written later, and it
 * is forgotten when its end is durable, not before.
 */
#include <setjmp.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/runs/cancel.h"
#include "daemon/daemon.h"
#include "daemon/control/follow.h"
#include "daemon/runs/hold.h"
#include "daemon/runs/lifecycle.h"
#include "daemon/config/log.h"
#include "daemon/runs/prune.h"
#include "daemon/runs/queue.h"
#include "daemon/store/record.h"
#include "daemon/runs/run_log.h"

/* ---- what lifecycle.c calls ---- */

struct written {
	struct run *run;
	enum run_state state;
	void (*done)(void *arg, struct run *run, enum run_state state, int rc);
	void *arg;
};

static struct written written[8];
static int n_written, n_settled, n_ended, n_told;
static bool no_memory, store_fails;

int record_transition(struct store *s, struct run *run,
	void (*done)(void *arg, struct run *run, enum run_state state, int rc), void *arg)
{
	if (no_memory)
		return -ENOMEM;
	written[n_written++] = (struct written){run, run->state, done, arg};
	return 0;
}

const char *store_error_text(int rc)
{
	return strerror(-rc);
}

bool store_failing(struct store *s)
{
	return store_fails;
}

void cancel_store_fails(struct daemon *d)
{
	n_told++;
}

void cancel_settled(struct daemon *d, const struct run *run, bool late)
{
	n_settled++;
}

void follow_event(struct follow *f, int64_t id, const char *method, json_t *params)
{
	json_decref(params);
}

void follow_clear_progress(struct follow *f, int64_t id)
{
}

void follow_end(struct follow *f, int64_t id, json_t *done)
{
	json_decref(done);
	n_ended++;
}

void prune_soon(struct pruner *p)
{
}

void hold_update(struct holds *g)
{
}

void run_log_hand_over(struct daemon *d)
{
}

void log_write(enum log_level level, const char *format, ...)
{
}

/* ---- tests ---- */

static int set_up(void **state)
{
	struct daemon *d = calloc(1, sizeof(*d));

	d->queue = queue_create(1);
	n_written = n_settled = n_ended = n_told = 0;
	no_memory = store_fails = false;
	*state = d;
	return 0;
}

static int tear_down(void **state)
{
	struct daemon *d = *state;

	queue_destroy(d->queue);
	free(d);
	return 0;
}

static struct run *new_run(struct daemon *d, int64_t id)
{
	struct run *run = calloc(1, sizeof(*run));

	*run = (struct run){.id = id, .attempt = 1, .restart = true};
	lifecycle_begin(d, run);
	return run;
}

static void deliver_rc(int i, int rc)
{
	written[i].done(written[i].arg, written[i].run, written[i].state, rc);
}

static void deliver(int i)
{
	deliver_rc(i, 0);
}

static void test_forgotten_when_durable(void **state)
{
	struct daemon *d = *state;
	struct run *run = new_run(d, 1);

	assert_int_equal(lifecycle_move(d, run, RUN_STARTING, NULL), 0);
	assert_int_equal(lifecycle_move(d, run, RUN_FAILED, "io: no"), 0);
	assert_int_equal(n_written, 2);
	deliver(0);
	assert_ptr_equal(queue_find(d->queue, 1), run);
	assert_false(lifecycle_stored(run));
	deliver(1);
	assert_null(queue_find(d->queue, 1));
	assert_int_equal(n_ended, 1);
	assert_int_equal(n_settled, 1);
	assert_int_equal(d->counts[RUN_FAILED], 1);
}

/* As the store is closed while it fails. */
static void test_an_end_that_is_given_up(void **state)
{
	struct daemon *d = *state;
	struct run *run = new_run(d, 1);

	assert_int_equal(lifecycle_move(d, run, RUN_STARTING, NULL), 0);
	assert_int_equal(lifecycle_move(d, run, RUN_FAILED, "io: no"), 0);
	deliver_rc(0, -ENOSPC);
	deliver_rc(1, -ENOSPC);
	assert_ptr_equal(queue_find(d->queue, 1), run);
	assert_int_equal(run_told(run), RUN_STARTING);
	assert_int_equal(n_ended, 0);
	assert_int_equal(n_settled, 0);
	assert_int_equal(d->counts[RUN_FAILED], 0);
	assert_int_equal(d->counts[RUN_STARTING], 1);
}

static void test_an_end_without_memory(void **state)
{
	struct daemon *d = *state;
	struct run *run = new_run(d, 1), *other = new_run(d, 2);

	no_memory = true;
	assert_int_equal(lifecycle_move(d, run, RUN_FAILED, "no_memory: at all"), 0);
	assert_int_equal(run->state, RUN_FAILED);
	assert_ptr_equal(queue_find(d->queue, 1), run);
	lifecycle_retry(d);
	assert_int_equal(n_written, 0);
	assert_int_equal(n_ended, 0);
	no_memory = false;
	lifecycle_retry(d);
	assert_int_equal(n_written, 1);
	assert_ptr_equal(written[0].run, run);
	assert_int_equal(written[0].state, RUN_FAILED);
	lifecycle_retry(d); /* once is enough */
	assert_int_equal(n_written, 1);
	deliver(0);
	assert_null(queue_find(d->queue, 1));
	assert_ptr_equal(queue_find(d->queue, 2), other);
}

/* As a stop does it: interrupted and queued again; neither may free the run. */
static void test_back_to_the_queue_without_memory(void **state)
{
	struct daemon *d = *state;
	struct run *run = new_run(d, 1);

	assert_int_equal(lifecycle_move(d, run, RUN_STARTING, NULL), 0);
	no_memory = true;
	assert_int_equal(lifecycle_move(d, run, RUN_INTERRUPTED, "daemon_stop: x"), 0);
	assert_true(run->restart);
	assert_int_equal(lifecycle_move(d, run, RUN_QUEUED, "restart: x"), 0);
	no_memory = false;
	lifecycle_retry(d);
	assert_int_equal(n_written, 2);
	assert_int_equal(written[1].state, RUN_QUEUED);
	deliver(0);
	assert_false(lifecycle_stored(run));
	deliver(1);
	assert_true(lifecycle_stored(run));
	assert_ptr_equal(queue_find(d->queue, 1), run);
	assert_int_equal(run->attempt, 2);
	assert_int_equal(n_ended, 0);
}

/* A state that was not written is covered by a later one that is. */
static void test_a_later_state_is_enough(void **state)
{
	struct daemon *d = *state;
	struct run *run = new_run(d, 1);

	no_memory = true;
	assert_int_equal(lifecycle_move(d, run, RUN_STARTING, NULL), 0);
	no_memory = false;
	assert_int_equal(lifecycle_move(d, run, RUN_RUNNING, NULL), 0);
	lifecycle_retry(d);
	assert_int_equal(n_written, 1);
	assert_int_equal(written[0].state, RUN_RUNNING);
	deliver(0);
}

/* Who waits for an end that cannot be written is told at once. */
static void test_an_end_while_the_store_fails(void **state)
{
	struct daemon *d = *state;
	struct run *run = new_run(d, 1);

	store_fails = true;
	assert_int_equal(lifecycle_move(d, run, RUN_STARTING, NULL), 0);
	assert_int_equal(n_told, 0);
	assert_int_equal(lifecycle_move(d, run, RUN_CANCELLED, NULL), 0);
	assert_int_equal(n_told, 1);
	deliver(0);
	deliver(1);
	assert_int_equal(n_settled, 1);
}

static void test_what_is_not_allowed(void **state)
{
	struct daemon *d = *state;
	struct run *run = new_run(d, 1);

	assert_int_equal(lifecycle_move(d, run, RUN_DONE, NULL), -EINVAL);
	assert_int_equal(run->state, RUN_QUEUED);
	assert_int_equal(n_written, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_forgotten_when_durable, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_an_end_that_is_given_up, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_an_end_without_memory, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_back_to_the_queue_without_memory, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_later_state_is_enough, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_an_end_while_the_store_fails, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_what_is_not_allowed, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
