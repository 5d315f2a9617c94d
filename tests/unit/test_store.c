/*
 * The store by itself: commits, reopening, a writer that is killed, schema versions, a full disk.
 */
#include <setjmp.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/record.h"
#include "daemon/store.h"
#include "proto/spec.h"

static const char text[] =
	"{\"name\": \"x\", \"model\": \"nano\", \"data\": {\"kind\": \"synthetic\"},"
	" \"seq_len\": 8,"
	" \"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": 1,"
	" \"work\": {\"optimizer_steps\": 2, \"warmup_steps\": 0},"
	" \"arms\": {\"a\": {}, \"b\": {\"seed\": 2}}, \"design\": {\"repetitions\": 2}}";

struct fixture {
	char folder[64], path[96];
	struct spec *spec;
	char *canonical;
};

/* No file of this process may grow beyond that; RLIM_INFINITY: as far as was allowed at first. */
static void limit_files(rlim_t bytes)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct spec_options options = {.world = 1};
	struct spec_errors *errors = calloc(1, sizeof(*errors));

	/* a test that failed may have left the limit of test_disk_full */
	limit_files(RLIM_INFINITY);
	signal(SIGXFSZ, SIG_IGN);
	strcpy(f->folder, "/tmp/test_store.XXXXXX");
	assert_non_null(mkdtemp(f->folder));
	snprintf(f->path, sizeof(f->path), "%s/db", f->folder);
	if (spec_parse(text, strlen(text), &options, &f->spec, errors) != 0)
		fail_msg("%s: %s", errors->error[0].key, errors->error[0].message);
	f->canonical = spec_canonical(f->spec);
	free(errors);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	static const char *const names[] = {"db", "db-wal", "db-shm"};
	char path[128];

	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s", f->folder, names[i]);
		unlink(path);
	}
	rmdir(f->folder);
	free(f->canonical);
	spec_free(f->spec);
	free(f);
	return 0;
}

static struct store *open_store(const struct fixture *f)
{
	struct store *s = NULL;
	char error[256] = "";

	if (store_open(f->path, &s, error, sizeof(error)) != 0)
		fail_msg("%s", error);
	return s;
}

static void wait_and_deliver(struct store *s)
{
	struct pollfd p = {.fd = store_fd(s), .events = POLLIN};

	assert_int_equal(poll(&p, 1, 30000), 1);
	store_deliver(s);
}

struct outcome {
	int called, rc;
	json_t *result;
};

static void on_done(void *arg, int rc)
{
	struct outcome *o = arg;

	o->called++;
	o->rc = rc;
}

static void on_moved(void *arg, struct run *run, enum run_state state, int rc)
{
	on_done(arg, rc);
}

static void on_json(void *arg, int rc, json_t *result)
{
	on_done(arg, rc);
	((struct outcome *)arg)->result = result;
}

static void wait_for(struct store *s, const struct outcome *o)
{
	while (!o->called)
		wait_and_deliver(s);
}

static struct run new_run(const struct fixture *f)
{
	struct run run = {.state = RUN_QUEUED, .attempt = 1, .gpus = 1, .submitted_ns = 1};

	strcpy(run.name, f->spec->name);
	strcpy(run.spec_sha256, "abc");
	run.segments = (int64_t)design_count(f->spec);
	return run;
}

static int64_t submit(struct store *s, const struct fixture *f)
{
	struct run run = new_run(f);
	struct outcome o = {0};

	assert_int_equal(record_submit(s, &run, f->spec, f->canonical, "[]", on_done, &o), 0);
	wait_for(s, &o);
	assert_int_equal(o.rc, 0);
	return run.id;
}

static json_t *show(struct store *s, int64_t id, int64_t after, int64_t limit)
{
	struct outcome o = {0};

	assert_int_equal(record_show(s, "/state", id, after, limit, on_json, &o), 0);
	wait_for(s, &o);
	assert_int_equal(o.rc, 0);
	return o.result;
}

static const char *at(json_t *array, size_t i, const char *key)
{
	return json_string_value(json_object_get(json_array_get(array, i), key));
}

