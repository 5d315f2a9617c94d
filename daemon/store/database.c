#include "daemon/store/database.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "proto/host/clock.h"
#include "proto/host/filesystem.h"
#include "daemon/store/lock_holders.h"
#include "daemon/store/store.h"
#include "daemon/store/wal_index.h"

enum {
	MODE_BYTES = 16,
	STEPS_BETWEEN = 10000, /* of SQLite's machine: looks at the clock */
};

static const char *const file_suffixes[DATABASE_FILES] = {"", "-wal"};

static const char schema_1[] =
	"create table schema(version integer not null);"
	"insert into schema values(1);"
	"create table runs("
	" id integer primary key autoincrement, name text not null, uid integer not null,"
	" state text not null, reason text not null, spec text not null,"
	" spec_sha256 text not null, checks text not null, gpus integer not null,"
	" segments integer not null, segments_done integer not null, attempt integer not null,"
	" restart integer not null, timeout_s integer not null, submitted_ns integer not null,"
	" started_ns integer not null, ended_ns integer not null);"
	"create index runs_state on runs(state, id);"
	"create table segments("
	" run integer not null references runs(id), segment integer not null,"
	" block integer not null, position integer not null, arm text not null,"
	" state text not null, reason text not null, started_ns integer not null,"
	" ended_ns integer not null, dir text not null, summary text,"
	" primary key(run, segment)) without rowid;"
	"create table transitions("
	" run integer not null references runs(id), at_ns integer not null,"
	" state text not null, reason text not null);"
	"create index transitions_run on transitions(run);";

/* What engines and gpt2d (rank null) said of a run, n growing. */
static const char schema_2[] =
	"alter table runs add column kept integer not null default 0;"
	"alter table runs add column log_dropped integer not null default 0;"
	"alter table segments add column artifacts text;"
	"create table log("
	" n integer primary key, run integer not null references runs(id), at_ns integer not null,"
	" rank integer, level integer not null, message text not null);"
	"create index log_run on log(run, n);"
	"update schema set version = 2;";

/* holds: what keeps queued runs from starting, named as in hold.h. */
static const char schema_3[] =
	"alter table runs add column priority integer not null default 0;"
	"alter table runs add column rerun_of integer not null default 0;"
	"create table holds("
	" what text primary key, since_ns integer not null, uid integer not null,"
	" reason text not null) without rowid;"
	"update schema set version = 3;";

/* What the last of these leaves, in queries that read nothing. */
static const char runs_query[] =
	"select id, name, uid, state, reason, spec, spec_sha256, checks, gpus, segments,"
	" segments_done, attempt, restart, timeout_s, submitted_ns, started_ns, ended_ns, kept,"
	" log_dropped, priority, rerun_of from runs limit 0";
static const char segments_query[] =
	"select run, segment, block, position, arm, state, reason, started_ns, ended_ns, dir,"
	" summary, artifacts from segments limit 0";
static const char *const table_queries[] = {
	runs_query,
	segments_query,
	"select run, at_ns, state, reason from transitions limit 0",
	"select n, run, at_ns, rank, level, message from log limit 0",
	"select what, since_ns, uid, reason from holds limit 0",
};

/* Step i brings schema i to i + 1. */
static const char *const steps[STORE_SCHEMA] = {schema_1, schema_2, schema_3};

bool database_gone(struct database *d)
{
	char path[PATH_MAX];
	struct stat st;

	for (size_t i = 0; i < DATABASE_FILES; i++) {
		struct database_mark *mark = &d->marks[i];

		snprintf(path, sizeof(path), "%s%s", d->path, file_suffixes[i]);
		if (stat(path, &st) < 0) {
			if (mark->known && (errno == ENOENT || errno == ENOTDIR))
				return true;
		} else if (!mark->known) {
			*mark = (struct database_mark){true, st.st_dev, st.st_ino};
		} else if (mark->device != st.st_dev || mark->inode != st.st_ino) {
			return true;
		}
	}
	return false;
}

static int read_int(sqlite3_stmt *stmt, void *arg)
{
	*(int64_t *)arg = sqlite3_column_int64(stmt, 0);
	return 0;
}

