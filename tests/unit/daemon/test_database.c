/* The database by itself: wherever its write-ahead log ends, each commit before that is there. */
#include <fcntl.h>

#include <sqlite3.h>

#include "daemon/store/database.h"
#include "proto/state_files.h"
#include "tests/unit/test.h"

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
	assert_int_equal(
		sqlite3_exec(db, "pragma page_size = 512; vacuum", NULL, NULL, NULL), SQLITE_OK);
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

TEST_MAIN(cmocka_unit_test(test_log_cut_anywhere))
