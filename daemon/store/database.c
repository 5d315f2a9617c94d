#include "daemon/store/database.h"

#include <errno.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/host/clock.h"
#include "proto/host/filesystem.h"
#include "daemon/store/store_sql.h"
#include "proto/host/memory.h"

enum {
	LOG_PAGES = 4096, /* 16 MiB: a checkpoint delays one of about 400 submissions */
	FOUND_BYTES = 256,
	MODE_BYTES = 16,
	STEPS_BETWEEN = 10000, /* instructions of SQLite's machine between two checks of the time */
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

/* Messages of engines and gpt2d (rank null) about a run, n growing. */
static const char schema_2[] =
	"alter table runs add column kept integer not null default 0;"
	"alter table runs add column log_dropped integer not null default 0;"
	"alter table segments add column artifacts text;"
	"create table log("
	" n integer primary key, run integer not null references runs(id), at_ns integer not null,"
	" rank integer, level integer not null, message text not null);"
	"create index log_run on log(run, n);"
	"update schema set version = 2;";

/* holds: reasons why queued runs do not start, named as in hold.h. */
static const char schema_3[] =
	"alter table runs add column priority integer not null default 0;"
	"alter table runs add column rerun_of integer not null default 0;"
	"create table holds("
	" what text primary key, since_ns integer not null, uid integer not null,"
	" reason text not null) without rowid;"
	"update schema set version = 3;";

/* Why a segment's block does not count; empty: it does. */
static const char schema_4[] = "alter table segments add column void text not null default '';"
			       "update schema set version = 4;";

/* The tables after the last of these, as queries that read nothing. */
static const char runs_query[] =
	"select id, name, uid, state, reason, spec, spec_sha256, checks, gpus, segments,"
	" segments_done, attempt, restart, timeout_s, submitted_ns, started_ns, ended_ns, kept,"
	" log_dropped, priority, rerun_of from runs limit 0";
static const char segments_query[] =
	"select run, segment, block, position, arm, state, reason, started_ns, ended_ns, dir,"
	" summary, artifacts, void from segments limit 0";
static const char *const table_queries[] = {
	runs_query,
	segments_query,
	"select run, at_ns, state, reason from transitions limit 0",
	"select n, run, at_ns, rank, level, message from log limit 0",
	"select what, since_ns, uid, reason from holds limit 0",
};

/* Step i converts schema i to i + 1. */
static const char *const steps[DATABASE_SCHEMA] = {schema_1, schema_2, schema_3, schema_4};

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

static int read_version(sqlite3 *db, int *out, char *error, size_t error_bytes)
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
		snprintf(error, error_bytes, "a database of another program: no table schema");
		return -EPROTO;
	}
	if (version > DATABASE_SCHEMA || version < 0) {
		snprintf(error, error_bytes, "schema %lld, this gpt2d supports up to %d",
			(long long)version, DATABASE_SCHEMA);
		return -EPROTO;
	}
	*out = (int)version;
	return 0;
}

/* Whether the tables of the present schema are complete: 0, or -EBADMSG with error. */
static int check_tables(sqlite3 *db, char *error, size_t error_bytes)
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
	int version = 0, rc = read_version(db, &version, error, error_bytes);

	if (rc < 0)
		return rc;
	while (version < DATABASE_SCHEMA) {
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

/* If SQLite cannot use this journal, it uses another one without an error. */
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

/* Replaces SQLite's own hook, which checkpoints before the commit returns. */
static int count_pages(void *arg, sqlite3 *db, const char *name, int pages)
{
	struct database *d = arg;

	d->log_pages = pages;
	return SQLITE_OK;
}

int database_checkpoint(struct database *d)
{
	int rc;

	errno = 0;
	rc = store_errno(d->handle,
		sqlite3_wal_checkpoint_v2(d->handle, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL));
	d->log_pages = 0;
	return rc;
}

bool database_log_is_long(const struct database *d)
{
	return d->log_pages >= LOG_PAGES;
}

void database_keep_log(struct database *d)
{
	sqlite3_db_config(d->handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
}

static void describe(struct sqlite3 *db, int rc, char *error, size_t error_bytes)
{
	const bool io = (sqlite3_errcode(db) & 0xff) == SQLITE_IOERR && rc != -EIO;
	struct store_failure failure;

	if (rc == -EBUSY) {
		store_describe(sqlite3_db_filename(db, NULL), rc, &failure);
		snprintf(error, error_bytes, "%s; %s", store_error_text(rc), failure.advice);
		return;
	}
	snprintf(error, error_bytes, "%s%s%s%s", sqlite3_errmsg(db), io ? ": " : "",
		io ? strerror(-rc) : "", rc == -EBADMSG ? "; see " STORE_DAMAGED_SECTION : "");
}

static int prepare(struct database *d, char *error, size_t error_bytes)
{
	int rc = sqlite3_open_v2(d->path, &d->handle,
		SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);

	rc = store_errno(d->handle, rc);
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
				"pragma synchronous = full; pragma foreign_keys = on;"
				" pragma journal_size_limit = 16777216",
				NULL, NULL, NULL));
	}
	if (rc == 0) {
		sqlite3_wal_hook(d->handle, count_pages, d);
		rc = migrate(d->handle, error, error_bytes);
	}
	if (rc == 0)
		rc = check_tables(d->handle, error, error_bytes);
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

