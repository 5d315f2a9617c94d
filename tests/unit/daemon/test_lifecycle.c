/* Changes of state: who learns of them and when, and that a run leaves memory once its end is
 * durable, not before. */
#include "daemon/config/log.h"
#include "daemon/control/follow.h"
#include "daemon/runs/lifecycle.h"
#include "daemon/runs/queue.h"
#include "daemon/store/record.h"
#include "tests/unit/test.h"

/* ---- what lifecycle.c calls ---- */

struct written {
	struct run *run;
	enum run_state state;
	void (*done)(void *arg, struct run *run, enum run_state state, int rc);
	void *arg;
};

static struct written written[8];
static int n_written, n_ended;

void record_transition(struct store *s, struct run *run,
	void (*done)(void *arg, struct run *run, enum run_state state, int rc), void *arg)
{
	written[n_written++] = (struct written){run, run->state, done, arg};
}

const char *store_error_text(int rc)
{
	return strerror(-rc);
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

void log_write(enum log_level level, const char *format, ...)
{
}

/* ---- tests ---- */

struct fixture {
	struct queue *queue;
	struct lifecycle *lifecycle;
	int64_t counts[RUN_STATES];
	int moved, stored;       /* events */
	enum run_state reported; /* the state at the last one */
};

static void on_changed(void *arg, struct run *run, enum lifecycle_event event)
{
	struct fixture *f = arg;

	f->moved += event == LIFECYCLE_MOVED;
	f->stored += event == LIFECYCLE_STORED;
	f->reported = run->state;
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->queue = queue_create(1);
	f->lifecycle = lifecycle_create(&(struct lifecycle_options){
		.queue = f->queue, .state_dir = "/x", .counts = f->counts});
	lifecycle_observe(f->lifecycle, on_changed, f);
	n_written = n_ended = 0;
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	lifecycle_destroy(f->lifecycle);
	queue_destroy(f->queue);
	free(f);
	return 0;
}

static struct run *new_run(struct fixture *f, int64_t id)
{
	struct run *run = calloc(1, sizeof(*run));

	*run = (struct run){.id = id, .attempt = 1, .restart = true};
	lifecycle_begin(f->lifecycle, run);
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
	struct fixture *f = *state;
	struct run *run = new_run(f, 1);

	assert_int_equal(lifecycle_move(f->lifecycle, run, RUN_STARTING, NULL), 0);
	assert_int_equal(lifecycle_move(f->lifecycle, run, RUN_FAILED, "io: no"), 0);
	assert_int_equal(f->moved, 2);
	assert_int_equal(n_written, 2);
	deliver(0);
	assert_ptr_equal(queue_find(f->queue, 1), run);
	assert_false(lifecycle_stored(run));
	assert_int_equal(run_reported(run), RUN_STARTING);
	assert_int_equal(f->stored, 0);
	deliver(1);
	assert_null(queue_find(f->queue, 1));
	assert_int_equal(f->stored, 1);
	assert_int_equal(f->reported, RUN_FAILED);
	assert_int_equal(n_ended, 1);
	assert_int_equal(f->counts[RUN_FAILED], 1);
	assert_int_equal(f->counts[RUN_STARTING], 0);
}

static void test_a_start_is_stored(void **state)
{
	struct fixture *f = *state;
	struct run *run = new_run(f, 1);

	assert_int_equal(lifecycle_move(f->lifecycle, run, RUN_STARTING, NULL), 0);
	assert_false(lifecycle_stored(run));
	deliver(0);
	assert_true(lifecycle_stored(run));
	assert_int_equal(f->stored, 1);
	assert_int_equal(f->reported, RUN_STARTING);
}

/* As the store is closed while it fails. */
static void test_an_end_that_is_given_up(void **state)
{
	struct fixture *f = *state;
	struct run *run = new_run(f, 1);

	assert_int_equal(lifecycle_move(f->lifecycle, run, RUN_STARTING, NULL), 0);
	assert_int_equal(lifecycle_move(f->lifecycle, run, RUN_FAILED, "io: no"), 0);
	deliver_rc(0, -ENOSPC);
	deliver_rc(1, -ENOSPC);
	assert_ptr_equal(queue_find(f->queue, 1), run);
	assert_int_equal(run_reported(run), RUN_STARTING);
	assert_int_equal(n_ended, 0);
	assert_int_equal(f->stored, 0);
	assert_int_equal(f->counts[RUN_FAILED], 0);
	assert_int_equal(f->counts[RUN_STARTING], 1);
}

/* A stop interrupts a run and queues it again at once: the run is not freed in between. */
static void test_back_to_the_queue(void **state)
{
	struct fixture *f = *state;
	struct run *run = new_run(f, 1);

	assert_int_equal(lifecycle_move(f->lifecycle, run, RUN_STARTING, NULL), 0);
	assert_int_equal(lifecycle_move(f->lifecycle, run, RUN_INTERRUPTED, "daemon_stop: x"), 0);
	assert_int_equal(lifecycle_move(f->lifecycle, run, RUN_QUEUED, "restart: x"), 0);
	for (int i = 0; i < 3; i++)
		deliver(i);
	assert_true(lifecycle_stored(run));
	assert_ptr_equal(queue_find(f->queue, 1), run);
	assert_int_equal(run->attempt, 2);
	assert_int_equal(n_ended, 0);
	assert_int_equal(f->counts[RUN_QUEUED], 1);
}

static void test_what_is_not_allowed(void **state)
{
	struct fixture *f = *state;
	struct run *run = new_run(f, 1);

	assert_int_equal(lifecycle_move(f->lifecycle, run, RUN_DONE, NULL), -EINVAL);
	assert_int_equal(run->state, RUN_QUEUED);
	assert_int_equal(n_written, 0);
	assert_int_equal(f->moved, 0);
}

TEST_MAIN(cmocka_unit_test_setup_teardown(test_forgotten_when_durable, set_up, tear_down),
	cmocka_unit_test_setup_teardown(test_a_start_is_stored, set_up, tear_down),
	cmocka_unit_test_setup_teardown(test_an_end_that_is_given_up, set_up, tear_down),
	cmocka_unit_test_setup_teardown(test_back_to_the_queue, set_up, tear_down),
	cmocka_unit_test_setup_teardown(test_what_is_not_allowed, set_up, tear_down))
