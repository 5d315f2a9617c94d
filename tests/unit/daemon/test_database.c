/*
 * The database by itself: the file of its write-ahead log is made long beforehand, and what lies
 * behind the last commit is nothing.
 */
#include <setjmp.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "daemon/store/database.h"
#include "daemon/store/lock_holders.h"
#include "proto/state_files.h"
#include "tests/unit/daemon/store_fixture.h"

enum { FULL_BYTES = DATABASE_WAL_FULL * 4096, MANY = 100 };

static int64_t log_bytes(const struct store_fixture *f)
{
	char name[128];
	struct stat st;

	snprintf(name, sizeof(name), "%s-wal", f->path);
	assert_int_equal(stat(name, &st), 0);
	return st.st_size;
}

static void open_database(struct database *d, const char *path)
{
	char error[512] = "";

	*d = (struct database){0};
	if (database_open(d, path, error, sizeof(error)) < 0)
		fail_msg("%s", error);
}

static void commit(struct database *d)
{
	assert_int_equal(
		sqlite3_exec(d->handle, "insert into holds values(hex(randomblob(9)), 1, 1, '')",
			NULL, NULL, NULL),
		SQLITE_OK);
}

static int64_t commits(struct database *d)
{
	sqlite3_stmt *stmt;
	int64_t n;

	assert_int_equal(
		sqlite3_prepare_v2(d->handle, "select count(*) from holds", -1, &stmt, NULL),
		SQLITE_OK);
	assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
	n = sqlite3_column_int64(stmt, 0);
	sqlite3_finalize(stmt);
	return n;
}

static bool has_room(const struct store_fixture *f)
{
	struct statvfs disk;

	assert_int_equal(statvfs(f->folder, &disk), 0);
	return disk.f_bavail > (UINT64_C(66) * FULL_BYTES) / disk.f_frsize;
}

static void reserve(struct database *d)
{
	for (int i = 0; i < 20 && !d->reserved; i++)
		database_reserve(d);
	assert_true(d->reserved);
}

/* What a process that is killed leaves, under another name. */
static void copy(const struct store_fixture *f, const char *to)
{
	static const char *const suffixes[] = {"", "-wal"};
	char from[128], name[160], *bytes = malloc(1 << 20);
	ssize_t n;
	int in, out;

	assert_non_null(bytes);
	for (int i = 0; i < 2; i++) {
		snprintf(from, sizeof(from), "%s%s", f->path, suffixes[i]);
		snprintf(name, sizeof(name), "%s%s", to, suffixes[i]);
		in = open(from, O_RDONLY);
		out = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
		assert_true(in >= 0 && out >= 0);
		while ((n = read(in, bytes, 1 << 20)) > 0)
			assert_int_equal(write(out, bytes, (size_t)n), n);
		close(in);
		close(out);
	}
	free(bytes);
}

static void test_log_does_not_grow(void **state)
{
	struct store_fixture *f = *state;
	struct database d, after;
	char killed[128];
	int64_t bytes;

	if (!has_room(f))
		skip();
	open_database(&d, f->path);
	commit(&d);
	reserve(&d);
	bytes = log_bytes(f);
	assert_in_range(bytes, FULL_BYTES, FULL_BYTES + (4 << 20));
	for (int i = 1; i < MANY; i++)
		commit(&d);
	assert_int_equal(log_bytes(f), bytes);
	snprintf(killed, sizeof(killed), "%s/killed", f->folder);
	for (int round = 0; round < 2; round++) {
		copy(f, killed);
		open_database(&after, killed);
		assert_int_equal(commits(&after), MANY + round);
		commit(&after);
		assert_int_equal(commits(&after), MANY + round + 1);
		database_close(&after);
		/* once more, when the log has begun anew before older pages */
		database_checkpoint(&d, 1);
		commit(&d);
	}
	database_close(&d);
	assert_int_equal(unlink(killed), 0);
}

static char *read_all(const char *path, size_t *bytes)
{
	struct stat st;
	int fd = open(path, O_RDONLY);
	char *at;

	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	*bytes = (size_t)st.st_size;
	at = malloc(*bytes + 1);
	assert_non_null(at);
	assert_int_equal(read(fd, at, *bytes), st.st_size);
	close(fd);
	return at;
}

static void write_all(const char *path, const char *at, size_t bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, at, bytes), (ssize_t)bytes);
	close(fd);
}

/* Opened again with the first cut bytes of its log. */
static int64_t commits_of(const char *path, const char *wal, size_t cut)
{
	char log[160], shared[160];
	struct database d;
	int64_t n;

	snprintf(log, sizeof(log), "%s-wal", path);
	snprintf(shared, sizeof(shared), "%s-shm", path);
	write_all(log, wal, cut);
	unlink(shared);
	open_database(&d, path);
	n = commits(&d);
	database_close(&d);
	return n;
}

