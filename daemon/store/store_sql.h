/*
 * store_sql.h: one SQL statement with its values; SQLite's result codes as an errno, and in words
 * with advice.
 */
#ifndef GPT2D_DAEMON_STORE_STORE_SQL_H
#define GPT2D_DAEMON_STORE_STORE_SQL_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct sqlite3;
struct sqlite3_stmt;

/* An error of the store in words: "No space left on device". */
const char *store_error_text(int rc);
/* The part of the manual about a damaged one. */
#define STORE_DAMAGED_SECTION "A DAMAGED DATABASE in gpt2d(8)"

/* A store that is failing, for people. */
enum { FAILURE_TEXT_BYTES = 1024 }; /* fits a refusal */

enum { STORE_SILENT_S = 7, STORE_ADVICE_BYTES = 640 };
struct store_failure {
	/*
	 * A negative errno: -ESTALE: the files were removed or replaced; -EBADMSG: the database is
	 * damaged; -ETIMEDOUT: the thread has been busy with one job for STORE_SILENT_S.
	 */
	int rc;
	int64_t since_ns; /* UTC */
	char path[PATH_MAX];
	char advice[STORE_ADVICE_BYTES]; /* advice */
};

/* Whether rc, a negative errno, means a full disk, a quota or a limit. */
bool store_is_full(int rc);

/* Advice if files may not be that large. */
extern const char store_too_large[];

/* Fills rc, path and advice of *out. It asks the file system: not for the loop. */
void store_describe(const char *path, int rc, struct store_failure *out);

/*
 * A negative errno for the latest result code of SQLite; 0 for SQLITE_OK, SQLITE_ROW and
 * SQLITE_DONE. If the system reported an error, its errno: set errno to 0 before the call.
 */
int store_errno(struct sqlite3 *db, int sqlite_code);
/*
 * Run one statement with bound values: types is a string of 'i' (int64_t) and 't' (const char *,
 * NULL for null), one for each ?. row, unless NULL, is called for every row and may return a
 * negative errno to stop. 0 or a negative errno. sql is a literal: it stays prepared.
 */
int store_sql(struct sqlite3 *db, int (*row)(struct sqlite3_stmt *stmt, void *arg), void *arg,
	const char *sql, const char *types, ...);
/* Closes a database, and the statements that store_sql prepared; takes NULL. */
void store_sql_close(struct sqlite3 *db);
/* The text in a column, from 0, of the row in row(), valid until it returns; "" for null. */
const char *store_text(struct sqlite3_stmt *stmt, int column);

#endif