int database_version(sqlite3 *db, int *out, char *error, size_t error_bytes)
{
	int64_t tables = 0, others = 0, version = 0;
	int rc;

	rc = store_sql(db, read_int, &tables,
		"select count(*) from sqlite_master where type = 'table' and name = 'schema'", "");
	if (rc == 0 && tables > 0)
		rc = store_sql(db, read_int, &version, "select version from schema", "");
	else if (rc == 0)
		rc = store_sql(db, read_int, &others, "select count(*) from sqlite_master", "");
	if (rc < 0)
		return rc;
	if (others > 0) {
		snprintf(error, error_bytes, "a database of another program, with no table schema");
		return -EPROTO;
	}
	if (version > STORE_SCHEMA || version < 0) {
		snprintf(error, error_bytes, "schema %lld, this gpt2d knows %d and older ones",
			(long long)version, STORE_SCHEMA);
		return -EPROTO;
	}
	*out = (int)version;
	return 0;
}

int database_tables(sqlite3 *db, char *error, size_t error_bytes)
{
	int rc = 0;

	for (size_t i = 0; i < sizeof(table_queries) / sizeof(table_queries[0]) && rc == 0; i++)
		rc = store_sql(db, NULL, NULL, table_queries[i], "");
	if (rc != -EINVAL)
		return rc;
	snprintf(error, error_bytes, "%s", sqlite3_errmsg(db));
	return -EBADMSG;
}

static int migrate(sqlite3 *db, char *error, size_t error_bytes)
{
	int version = 0, rc = database_version(db, &version, error, error_bytes);

	if (rc < 0)
		return rc;
	while (version < STORE_SCHEMA) {
		rc = sqlite3_exec(db, "begin immediate", NULL, NULL, NULL);
		if (rc == SQLITE_OK)
			rc = sqlite3_exec(db, steps[version], NULL, NULL, NULL);
		if (rc == SQLITE_OK)
			rc = sqlite3_exec(db, "commit", NULL, NULL, NULL);
		if (rc != SQLITE_OK)
			return store_errno(db, rc);
		version++;
	}
	return 0;
}

static int read_mode(sqlite3_stmt *stmt, void *arg)
{
	snprintf(arg, MODE_BYTES, "%s", store_text(stmt, 0));
	return 0;
}

/* SQLite falls back to another journal without an error where it cannot have this one. */
static int use_wal(struct database *d, char *error, size_t error_bytes)
{
	char mode[MODE_BYTES] = "", where[PATH_MAX + 64];
	int rc = store_sql(d->handle, read_mode, mode, "pragma journal_mode = wal", "");

	if (rc < 0)
		return rc;
	if (strcmp(mode, "wal") == 0)
		return 0;
	filesystem_describe(d->path, where, sizeof(where));
	snprintf(error, error_bytes,
		"journal mode \"%s\", \"wal\" is needed: %s offers no shared memory of files or no"
		" locks: choose a --state-dir on a local disk",
		mode, where);
	return -ENOTSUP;
}

/* In place of SQLite's own hook, which checkpoints before the commit returns. */
static int count_pages(void *arg, sqlite3 *db, const char *name, int pages)
{
	struct database *d = arg;

	d->wal_pages = pages;
	return SQLITE_OK;
}

/* Who reads it elsewhere is not waited for. */
static int checkpoint_at_once(struct database *d, int mode, int *log_pages)
{
	int code;

	sqlite3_busy_timeout(d->handle, 0);
	code = sqlite3_wal_checkpoint_v2(d->handle, NULL, mode, log_pages, NULL);
	sqlite3_busy_timeout(d->handle, DATABASE_BUSY_MS);
	return code;
}

/* One that has come to be this long did not begin anew when it could have. */
static void shorten_log(struct database *d)
{
	const int known = d->wal_pages > 0 ? d->wal_pages : d->held_pages;
	int pages = 0, code = checkpoint_at_once(d, SQLITE_CHECKPOINT_TRUNCATE, &pages) & 0xff;

	if (code == SQLITE_OK) {
		d->reserved = false;
		d->held_pages = 0;
	} else if (code == SQLITE_BUSY) {
		d->held_pages = pages > 0 ? pages : known;
	}
}