static void set_deadline(struct sqlite3 *db, int64_t *until_ns)
{
	sqlite3_progress_handler(db, STEPS_BETWEEN, until_ns ? is_late : NULL, until_ns);
}

static int read_found(sqlite3_stmt *stmt, void *arg)
{
	snprintf(arg, FOUND_BYTES, "%s", store_text(stmt, 0));
	return 0;
}

static int first_fault(struct sqlite3 *db, char found[FOUND_BYTES])
{
	return store_sql(db, read_found, found, "pragma quick_check(1)", "");
}

/* As far as the time allows. */
static int check_damage(struct database *d, char *error, size_t error_bytes)
{
	int64_t until_ns = clock_mono_ns() + DATABASE_CHECK_MS * (CLOCK_S_NS / 1000);
	char found[FOUND_BYTES] = "";
	int rc;

	set_deadline(d->handle, &until_ns);
	rc = first_fault(d->handle, found);
	set_deadline(d->handle, NULL);
	if (rc == -EBADMSG)
		snprintf(found, sizeof(found), "%s", sqlite3_errmsg(d->handle));
	else if (rc < 0 || strcmp(found, "ok") == 0)
		/*
		 * stopped by the time limit, or an error that the next user of the database reports
		 */
		return 0;
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

	d->path = memory_text(path);
	logged = is_logged(d);
	rc = prepare(d, error, error_bytes);
	if (rc == 0 && logged)
		rc = check_damage(d, error, error_bytes);
	if (rc == -EBADMSG)
		database_keep_log(d);
	if (rc == 0 && database_gone(d)) {
		snprintf(error, error_bytes, "%s", store_error_text(-ESTALE));
		rc = -ESTALE;
	}
	return rc;
}

void database_close(struct database *d)
{
	store_sql_close(d->handle);
	free(d->path);
}

/* ---- without changing anything ---- */

enum { URI_BYTES = 3 * PATH_MAX + 64 };

/* SQLite's URI of a path: special characters are %XX. */
static void write_uri(const char *path, const char *options, char *out)
{
	size_t used = (size_t)sprintf(out, "file:");

	for (const char *c = path; *c != '\0'; c++)
		used += (size_t)sprintf(out + used, strchr("?#%", *c) ? "%%%02X" : "%c", *c);
	sprintf(out + used, "?%s", options);
}

/*
 * If the write-ahead log is not empty, it has the newest pages. Only one of SQLite's file systems
 * (VFS) reads it without creating a file, and this one takes no locks. Otherwise the database has
 * all pages. If a gpt2d has it open, all files exist.
 */
static int open_unchanged(const char *path, bool in_use, sqlite3 **out)
{
	char name[PATH_MAX + 8], uri[URI_BYTES];
	struct stat st;
	bool logged;
	int rc;

	snprintf(name, sizeof(name), "%s-wal", path);
	logged = !in_use && stat(name, &st) == 0 && st.st_size > 0;
	write_uri(path, in_use ? "mode=ro" : logged ? "mode=ro&vfs=unix-none" : "immutable=1", uri);
	rc = sqlite3_open_v2(
		uri, out, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, NULL);
	if (rc != SQLITE_OK)
		return rc;
	sqlite3_db_config(*out, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	return sqlite3_exec(
		*out, logged ? "pragma locking_mode = exclusive" : "", NULL, NULL, NULL);
}

static int inspect(sqlite3 *db, struct database_contents *out, char *error, size_t error_bytes)
{
	char found[FOUND_BYTES] = "";
	int rc = read_version(db, &out->schema, error, error_bytes);

	if (rc == 0 && out->schema == DATABASE_SCHEMA)
		rc = check_tables(db, error, error_bytes);
	if (rc == 0 && out->schema > 0)
		rc = store_sql(db, read_int, &out->runs, "select count(*) from runs", "");
	if (rc == 0)
		rc = first_fault(db, found);
	if (rc < 0 && sqlite3_errcode(db) == SQLITE_INTERRUPT)
		return 0;
	if (rc == 0 && strcmp(found, "ok") != 0) {
		snprintf(error, error_bytes, "%s", found);
		return -EBADMSG;
	}
	if (rc < 0 && error[0] == '\0')
		snprintf(error, error_bytes, "%s", sqlite3_errmsg(db));
	out->complete = rc == 0;
	return rc;
}

int database_inspect(const char *path, bool in_use, int64_t within_ms,
	struct database_contents *out, char *error, size_t error_bytes)
{
	int64_t until_ns = clock_mono_ns() + within_ms * CLOCK_MS_NS;
	struct database_contents seen = {0};
	sqlite3 *db = NULL;
	struct stat st;
	int rc = stat(path, &st) < 0 ? -errno : S_ISREG(st.st_mode) ? 0 : -EISDIR;

	error[0] = '\0';
	if (rc == 0 && strlen(path) >= PATH_MAX)
		rc = -ENAMETOOLONG;
	if (rc < 0) {
		snprintf(error, error_bytes, "%s", strerror(-rc));
		return rc;
	}
	errno = 0;
	rc = store_errno(db, open_unchanged(path, in_use, &db));
	if (rc < 0) {
		snprintf(error, error_bytes, "%s", db ? sqlite3_errmsg(db) : strerror(-rc));
	} else {
		set_deadline(db, &until_ns);
		rc = inspect(db, &seen, error, error_bytes);
	}
	store_sql_close(db);
	if (rc == 0)
		*out = seen;
	return rc;
}
