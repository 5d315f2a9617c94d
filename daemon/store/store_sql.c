#include "daemon/store/store_sql.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/host/filesystem.h"
#include "proto/host/memory.h"

/*
 * The system's errno of a read or write error, if it says more. SQLite keeps it only for some; for
 * the others it is still in errno.
 */
static int system_errno(struct sqlite3 *db, int last)
{
	static const int telling[] = {ENOSPC, EDQUOT, EROFS, EFBIG, EACCES, EPERM, ENOMEM};
	int kept = db ? sqlite3_system_errno(db) : 0;

	for (size_t i = 0; i < sizeof(telling) / sizeof(telling[0]); i++)
		if (kept == telling[i] || last == telling[i])
			return -telling[i];
	return -EIO;
}

int store_errno(struct sqlite3 *db, int code)
{
	int last = errno;

	switch (code & 0xff) {
	case SQLITE_OK:
	case SQLITE_ROW:
	case SQLITE_DONE:
		return 0;
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_NOMEM:
		memory_exhausted();
	case SQLITE_READONLY:
		return -EROFS;
	case SQLITE_BUSY:
		return -EBUSY;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return -EBADMSG;
	case SQLITE_TOOBIG:
		return -E2BIG;
	case SQLITE_ERROR:
	case SQLITE_CONSTRAINT:
		return -EINVAL;
	default:
		return system_errno(db, last);
	}
}

const char *store_error_text(int rc)
{
	if (rc == -ESTALE)
		return "the file was removed, moved or replaced while gpt2d had it open";
	if (rc == -ETIMEDOUT)
		return "the disk does not answer";
	if (rc == -EBUSY)
		return "another process has it locked";
	if (rc == -EBADMSG)
		return "the database is damaged, gpt2d(8) says what to do";
	return strerror(-rc);
}

const char store_too_large[] = "raise the limit on the size of files (LimitFSIZE= of the unit, "
			       "ulimit -f)";

bool store_is_full(int rc)
{
	return rc == -ENOSPC || rc == -EDQUOT || rc == -EFBIG;
}

void store_describe(const char *path, int rc, struct store_failure *out)
{
	char where[PATH_MAX + 64];

	out->rc = rc;
	snprintf(out->path, sizeof(out->path), "%s", path);
	filesystem_describe(path, where, sizeof(where));
	if (rc == -EFBIG)
		snprintf(out->advice, sizeof(out->advice), "%s", store_too_large);
	else if (store_is_full(rc))
		snprintf(out->advice, sizeof(out->advice),
			"make room on %.500s; gpt2ctl prune removes old runs", where);
	else if (rc == -EBUSY)
		snprintf(out->advice, sizeof(out->advice),
			"fuser -v %.500s shows the process; end it, or wait for it", path);
	else if (rc == -ESTALE)
		snprintf(out->advice, sizeof(out->advice), "restore the file, or restart gpt2d");
	else if (rc == -EBADMSG)
		snprintf(out->advice, sizeof(out->advice),
			"stop gpt2d, then see " STORE_DAMAGED_SECTION);
	else if (rc == -EROFS)
		snprintf(out->advice, sizeof(out->advice), "make %.500s writable", where);
	else if (rc == -ETIMEDOUT)
		snprintf(out->advice, sizeof(out->advice),
			"see the kernel's log about %.300s, and check its server;"
			" gpt2d continues when the disk answers",
			where);
	else
		snprintf(out->advice, sizeof(out->advice), "see the kernel's log about %.500s",
			where);
}

static int bind_values(sqlite3_stmt *stmt, const char *types, va_list args)
{
	int rc = SQLITE_OK;

	for (int i = 1; *types != '\0' && rc == SQLITE_OK; types++, i++) {
		if (*types == 'i')
			rc = sqlite3_bind_int64(stmt, i, va_arg(args, int64_t));
		else
			rc = sqlite3_bind_text(
				stmt, i, va_arg(args, const char *), -1, SQLITE_STATIC);
	}
	return rc;
}

/* Statements stay prepared until store_sql_close(): the texts are literals, so there are few. */
static int prepare(struct sqlite3 *db, const char *sql, sqlite3_stmt **out)
{
	sqlite3_stmt *stmt = NULL;

	while ((stmt = sqlite3_next_stmt(db, stmt)) != NULL) {
		if (strcmp(sqlite3_sql(stmt), sql) == 0 && !sqlite3_stmt_busy(stmt)) {
			*out = stmt;
			return SQLITE_OK;
		}
	}
	return sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL);
}

void store_sql_close(struct sqlite3 *db)
{
	sqlite3_stmt *stmt;

	while (db != NULL && (stmt = sqlite3_next_stmt(db, NULL)) != NULL)
		sqlite3_finalize(stmt);
	sqlite3_close(db);
}

int store_sql(struct sqlite3 *db, int (*row)(struct sqlite3_stmt *stmt, void *arg), void *arg,
	const char *sql, const char *types, ...)
{
	sqlite3_stmt *stmt = NULL;
	va_list args;
	int rc, stop = 0;

	errno = 0;
	rc = prepare(db, sql, &stmt);
	if (rc != SQLITE_OK)
		return store_errno(db, rc);
	va_start(args, types);
	rc = bind_values(stmt, types, args);
	va_end(args);
	while (rc == SQLITE_OK && stop == 0 && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		stop = row ? row(stmt, arg) : 0;
		rc = SQLITE_OK;
	}
	sqlite3_reset(stmt);
	sqlite3_clear_bindings(stmt);
	return stop ? stop : store_errno(db, rc);
}

const char *store_text(struct sqlite3_stmt *stmt, int column)
{
	const char *text = (const char *)sqlite3_column_text(stmt, column);

	return text ? text : "";
}
