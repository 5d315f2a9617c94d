/*
 * The store when something fails: a job, a full disk, a thread that is silent, files that were
 * removed, a file system without a write-ahead log, or a log that grows.
 */
#include <stdatomic.h>
#include <sys/resource.h>

#include <sqlite3.h>

#include "daemon/store/record.h"
#include "tests/unit/daemon/store_fixture.h"
#include "tests/unit/test.h"

/* A job that fails by itself takes no other of its transaction with it. */
struct odd_job {
	struct store_job job;
	const char *sql;
	struct store_outcome outcome;
};

static int odd_work(struct store_job *job, struct sqlite3 *db)
{
	int rc = store_sql(db, NULL, NULL, ((struct odd_job *)job)->sql, "");

	return rc < 0 ? -EINVAL : 0;
}

static void odd_done(struct store_job *job, int rc)
{
	store_fixture_done(&((struct odd_job *)job)->outcome, rc);
}

static void test_one_job_fails_alone(void **state)
{
	struct store *s = store_fixture_open(*state);
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
	store_fixture_wait(s, &jobs[2].outcome);
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
	struct store_fixture *f = *state;
	struct store *s = store_fixture_open(f);
	struct run run = store_fixture_run(f), other = store_fixture_run(f);
	struct store_outcome kept = {0}, refused = {0};
	int64_t counts[RUN_STATES];
	json_t *shown;

	assert_int_equal(store_start(s), 0);
	run.id = store_fixture_submit(s, f);
	store_fixture_limit(100);
	assert_int_equal(run_transition(&run, RUN_STARTING, NULL, 5), 0);
	record_transition(s, &run, store_fixture_moved, &kept);
	record_submit(s, &other, f->spec, f->canonical, "[]", store_fixture_done, &refused);
	store_fixture_wait(s, &refused);
	assert_int_equal(refused.rc, -EFBIG);
	assert_int_equal(kept.called, 0);
	assert_false(store_idle(s));
	assert_true(store_failing(s));
	shown = store_fixture_show(s, 1, 0, 10); /* questions are answered meanwhile */
	assert_string_equal(
		json_string_value(json_object_get(json_object_get(shown, "run"), "state")),
		"queued");
	json_decref(shown);
	assert_int_equal(kept.called, 0);
	store_fixture_limit(RLIM_INFINITY);
	store_fixture_wait(s, &kept);
	assert_int_equal(kept.rc, 0);
	assert_false(store_failing(s));
	assert_int_equal(store_fixture_submit(s, f), 2);
	assert_int_equal(store_close(s), 0);

	s = store_fixture_open(f);
	assert_int_equal(record_counts(s, counts), 0);
	assert_int_equal(counts[RUN_STARTING], 1);
	assert_int_equal(counts[RUN_QUEUED], 1);
	assert_int_equal(store_close(s), 0);
}

/* Closed while the disk is still full: it says that something was lost, and does not hang. */
static void test_disk_full_at_the_end(void **state)
{
	struct store_fixture *f = *state;
	struct store *s = store_fixture_open(f);
	struct run run = store_fixture_run(f);
	struct store_outcome lost = {0};

	assert_int_equal(store_start(s), 0);
	run.id = store_fixture_submit(s, f);
	store_fixture_limit(100);
	assert_int_equal(run_transition(&run, RUN_STARTING, NULL, 5), 0);
	record_transition(s, &run, store_fixture_moved, &lost);
	assert_int_equal(store_close(s), -EIO);
	store_fixture_limit(RLIM_INFINITY);
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
	struct store *s = store_fixture_open(*state);
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
	store_fixture_wait(s, &refused[0].outcome);
	assert_true(store_failing(s));
	assert_int_equal(refused[0].outcome.rc, -ENOSPC);
	store_fixture_wait(s, &refused[REFUSED - 1].outcome);
	assert_true(store_failing(s));
	assert_int_equal(must.outcome.called, 0);
	atomic_store(&disk_is_full, false);
	store_fixture_wait(s, &must.outcome);
	assert_int_equal(must.outcome.rc, 0);
	assert_false(store_failing(s));
	assert_int_equal(store_close(s), 0);
	free(refused);
}

/* While a transition waits for room each submission is tried, not refused unseen. */
static void test_submit_tries_by_itself(void **state)
{
	struct store_fixture *f = *state;
	struct store *s = store_fixture_open(f);
	struct run run = store_fixture_run(f), other = store_fixture_run(f);
	struct store_outcome kept = {0}, tried = {0};
	struct store_failure failure;

	assert_int_equal(store_start(s), 0);
	assert_false(store_failure(s, &failure));
	run.id = store_fixture_submit(s, f);
	store_fixture_limit(100);
	assert_int_equal(run_transition(&run, RUN_STARTING, NULL, 5), 0);
	record_transition(s, &run, store_fixture_moved, &kept);
	while (!store_failure(s, &failure))
		store_fixture_deliver(s);
	assert_int_equal(failure.rc, -EFBIG);
	assert_string_equal(failure.path, f->path);
	assert_true(failure.since_ns > 0);
	assert_non_null(strstr(failure.advice, "LimitFSIZE="));
	store_fixture_limit(RLIM_INFINITY);
	/* of both jobs the first that comes back takes the other along */
	record_submit(s, &other, f->spec, f->canonical, "[]", store_fixture_done, &tried);
	store_fixture_wait(s, &tried);
	assert_int_equal(tried.rc, 0);
	assert_int_equal(kept.called, 1);
	assert_int_equal(kept.rc, 0);
	assert_false(store_failing(s));
	assert_int_equal(store_close(s), 0);
}