static void test_submit_and_reopen(void **state)
{
	struct fixture *f = *state;
	struct store *s = open_store(f);
	int64_t n = (int64_t)design_count(f->spec);
	json_t *shown, *segments;

	assert_int_equal(store_start(s), 0);
	assert_int_equal(submit(s, f), 1);
	assert_int_equal(submit(s, f), 2);
	assert_int_equal(store_close(s), 0);

	s = open_store(f);
	assert_int_equal(store_start(s), 0);
	assert_int_equal(submit(s, f), 3);
	shown = show(s, 2, -1, 1000);
	segments = json_object_get(shown, "segments");
	assert_int_equal((int64_t)json_array_size(segments), n);
	assert_string_equal(at(segments, 0, "state"), "waiting");
	assert_true(json_is_null(json_object_get(shown, "next")));
	assert_true(json_is_object(json_object_get(shown, "spec")));
	json_decref(shown);
	/* a page */
	shown = show(s, 2, -1, 3);
	assert_int_equal(json_array_size(json_object_get(shown, "segments")), 3);
	assert_int_equal(json_integer_value(json_object_get(shown, "next")), 2);
	json_decref(shown);
	shown = show(s, 2, 2, 1000);
	assert_int_equal((int64_t)json_array_size(json_object_get(shown, "segments")), n - 3);
	json_decref(shown);
	assert_int_equal(store_close(s), 0);
}

static void test_no_such_run(void **state)
{
	struct store *s = open_store(*state);
	struct outcome o = {0};

	assert_int_equal(store_start(s), 0);
	assert_int_equal(record_show(s, "/state", 5, -1, 10, on_json, &o), 0);
	wait_for(s, &o);
	assert_int_equal(o.rc, -ENOENT);
	assert_null(o.result);
	assert_int_equal(store_close(s), 0);
}

static void move(struct store *s, struct run *run, enum run_state to, const char *reason)
{
	struct outcome o = {0};

	assert_int_equal(run_transition(run, to, reason, 5), 0);
	assert_int_equal(record_transition(s, run, on_moved, &o), 0);
	wait_for(s, &o);
	assert_int_equal(o.rc, 0);
}

static void test_transitions(void **state)
{
	struct fixture *f = *state;
	struct store *s = open_store(f);
	struct run run = new_run(f);
	struct record_segment training = {.segment = 0, .state = "training", .dir = "/d"};
	struct record_segment done = {.segment = 0, .state = "done", .summary = "{\"x\": 1}"};
	struct record_segment second = {.segment = 1, .state = "training"};
	int64_t counts[RUN_STATES];
	json_t *shown, *rows;

	assert_int_equal(store_start(s), 0);
	run.id = training.run = done.run = second.run = submit(s, f);
	move(s, &run, RUN_STARTING, NULL);
	assert_int_equal(record_segment(s, &training), 0);
	move(s, &run, RUN_RUNNING, NULL);
	assert_int_equal(record_segment(s, &done), 0);
	assert_int_equal(record_segment(s, &second), 0);
	move(s, &run, RUN_FAILED, "enospc: no");
	/* late news of a run that has ended does not change its other segments */
	shown = show(s, run.id, -1, 1000);
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

	s = open_store(f);
	assert_int_equal(record_counts(s, counts), 0);
	assert_int_equal(counts[RUN_FAILED], 1);
	assert_int_equal(counts[RUN_QUEUED], 0);
	assert_int_equal(store_close(s), 0);
}

/* A writer reports each committed id through a pipe and is killed in the middle: all of them are
 * there. */
