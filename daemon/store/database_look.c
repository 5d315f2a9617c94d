#include "daemon/store/database_look.h"

#include <errno.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/host/clock.h"
#include "daemon/store/database.h"
#include "daemon/store/record_row.h"
#include "daemon/store/store.h"

enum { URI_BYTES = 3 * PATH_MAX + 64 };

/* SQLite's URI of a path: what means something in a URI is %XX. */
static void write_uri(const char *path, const char *options, char *out)
{
	size_t used = (size_t)sprintf(out, "file:");

	for (const char *c = path; *c != '\0'; c++)
		used += (size_t)sprintf(out + used, strchr("?#%", *c) ? "%%%02X" : "%c", *c);
	sprintf(out + used, "?%s", options);
}

/*
 * With a write-ahead log that is not empty the newest pages are there: it is read by the only
 * module of SQLite that makes no file for that, which then takes no locks. Without, what is in the
 * database is all there is. Where it is in use its files are all there.
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

static int read_count(sqlite3_stmt *stmt, void *arg)
{
	*(int64_t *)arg = sqlite3_column_int64(stmt, 0);
	return 0;
}

static int look(sqlite3 *db, struct database_look *out, char *error, size_t error_bytes)
{
	char found[DATABASE_FOUND_BYTES] = "", fault[RECORD_ROW_FAULT_BYTES] = "";
	int rc = database_version(db, &out->schema, error, error_bytes);

	if (rc == 0 && out->schema == STORE_SCHEMA)
		rc = database_tables(db, error, error_bytes);
	if (rc == 0 && out->schema > 0)
		rc = store_sql(db, read_count, &out->runs, "select count(*) from runs", "");
	if (rc == 0)
		rc = database_first_fault(db, found);
	if (rc < 0 && sqlite3_errcode(db) == SQLITE_INTERRUPT)
		return 0;
	if (rc == 0 && strcmp(found, "ok") != 0) {
		snprintf(error, error_bytes, "%s", found);
		return -EBADMSG;
	}
	if (rc == 0 && out->schema == STORE_SCHEMA)
		rc = record_row_check(db, fault);
	if (rc == -EBADMSG && fault[0] != '\0')
		snprintf(error, error_bytes, "%s", fault);
	if (rc < 0 && sqlite3_errcode(db) == SQLITE_INTERRUPT)
		return 0;
	if (rc < 0 && error[0] == '\0')
		snprintf(error, error_bytes, "%s", sqlite3_errmsg(db));
	out->complete = rc == 0;
	return rc;
}

int database_look(const char *path, bool in_use, int64_t within_ms, struct database_look *out,
	char *error, size_t error_bytes)
{
	int64_t until_ns = clock_mono_ns() + within_ms * CLOCK_MS_NS;
	struct database_look seen = {0};
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
		database_deadline(db, &until_ns);
		rc = look(db, &seen, error, error_bytes);
	}
	sqlite3_close(db);
	if (rc == 0)
		*out = seen;
	return rc;
}
