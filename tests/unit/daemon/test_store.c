/*
 * The store by itself: commits, reopening, a writer that is killed.
 */
#include <signal.h>
#include <sys/wait.h>

#include "tests/unit/daemon/store_fixture.h"
#include "tests/unit/test.h"

static const char *at(json_t *array, size_t i, const char *key)
{
	return json_string_value(json_object_get(json_array_get(array, i), key));
}

static void test_submit_and_reopen(void **state)
{
	struct store_fixture *f = *state;
	struct store *s = store_fixture_open(f);
	int64_t n = (int64_t)spec_segments(f->spec);
	json_t *shown, *segments;

	assert_int_equal(store_start(s), 0);
	assert_int_equal(store_fixture_submit(s, f), 1);
	assert_int_equal(store_fixture_submit(s, f), 2);
	assert_int_equal(store_close(s), 0);

	s = store_fixture_open(f);
	assert_int_equal(store_start(s), 0);
	assert_int_equal(store_fixture_submit(s, f), 3);
	shown = store_fixture_show(s, 2, 0, 1000);
	segments = json_object_get(shown, "segments");
	assert_int_equal((int64_t)json_array_size(segments), n);
	assert_string_equal(at(segments, 0, "state"), "waiting");
	assert_true(json_is_null(json_object_get(shown, "next")));
	assert_true(json_is_object(json_object_get(shown, "spec")));
	json_decref(shown);
	/* a page */
	shown = store_fixture_show(s, 2, 0, 3);
	assert_int_equal(json_array_size(json_object_get(shown, "segments")), 3);
	assert_int_equal(json_integer_value(json_object_get(shown, "next")), 3);
	json_decref(shown);
	shown = store_fixture_show(s, 2, 3, 1000);
	assert_int_equal((int64_t)json_array_size(json_object_get(shown, "segments")), n - 3);
	json_decref(shown);
	assert_int_equal(store_close(s), 0);
}

static void test_no_such_run(void **state)
{
	struct store *s = store_fixture_open(*state);
	struct store_outcome o = {0};

	assert_int_equal(store_start(s), 0);
	record_show(s, "/state", 5, -1, 10, store_fixture_answered, &o);
	store_fixture_wait(s, &o);
	assert_int_equal(o.rc, -ENOENT);
	assert_null(o.result);
	assert_int_equal(store_close(s), 0);
}

static void move(struct store *s, struct run *run, enum run_state to, const char *reason)
{
	struct store_outcome o = {0};

	assert_int_equal(run_transition(run, to, reason, 5), 0);
	record_transition(s, run, store_fixture_moved, &o);
	store_fixture_wait(s, &o);
	assert_int_equal(o.rc, 0);
}

static void test_transitions(void **state)
{
	struct store_fixture *f = *state;
	struct store *s = store_fixture_open(f);
	struct run run = store_fixture_run(f);
	struct record_segment training = {.segment = 0, .state = "training", .dir = "/d"};
	struct record_segment done = {.segment = 0, .state = "done", .summary = "{\"x\": 1}"};
	struct record_segment second = {.segment = 1, .state = "training"};
	int64_t counts[RUN_STATES];
	json_t *shown, *rows;

	assert_int_equal(store_start(s), 0);
	run.id = training.run = done.run = second.run = store_fixture_submit(s, f);
	move(s, &run, RUN_STARTING, NULL);
	record_segment(s, &training, NULL, NULL);
	move(s, &run, RUN_RUNNING, NULL);
	record_segment(s, &done, NULL, NULL);
	record_segment(s, &second, NULL, NULL);
	move(s, &run, RUN_FAILED, "enospc: no");
	/* late news of a run that has ended does not change its other segments */
	shown = store_fixture_show(s, run.id, -1, 1000);
	rows = json_object_get(shown, "segments");
	assert_string_equal(at(rows, 0, "state"), "done");
	assert_string_equal(at(rows, 1, "state"), "failed");
	assert_string_equal(at(rows, 2, "state"), "skipped");
	assert_int_equal(json_integer_value(json_object_get(
				 json_object_get(json_array_get(rows, 0), "summary"), "x")),
		1);
	rows = json_object_get(shown, "transitions");
	assert_int_equal(json_array_size(rows), 4);
	assert_string_equal(at(rows, 3, "state"), "failed");
	assert_string_equal(at(rows, 3, "reason"), "enospc: no");
	rows = json_object_get(shown, "run");
	assert_int_equal(json_integer_value(json_object_get(rows, "segments_done")), 1);
	json_decref(shown);
	assert_int_equal(store_close(s), 0);

	s = store_fixture_open(f);
	assert_int_equal(record_counts(s, counts), 0);
	assert_int_equal(counts[RUN_FAILED], 1);
	assert_int_equal(counts[RUN_QUEUED], 0);
	assert_int_equal(store_close(s), 0);
}

/* A writer reports each committed id through a pipe and is killed in the middle: all of them are
 * there. */
static void test_killed_writer(void **state)
{
	struct store_fixture *f = *state;
	int64_t id, last = 0, counts[RUN_STATES];
	struct store *s;
	int fds[2];
	pid_t pid;

	for (int round = 0; round < 5; round++) {
		assert_int_equal(pipe(fds), 0);
		pid = fork();
		if (pid == 0) {
			close(fds[0]);
			s = store_fixture_open(f);
			store_start(s);
			for (;;) {
				id = store_fixture_submit(s, f);
				if (write(fds[1], &id, sizeof(id)) != sizeof(id))
					_exit(1);
			}
		}
		close(fds[1]);
		for (int i = 0; i < 20 * (round + 1); i++)
			if (read(fds[0], &id, sizeof(id)) == sizeof(id))
				last = id;
		kill(pid, SIGKILL);
		while (read(fds[0], &id, sizeof(id)) == sizeof(id))
			last = id;
		close(fds[0]);
		waitpid(pid, NULL, 0);
		s = store_fixture_open(f);
		assert_int_equal(record_counts(s, counts), 0);
		/* one more may have been committed and not yet reported */
		assert_in_range(counts[RUN_QUEUED], last, last + round + 1);
		assert_int_equal(store_close(s), 0);
	}
}

TEST_MAIN(STORE_FIXTURE_TEST(test_submit_and_reopen), STORE_FIXTURE_TEST(test_no_such_run),
	STORE_FIXTURE_TEST(test_transitions), STORE_FIXTURE_TEST(test_killed_writer))