void database_checkpoint(struct database *d, int pages)
{
	if (d->wal_pages < pages && d->held_pages == 0)
		return;
	if (d->wal_pages >= DATABASE_WAL_HELD || d->held_pages > 0)
		shorten_log(d);
	else
		sqlite3_wal_checkpoint_v2(d->handle, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
	d->wal_pages = 0;
}

/* As SQLite lays it out: a header, and a smaller one before each page. */
enum { WAL_HEADER = 32, FRAME_HEADER = 24, PAGE = 4096 };
enum { RESERVED = WAL_HEADER + DATABASE_WAL_FULL * (FRAME_HEADER + PAGE), PIECE = 2 << 20 };
/* The disk must have that many times as much room. */
enum { RESERVED_SHARE = 64 };

/* Whether there is more to do. What lies behind the last commit is not read by anyone. */
static bool reserve_piece(int fd)
{
	struct statvfs disk;
	struct stat st;
	ssize_t written;
	void *zeros;

	if (fstat(fd, &st) < 0 || st.st_size >= RESERVED || fstatvfs(fd, &disk) < 0 ||
		disk.f_bavail < (uint64_t)RESERVED_SHARE * RESERVED / disk.f_frsize)
		return false;
	zeros = calloc(1, PIECE);
	if (zeros == NULL)
		return false;
	written = pwrite(fd, zeros, PIECE, st.st_size);
	free(zeros);
	/* the next commit is not to wait for these as well */
	return written == PIECE && fdatasync(fd) == 0;
}

void database_reserve(struct database *d)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s%s", d->path, file_suffixes[DATABASE_FILES - 1]);
	fd = database_gone(d) ? -1 : open(path, O_WRONLY | O_CLOEXEC);
	d->reserved = fd < 0 || !reserve_piece(fd);
	if (fd >= 0)
		close(fd);
}

/* Of the write-ahead log and its disk: whether it is long, and need not be. */
static bool is_too_long(const struct database *d, int full)
{
	char path[PATH_MAX];
	struct statvfs disk;
	struct stat st;

	snprintf(path, sizeof(path), "%s%s", d->path, file_suffixes[DATABASE_FILES - 1]);
	if (stat(path, &st) < 0 || st.st_size <= DATABASE_LOG_LONG || statvfs(path, &disk) < 0)
		return false;
	return full == -EDQUOT ||
		disk.f_blocks < (uint64_t)RESERVED_SHARE * RESERVED / disk.f_frsize;
}

int database_give_back(struct database *d, int full)
{
	const bool too_long = is_too_long(d, full);
	int rc;

	if (database_gone(d))
		return -ESTALE;
	if (!too_long && d->wal_pages == 0)
		return -ENODATA;
	errno = 0;
	rc = store_errno(d->handle,
		checkpoint_at_once(d,
			too_long ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_PASSIVE, NULL));
	if (rc == 0)
		d->wal_pages = 0;
	return rc < 0 && !too_long ? -ENODATA : rc;
}