static void test_killed_writer(void **state)
{
	struct fixture *f = *state;
	int64_t id, last = 0, counts[RUN_STATES];
	struct store *s;
	int fds[2];
	pid_t pid;

	for (int round = 0; round < 5; round++) {
		assert_int_equal(pipe(fds), 0);
		pid = fork();
		if (pid == 0) {
			close(fds[0]);
			s = open_store(f);
			store_start(s);
			for (;;) {
				id = submit(s, f);
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
		s = open_store(f);
		assert_int_equal(record_counts(s, counts), 0);
		/* one more may have been committed and not yet reported */
		assert_in_range(counts[RUN_QUEUED], last, last + round + 1);
		assert_int_equal(store_close(s), 0);
	}
}

/* A schema of another gpt2d is refused by name: a newer one, and one that never was. */
static void refused_schema(struct fixture *f, int64_t version, const char *says)
{
	struct store *s = open_store(f), *again = NULL;
	char error[256];

	assert_int_equal(
		store_sql(store_db(s), NULL, NULL, "update schema set version = ?", "i", version),
		0);
	assert_int_equal(store_close(s), 0);
	assert_int_equal(store_open(f->path, &again, error, sizeof(error)), -EPROTO);
	assert_null(again);
	assert_non_null(strstr(error, says));
}

static void test_newer_schema(void **state)
{
	refused_schema(*state, STORE_SCHEMA + 1, "schema 4, this gpt2d knows 3");
}

static void test_negative_schema(void **state)
{
	refused_schema(*state, -1, "schema -1, this gpt2d knows 3");
}

/* A job that fails by itself takes no other of its transaction with it. */
struct odd_job {
	struct store_job job;
	const char *sql;
	struct outcome outcome;
};

static int odd_work(struct store_job *job, struct sqlite3 *db)
{
	int rc = store_sql(db, NULL, NULL, ((struct odd_job *)job)->sql, "");

	return rc < 0 ? -EINVAL : 0;
}

static void odd_done(struct store_job *job, int rc)
{
	on_done(&((struct odd_job *)job)->outcome, rc);
}

static void test_one_job_fails_alone(void **state)
{
	struct store *s = open_store(*state);
	struct odd_job jobs[3] = {
		{.sql = "create table t(x)"},
		{.sql = "insert into nowhere values(1)"},
		{.sql = "insert into t values(1)"},
	};

	for (int i = 0; i < 3; i++) {
		jobs[i].job = (struct store_job){.work = odd_work, .done = odd_done};
		store_add(s, &jobs[i].job);
	}
	assert_int_equal(store_start(s), 0);
	wait_for(s, &jobs[2].outcome);
	assert_int_equal(jobs[0].outcome.rc, 0);
	assert_int_equal(jobs[1].outcome.rc, -EINVAL);
	assert_int_equal(jobs[2].outcome.rc, 0);
	assert_true(store_idle(s));
	assert_int_equal(store_close(s), 0);
}

/*
 * No file may grow: a submission is refused, a transition waits and is durable once there is room
 * again, without anybody asking for it.
 */
static void test_disk_full(void **state)
{
	struct fixture *f = *state;
	struct store *s = open_store(f);
	struct run run = new_run(f), other = new_run(f);
	struct outcome kept = {0}, refused = {0};
	int64_t counts[RUN_STATES];
	json_t *shown;

	assert_int_equal(store_start(s), 0);
	run.id = submit(s, f);
	limit_files(100);
	assert_int_equal(run_transition(&run, RUN_STARTING, NULL, 5), 0);
	assert_int_equal(record_transition(s, &run, on_moved, &kept), 0);
	assert_int_equal(
		record_submit(s, &other, f->spec, f->canonical, "[]", on_done, &refused), 0);
	wait_for(s, &refused);
	assert_int_equal(refused.rc, -EFBIG);
	assert_int_equal(kept.called, 0);
	assert_false(store_idle(s));
	assert_true(store_failing(s));
	shown = show(s, 1, -1, 10); /* questions are answered meanwhile */
	assert_string_equal(
		json_string_value(json_object_get(json_object_get(shown, "run"), "state")),
		"queued");
	json_decref(shown);
	assert_int_equal(kept.called, 0);
	limit_files(RLIM_INFINITY);
	wait_for(s, &kept);
	assert_int_equal(kept.rc, 0);
	assert_false(store_failing(s));
	assert_int_equal(submit(s, f), 2);
	assert_int_equal(store_close(s), 0);

	s = open_store(f);
	assert_int_equal(record_counts(s, counts), 0);
	assert_int_equal(counts[RUN_STARTING], 1);
	assert_int_equal(counts[RUN_QUEUED], 1);
	assert_int_equal(store_close(s), 0);
}

/* Closed while the disk is still full: it says that something was lost, and does not hang. */
static void test_disk_full_at_the_end(void **state)
{
	struct fixture *f = *state;
	struct store *s = open_store(f);
	struct run run = new_run(f);
	struct outcome lost = {0};

	assert_int_equal(store_start(s), 0);
	run.id = submit(s, f);
	limit_files(100);
	assert_int_equal(run_transition(&run, RUN_STARTING, NULL, 5), 0);
	assert_int_equal(record_transition(s, &run, on_moved, &lost), 0);
	assert_int_equal(store_close(s), -EIO);
	limit_files(RLIM_INFINITY);
	assert_int_equal(lost.called, 1);
	assert_true(lost.rc < 0);
}

/* Whoever is refused because of the disk may at once ask whether the disk is the reason. */
static atomic_bool disk_is_full;

static int full_work(struct store_job *job, struct sqlite3 *db)
{
	return atomic_load(&disk_is_full) ? -ENOSPC : 0;
}

static void test_refused_knows_why(void **state)
{
	enum { REFUSED = 20000 };
	struct store *s = open_store(*state);
	struct odd_job must = {.job = {.must = true, .work = full_work, .done = odd_done}};
	struct odd_job *refused = calloc(REFUSED, sizeof(*refused));

	assert_non_null(refused);
	atomic_store(&disk_is_full, true);
	store_add(s, &must.job);
	for (int i = 0; i < REFUSED; i++) {
		refused[i].job = (struct store_job){.work = full_work, .done = odd_done};
		store_add(s, &refused[i].job);
	}
	assert_int_equal(store_start(s), 0);
	wait_for(s, &refused[0].outcome);
	assert_true(store_failing(s));
	assert_int_equal(refused[0].outcome.rc, -ENOSPC);
	wait_for(s, &refused[REFUSED - 1].outcome);
	assert_true(store_failing(s));
	assert_int_equal(must.outcome.called, 0);
	atomic_store(&disk_is_full, false);
	wait_for(s, &must.outcome);
	assert_int_equal(must.outcome.rc, 0);
	assert_false(store_failing(s));
	assert_int_equal(store_close(s), 0);
	free(refused);
}

/* While a transition waits for room each submission is tried, not refused unseen. */
static void test_submit_tries_by_itself(void **state)
{
	struct fixture *f = *state;
	struct store *s = open_store(f);
	struct run run = new_run(f), other = new_run(f);
	struct outcome kept = {0}, tried = {0};
	struct store_failure failure;

	assert_int_equal(store_start(s), 0);
	assert_false(store_failure(s, &failure));
	run.id = submit(s, f);
	limit_files(100);
	assert_int_equal(run_transition(&run, RUN_STARTING, NULL, 5), 0);
	assert_int_equal(record_transition(s, &run, on_moved, &kept), 0);
	while (!store_failure(s, &failure))
		wait_and_deliver(s);
	assert_int_equal(failure.rc, -EFBIG);
	assert_string_equal(failure.path, f->path);
	assert_true(failure.since_ns > 0);
	assert_non_null(strstr(failure.advice, "make room on /"));
	limit_files(RLIM_INFINITY);
	/* of both jobs the first that comes back takes the other along */
	assert_int_equal(record_submit(s, &other, f->spec, f->canonical, "[]", on_done, &tried), 0);
	wait_for(s, &tried);
	assert_int_equal(tried.rc, 0);
	assert_int_equal(kept.called, 1);
	assert_int_equal(kept.rc, 0);
	assert_false(store_failing(s));
	assert_int_equal(store_close(s), 0);
}

/* Nothing is committed to files that have no name any more. */
static void test_files_taken_away(void **state)
{
	static const char *const suffixes[] = {"", "-wal"};
	struct fixture *f = *state;

	for (int i = 0; i < 2; i++) {
		struct store *s = open_store(f);
		struct run run = new_run(f);
		struct outcome o = {0};
		char path[128], moved[160];

		assert_int_equal(store_start(s), 0);
		submit(s, f);
		snprintf(path, sizeof(path), "%s%s", f->path, suffixes[i]);
		snprintf(moved, sizeof(moved), "%s.moved", path);
		assert_int_equal(rename(path, moved), 0);
		assert_int_equal(
			record_submit(s, &run, f->spec, f->canonical, "[]", on_done, &o), 0);
		wait_for(s, &o);
		assert_int_equal(o.rc, -ESTALE);
		assert_int_equal(rename(moved, path), 0);
		submit(s, f);
		assert_int_equal(store_close(s), 0);
	}
}

/* A file system without shared memory of files, as SQLite sees it. */
static void test_no_write_ahead_log(void **state)
{
	struct fixture *f = *state;
	struct store *s = NULL;
	sqlite3_vfs *standard = sqlite3_vfs_find(NULL), *other = sqlite3_vfs_find("unix-dotfile");
	char error[512] = "";

	assert_non_null(other);
	sqlite3_vfs_register(other, 1);
	assert_int_equal(store_open(f->path, &s, error, sizeof(error)), -ENOTSUP);
	sqlite3_vfs_register(standard, 1);
	assert_null(s);
	assert_non_null(strstr(error, "journal mode \"delete\", \"wal\" is needed: /"));
}

struct big_write {
	struct store_job job;
	bool written;
};

static void on_written(struct store_job *job, int rc)
{
	assert_int_equal(rc, 0);
	((struct big_write *)job)->written = true;
}

/* A row of 400,000 bytes: some hundred pages. */
static int write_much(struct store_job *job, struct sqlite3 *db)
{
	return store_sql(db, NULL, NULL,
		"insert into transitions(run, at_ns, state, reason)"
		" values(1, 1, 'queued', zeroblob(400000))",
		"");
}

static void write_rows(struct store *s, int rows)
{
	for (int i = 0; i < rows; i++) {
		struct big_write j = {
			{.kind = STORE_WRITE, .work = write_much, .done = on_written}, false};

		store_add(s, &j.job);
		while (!j.written)
			wait_and_deliver(s);
	}
}

static int64_t file_bytes(const char *path, const char *suffix)
{
	char name[128];
	struct stat st;

	snprintf(name, sizeof(name), "%s%s", path, suffix);
	assert_int_equal(stat(name, &st), 0);
	return st.st_size;
}

/* Writes that never pause: the log is written over from its start again and again. */
static void test_log_is_bounded(void **state)
{
	struct fixture *f = *state;
	struct store *s = open_store(f);
	struct outcome submitted = {0};
	struct run run = new_run(f);

	assert_int_equal(store_start(s), 0);
	assert_int_equal(
		record_submit(s, &run, f->spec, f->canonical, "[]", on_done, &submitted), 0);
	wait_for(s, &submitted);
	write_rows(s, 150);
	assert_true(file_bytes(f->path, "") > 40 * 400000);
	assert_in_range(file_bytes(f->path, "-wal"), 10 << 20, 20 << 20);
	assert_int_equal(store_close(s), 0);
}

/* A log of middling size is not left to itself when there is nothing more to do. */
static void test_log_is_emptied_at_rest(void **state)
{
	struct fixture *f = *state;
	struct store *s = open_store(f);
	struct outcome submitted = {0};
	struct run run = new_run(f);
	struct timespec moment = {.tv_nsec = 20000000};

	assert_int_equal(store_start(s), 0);
	assert_int_equal(
		record_submit(s, &run, f->spec, f->canonical, "[]", on_done, &submitted), 0);
	wait_for(s, &submitted);
	write_rows(s, 15);
	for (int i = 0; i < 3000 && file_bytes(f->path, "") < 15 * 400000; i++)
		nanosleep(&moment, NULL);
	assert_true(file_bytes(f->path, "") >= 15 * 400000);
	assert_int_equal(store_close(s), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_submit_and_reopen, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_no_such_run, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_transitions, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_killed_writer, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_newer_schema, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_negative_schema, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_one_job_fails_alone, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_refused_knows_why, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_disk_full, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_disk_full_at_the_end, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_submit_tries_by_itself, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_files_taken_away, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_no_write_ahead_log, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_log_is_bounded, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_log_is_emptied_at_rest, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