/* An empty database of small pages, so that its log is short. */
static void make_small(const char *path)
{
	sqlite3 *db;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "pragma page_size = 512; vacuum", NULL, NULL, NULL),
		SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* In memory where there is such a folder: each cut is opened, and closed with a sync. */
static void make_folder(char folder[64])
{
	strcpy(folder, "/dev/shm/gpt2d-test-XXXXXX");
	if (mkdtemp(folder) != NULL)
		return;
	strcpy(folder, "/tmp/gpt2d-test-XXXXXX");
	assert_non_null(mkdtemp(folder));
}

/*
 * Case H6: wherever the log ends, what was committed in that part is there, and no more. At every
 * byte of it.
 */
static void test_log_cut_anywhere(void **state)
{
	enum { COMMITS = 3 };
	char folder[64], path[96], log[112], killed[96], *db, *wal;
	size_t db_bytes, wal_bytes, ends[COMMITS];
	struct database d;
	int64_t expected;

	make_folder(folder);
	snprintf(path, sizeof(path), "%s/" STATE_DATABASE, folder);
	snprintf(log, sizeof(log), "%s-wal", path);
	snprintf(killed, sizeof(killed), "%s/killed", folder);
	make_small(path);
	open_database(&d, path);
	database_close(&d); /* the log that the tables came in goes */
	open_database(&d, path);
	for (int i = 0; i < COMMITS; i++) {
		commit(&d);
		free(read_all(log, &ends[i]));
		assert_true(i == 0 || ends[i] > ends[i - 1]);
	}
	db = read_all(path, &db_bytes);
	wal = read_all(log, &wal_bytes);
	assert_in_range(ends[COMMITS - 1], 1, 1 << 16);
	database_close(&d);
	for (size_t cut = 0; cut <= wal_bytes; cut++) {
		expected = 0;
		for (int k = 0; k < COMMITS; k++)
			expected += ends[k] <= cut;
		write_all(killed, db, db_bytes);
		if (commits_of(killed, wal, cut) != expected)
			fail_msg("cut after %zu bytes of %zu: not %lld commits", cut, wal_bytes,
				(long long)expected);
	}
	free(db);
	free(wal);
	assert_int_equal(unlink(killed), 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(folder), 0);
}

/* A limit is no error: there is less beforehand, and commits go on. */
static void test_no_room_beforehand(void **state)
{
	struct store_fixture *f = *state;
	struct database d;

	open_database(&d, f->path);
	commit(&d);
	store_fixture_limit(1 << 20);
	reserve(&d);
	for (int i = 1; i < MANY; i++)
		commit(&d);
	assert_true(log_bytes(f) <= 1 << 20);
	store_fixture_limit(RLIM_INFINITY);
	assert_int_equal(commits(&d), MANY);
	database_close(&d);
}

/* A store does it when it has nothing else to do. */
static void test_store_at_rest(void **state)
{
	struct store_fixture *f = *state;
	struct timespec moment = {.tv_nsec = 20000000};
	struct store *s;

	if (!has_room(f))
		skip();
	s = store_fixture_open(f);
	assert_int_equal(store_start(s), 0);
	store_fixture_submit(s, f);
	for (int i = 0; i < 3000 && log_bytes(f) < 1 << 20; i++)
		nanosleep(&moment, NULL);
	assert_true(log_bytes(f) >= 1 << 20);
	store_fixture_submit(s, f);
	assert_int_equal(store_close(s), 0);
}

/* Where no process is known to have it: the whole path, which is to be copied into a shell. */
static void test_holders_of_a_long_path(void **state)
{
	char path[500], hint[LOCK_HOLDERS_BYTES], want[LOCK_HOLDERS_BYTES];

	memset(path, 'd', sizeof(path));
	path[0] = '/';
	strcpy(path + sizeof(path) - sizeof("/gpt2d.db"), "/gpt2d.db");
	lock_holders_advise(path, hint, sizeof(hint));
	snprintf(want, sizeof(want), "find it with \"fuser -v %s*\", and end it", path);
	assert_string_equal(hint, want);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_log_does_not_grow, store_fixture_set_up, store_fixture_tear_down),
		cmocka_unit_test(test_log_cut_anywhere),
		cmocka_unit_test(test_holders_of_a_long_path),
		cmocka_unit_test_setup_teardown(
			test_no_room_beforehand, store_fixture_set_up, store_fixture_tear_down),
		cmocka_unit_test_setup_teardown(
			test_store_at_rest, store_fixture_set_up, store_fixture_tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
