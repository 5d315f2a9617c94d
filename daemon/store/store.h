/*
 * store.h: one SQLite database, one thread that alone touches it, and jobs for that thread. Waiting
 * write jobs share one transaction (WAL, synchronous full). The loop calls a job's done() after the
 * commit. Jobs run and complete in the order in which they were added, except that reads and files
 * overtake writes that are being retried (see must). What a job does to the tables: record.h.
 */
#ifndef GPT2D_DAEMON_STORE_STORE_H
#define GPT2D_DAEMON_STORE_STORE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sqlite3;
struct sqlite3_stmt;
struct store;

enum { STORE_SCHEMA = 3 };

enum store_kind {
	STORE_WRITE, /* in a transaction shared with its neighbours */
	STORE_READ,
	STORE_FILES, /* no database: directories and files of runs */
};

/* The head of a caller's own structure. */
struct store_job {
	enum store_kind kind;
	/* A write that must not be lost. While the store fails, it stays in the queue and is
	 * retried every second and with each later write. Other writes are refused. */
	bool must;
	/* In the thread: 0 or a negative errno. May be called again after a failed commit. */
	int (*work)(struct store_job *job, struct sqlite3 *db);
	/* In the loop; owns job. rc: of work, or of the commit. */
	void (*done)(struct store_job *job, int rc);

	int rc;                 /* private */
	struct store_job *next; /* private */
};

/*
 * Open or make the database and bring its schema up to date. 0, or a negative errno with error:
 * -EPROTO for a schema newer than STORE_SCHEMA, -ENOTSUP for a file system without what the
 * write-ahead log needs.
 */
int store_open(const char *path, struct store **out, char *error, size_t error_bytes);
struct sqlite3 *store_db(struct store *s); /* before store_start only */
const char *store_path(const struct store *s);
int store_start(struct store *s); /* the thread: 0 or a negative errno */
void store_add(struct store *s, struct store_job *job);
/* Readable when store_deliver has something to do, and when failing begins or ends. */
int store_fd(const struct store *s);
void store_deliver(struct store *s); /* calls done() of what is complete */
bool store_idle(struct store *s);    /* every job that was added has been delivered */
/* Seconds since the thread began what it is doing; 0: it is doing nothing. */
double store_busy_s(const struct store *s);

enum { STORE_SILENT_S = 7, STORE_ADVICE_BYTES = 640 };
struct store_failure {
	/* A negative errno: -ESTALE: the files were removed or replaced; -EBADMSG: the database is
	 * damaged; -ETIMEDOUT: the thread has been busy with one thing for STORE_SILENT_S. */
	int rc;
	int64_t since_ns; /* UTC */
	char path[PATH_MAX];
	char advice[STORE_ADVICE_BYTES]; /* what to do about it */
};
/*
 * Whether the store is failing: the last write failed, or a job found the database damaged, or the
 * thread is silent. It retries every second until a write succeeds. A damaged database stays
 * failing until gpt2d ends, and nothing more is written to it. out, unless NULL, says why.
 */
bool store_failure(struct store *s, struct store_failure *out);
bool store_failing(struct store *s);
/* In the thread, before a read returns -EBADMSG: what is damaged. The failure's advice names it. */
void store_say_damage(struct store *s, const char *found);
/* In the thread: whether the database is no longer where it was opened. */
bool store_gone(struct store *s);

/* An error of the store in words: "No space left on device". */
const char *store_error_text(int rc);
/* The part of the manual about a damaged one. */
#define STORE_DAMAGED_SECTION "A DAMAGED DATABASE in gpt2d(8)"

/*
 * Work off what waits (a write that must not be lost is tried once more), end the thread, deliver
 * the rest, close. 0, or -EIO when something could not be written. Takes NULL.
 */
int store_close(struct store *s);

/* ---- SQL, in the thread ---- */

/*
 * A negative errno for a result code that SQLite has just given; 0 for SQLITE_OK, SQLITE_ROW and
 * SQLITE_DONE. Where the system refused something, its own errno: set errno to 0 before the call.
 */
int store_errno(struct sqlite3 *db, int sqlite_code);
/*
 * Run one statement with bound values: types is a string of 'i' (int64_t) and 't' (const char *,
 * NULL for null), one for each ?. row, unless NULL, is called for every row and may return a
 * negative errno to stop. 0 or a negative errno.
 */
int store_sql(struct sqlite3 *db, int (*row)(struct sqlite3_stmt *stmt, void *arg), void *arg,
	const char *sql, const char *types, ...);
/* The text in a column, from 0, of the row that row() was given, until it returns; "" for null. */
const char *store_text(struct sqlite3_stmt *stmt, int column);

#endif