void database_leave(struct database *d)
{
	sqlite3_db_config(d->handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
}

bool database_unsure(const struct database *d)
{
	int code = sqlite3_extended_errcode(d->handle);

	/* the frame that says "committed" is written last of all */
	switch (code & 0xff) {
	case SQLITE_FULL:
	case SQLITE_READONLY:
	case SQLITE_BUSY:
		return false;
	default:
		return code != SQLITE_IOERR_WRITE;
	}
}

/* Whether there is room, in a file without a name; 0 where there cannot be such files. */
static int probe_room(const char *path)
{
	static const char zeros[4096];
	char folder[PATH_MAX];
	int fd, rc = 0;

	snprintf(folder, sizeof(folder), "%s", path);
	fd = open(dirname(folder), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
	if (fd < 0)
		return errno == EOPNOTSUPP || errno == EISDIR ? 0 : -errno;
	for (size_t n = 0; n < DATABASE_PROBE && rc == 0; n += sizeof(zeros)) {
		ssize_t written = write(fd, zeros, sizeof(zeros));

		if (written < 0)
			rc = -errno;
		else if (written < (ssize_t)sizeof(zeros))
			rc = -ENOSPC;
	}
	close(fd);
	return rc;
}

int database_probe(struct database *d)
{
	int rc = database_gone(d) ? -ESTALE : probe_room(d->path);

	if (rc < 0)
		return rc;
	sqlite3_busy_timeout(d->handle, 0);
	errno = 0;
	/* a page and a sync; nobody reads that number */
	rc = store_errno(
		d->handle, sqlite3_exec(d->handle, "pragma user_version = 1", NULL, NULL, NULL));
	sqlite3_busy_timeout(d->handle, DATABASE_BUSY_MS);
	return rc;
}

/* Of an error of reading or writing SQLite tells that it is one, and the system which. */
static void describe(struct sqlite3 *db, int rc, char *error, size_t error_bytes)
{
	const bool io = (sqlite3_errcode(db) & 0xff) == SQLITE_IOERR && rc != -EIO;
	char advice[LOCK_HOLDERS_BYTES];

	if (rc == -EBUSY) {
		lock_holders_advise(sqlite3_db_filename(db, NULL), advice, sizeof(advice));
		snprintf(error, error_bytes, "%s; %s", store_error_text(rc), advice);
		return;
	}
	snprintf(error, error_bytes, "%s%s%s%s", sqlite3_errmsg(db), io ? ": " : "",
		io ? strerror(-rc) : "",
		rc == -EBADMSG ? "; " STORE_DAMAGED_SECTION " says what to do" : "");
}

static int prepare(struct database *d, char *error, size_t error_bytes)
{
	int rc = sqlite3_open_v2(d->path, &d->handle,
		SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);

	rc = store_errno(d->handle, rc);
	if (rc == 0)
		rc = wal_index_guard(d->handle, &d->index);
	if (rc == 0)
		rc = store_errno(d->handle, sqlite3_busy_timeout(d->handle, DATABASE_BUSY_MS));
	if (rc == 0) {
		rc = use_wal(d, error, error_bytes);
		if (rc == -ENOTSUP)
			return rc;
	}
	if (rc == 0) {
		rc = store_errno(d->handle,
			sqlite3_exec(d->handle,
				"pragma synchronous = full; pragma foreign_keys = on", NULL, NULL,
				NULL));
	}
	if (rc == 0) {
		sqlite3_wal_hook(d->handle, count_pages, d);
		rc = migrate(d->handle, error, error_bytes);
	}
	if (rc == 0)
		rc = database_tables(d->handle, error, error_bytes);
	if (rc < 0 && rc != -EPROTO && d->handle != NULL)
		describe(d->handle, rc, error, error_bytes);
	return rc;
}

static bool is_logged(const struct database *d)
{
	char path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%s%s", d->path, file_suffixes[DATABASE_FILES - 1]);
	return stat(path, &st) == 0 && st.st_size > 0;
}

static int is_late(void *arg)
{
	return clock_mono_ns() > *(const int64_t *)arg;
}

void database_deadline(struct sqlite3 *db, int64_t *until_ns)
{
	sqlite3_progress_handler(db, STEPS_BETWEEN, until_ns ? is_late : NULL, until_ns);
}

static int read_found(sqlite3_stmt *stmt, void *arg)
{
	snprintf(arg, DATABASE_FOUND_BYTES, "%s", store_text(stmt, 0));
	return 0;
}

int database_first_fault(struct sqlite3 *db, char found[DATABASE_FOUND_BYTES])
{
	return store_sql(db, read_found, found, "pragma quick_check(1)", "");
}

/* As far as the time allows. */
static int look(struct database *d, char *error, size_t error_bytes)
{
	int64_t until_ns = clock_mono_ns() + DATABASE_LOOK_MS * (CLOCK_S_NS / 1000);
	char found[DATABASE_FOUND_BYTES] = "";
	int rc;

	database_deadline(d->handle, &until_ns);
	rc = database_first_fault(d->handle, found);
	database_deadline(d->handle, NULL);
	if (rc == -EBADMSG)
		snprintf(found, sizeof(found), "%s", sqlite3_errmsg(d->handle));
	else if (rc < 0 || strcmp(found, "ok") == 0)
		return 0; /* late, or what will be told by whoever needs it */
	snprintf(error, error_bytes,
		"%s; if it was put back from a backup, BACKUP AND RESTORE in gpt2d(8) says what to"
		" do, else " STORE_DAMAGED_SECTION,
		found);
	return -EBADMSG;
}

int database_open(struct database *d, const char *path, char *error, size_t error_bytes)
{
	bool logged;
	int rc;

	snprintf(error, error_bytes, "out of memory");
	d->path = strdup(path);
	if (d->path == NULL)
		return -ENOMEM;
	logged = is_logged(d);
	rc = prepare(d, error, error_bytes);
	if (rc == 0 && logged)
		rc = look(d, error, error_bytes);
	if (rc == -EBADMSG)
		database_leave(d);
	if (rc == 0 && database_gone(d)) {
		snprintf(error, error_bytes, "%s", store_error_text(-ESTALE));
		rc = -ESTALE;
	}
	return rc;
}

void database_close(struct database *d)
{
	sqlite3_close(d->handle);
	wal_index_destroy(d->index);
	free(d->path);
}

bool database_reads(const struct database *d)
{
	char head[100]; /* as long as SQLite's */
	sqlite3_file *file = NULL;
	int rc;

	/* through its own descriptor: to close another would give up its locks */
	rc = sqlite3_file_control(d->handle, NULL, SQLITE_FCNTL_FILE_POINTER, &file);
	if (rc != SQLITE_OK || file == NULL || file->pMethods == NULL)
		return false;
	rc = file->pMethods->xRead(file, head, (int)sizeof(head), 0);
	return rc == SQLITE_OK || rc == SQLITE_IOERR_SHORT_READ;
}