/* A refusal is enough, also where nothing waits to be written: it is over when there is room. */
static void test_failing_ends_by_itself(void **state)
{
	struct store_fixture *f = *state;
	struct store *s = store_fixture_open(f);
	struct run run = store_fixture_run(f);
	struct store_outcome refused = {0};
	struct store_failure failure = {0};

	assert_int_equal(store_start(s), 0);
	store_fixture_submit(s, f);
	store_fixture_limit(100);
	record_submit(s, &run, f->spec, f->canonical, "[]", store_fixture_done, &refused);
	store_fixture_wait(s, &refused);
	assert_int_equal(refused.rc, -EFBIG);
	assert_true(store_failure(s, &failure));
	assert_int_equal(failure.rc, -EFBIG);
	assert_string_equal(failure.path, f->path);
	assert_true(failure.since_ns > 0);
	store_fixture_limit(RLIM_INFINITY);
	while (store_failing(s))
		store_fixture_deliver(s); /* the end wakes the loop */
	assert_int_equal(store_fixture_submit(s, f), 2);
	assert_int_equal(store_close(s), 0);
}

static atomic_bool awake;

static int sleep_work(struct store_job *job, struct sqlite3 *db)
{
	while (!atomic_load(&awake))
		usleep(20000);
	return 0;
}

/* A thread that is busy with one job for too long is failing until it continues. */
static void test_silent_thread(void **state)
{
	struct store_fixture *f = *state;
	struct store *s = store_fixture_open(f);
	struct odd_job sleeper = {
		.job = {.kind = STORE_FILES, .work = sleep_work, .done = odd_done}};
	struct store_failure failure = {0};

	assert_int_equal(store_start(s), 0);
	store_add(s, &sleeper.job);
	while (!store_failure(s, &failure))
		usleep(20000);
	assert_int_equal(failure.rc, -ETIMEDOUT);
	assert_string_equal(failure.path, f->path);
	assert_true(store_busy_s(s) >= STORE_SILENT_S);
	atomic_store(&awake, true);
	store_fixture_wait(s, &sleeper.outcome);
	assert_false(store_failing(s));
	assert_int_equal(store_close(s), 0);
}

/* A job with a fault of its own does not affect the store's condition. */
static void test_own_fault_is_no_failure(void **state)
{
	struct store_fixture *f = *state;
	struct store *s = store_fixture_open(f);
	struct store_outcome o = {0};

	assert_int_equal(store_start(s), 0);
	record_keep(s, 99, true, store_fixture_done, &o);
	store_fixture_wait(s, &o);
	assert_int_equal(o.rc, -ENOENT);
	assert_false(store_failing(s));
	assert_int_equal(store_close(s), 0);
}

/* Nothing is committed to files that have no name any more. */
static void test_files_taken_away(void **state)
{
	static const char *const suffixes[] = {"", "-wal"};
	struct store_fixture *f = *state;

	for (int i = 0; i < 2; i++) {
		struct store *s = store_fixture_open(f);
		struct run run = store_fixture_run(f);
		struct store_outcome o = {0};
		char path[128], moved[160];

		assert_int_equal(store_start(s), 0);
		store_fixture_submit(s, f);
		snprintf(path, sizeof(path), "%s%s", f->path, suffixes[i]);
		snprintf(moved, sizeof(moved), "%s.moved", path);
		assert_int_equal(rename(path, moved), 0);
		record_submit(s, &run, f->spec, f->canonical, "[]", store_fixture_done, &o);
		store_fixture_wait(s, &o);
		assert_int_equal(o.rc, -ESTALE);
		assert_int_equal(rename(moved, path), 0);
		store_fixture_submit(s, f);
		assert_int_equal(store_close(s), 0);
	}
}

/* A file system without shared memory of files, as SQLite sees it. */
static void test_no_write_ahead_log(void **state)
{
	struct store_fixture *f = *state;
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
			store_fixture_deliver(s);
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
	struct store_fixture *f = *state;
	struct store *s = store_fixture_open(f);
	struct store_outcome submitted = {0};
	struct run run = store_fixture_run(f);

	assert_int_equal(store_start(s), 0);
	record_submit(s, &run, f->spec, f->canonical, "[]", store_fixture_done, &submitted);
	store_fixture_wait(s, &submitted);
	write_rows(s, 150);
	assert_true(file_bytes(f->path, "") > 40 * 400000);
	assert_in_range(file_bytes(f->path, "-wal"), 10 << 20, 20 << 20);
	assert_int_equal(store_close(s), 0);
}

TEST_MAIN(STORE_FIXTURE_TEST(test_one_job_fails_alone), STORE_FIXTURE_TEST(test_refused_knows_why),
	STORE_FIXTURE_TEST(test_disk_full), STORE_FIXTURE_TEST(test_disk_full_at_the_end),
	STORE_FIXTURE_TEST(test_submit_tries_by_itself),
	STORE_FIXTURE_TEST(test_failing_ends_by_itself), STORE_FIXTURE_TEST(test_silent_thread),
	STORE_FIXTURE_TEST(test_own_fault_is_no_failure), STORE_FIXTURE_TEST(test_files_taken_away),
	STORE_FIXTURE_TEST(test_no_write_ahead_log), STORE_FIXTURE_TEST(test_log_is_bounded))
