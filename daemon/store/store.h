/*
 * store.h: one SQLite database, one thread that alone touches it, and jobs for that thread. Waiting
 * write jobs are committed together (WAL, synchronous full); a job's done() is called in the loop
 * after the commit. Jobs run and complete in the order in which they were added, but for writes
 * that are being retried (see must): reads and files go ahead of them. What a job does to the
 * tables: record.h.
 */
#ifndef GPT2D_DAEMON_STORE_STORE_H
#define GPT2D_DAEMON_STORE_STORE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sqlite3;
struct store;
struct stuck_watch;
struct wal_watch;

enum { STORE_SCHEMA = 3 };

enum store_kind {
	STORE_WRITE, /* in a transaction shared with its neighbours */
	STORE_READ,
	STORE_FILES, /* no database: directories and files of runs */
};

/* The head of a caller's own structure. */
struct store_job {
	enum store_kind kind;
	/* A write that must not be lost: when the disk fails it is tried again, every second and
	 * with each write that comes meanwhile; one that may fail is refused when its try fails. */
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
int store_fd(const struct store *s); /* readable when store_deliver has something to do, when
				      * failing begins or ends, damage is found, or the reserve is
				      * gone */
void store_deliver(struct store *s); /* calls done() of what is complete */

/*
 * The last try to write failed. It is tried again each second, with what must not be lost or else
 * with a little that says nothing, until a write succeeds. Or a job found the database damaged
 * (-EBADMSG), be it one that reads: nothing is written to it from then on, until it is closed.
 */
bool store_failing(struct store *s);

enum { STORE_ADVICE_BYTES = 640 }; /* fits what lock_holders.h says */
/* Of the write that fails: what was said of it last, and since when. */
struct store_failure {
	int rc; /* a negative errno; -ESTALE: the files are not there any more; -EBADMSG: damaged */
	int64_t since_ns; /* UTC */
	/* What was refused since may all the same be found written if gpt2d is killed before the
	 * next write that succeeds: it was not the writing that failed, but to have it synced. */
	bool unsure;
	char path[PATH_MAX];
	char advice[STORE_ADVICE_BYTES]; /* what to do about it */
};
/* Whether the store is failing; out is filled when it is. */
bool store_failure(struct store *s, struct store_failure *out);
/*
 * From the work of a STORE_FILES job that has met full, a negative errno of a full disk or quota:
 * whether the store has given back room that its write-ahead log took. It may go better then.
 */
bool store_make_room(struct store *s, int full);
/*
 * From the work of a STORE_FILES job: whether the database is not where it was opened; its folder
 * is not, then, or is another one.
 */
bool store_gone(struct store *s);
/* Whether others hold its write-ahead log: see wal_held.h. */
struct wal_watch *store_wal(struct store *s);
/* Since when its thread is at what it is at: see stuck.h. */
struct stuck_watch *store_stuck(struct store *s);
/* Whether, since this was last asked, store_make_room took the reserve (reserve.h) for good. */
bool store_reserve_gone(struct store *s);
/* What an error of the store is in words: "No space left on device". */
const char *store_error_text(int rc);
/* Where it is written what to do about a damaged one. */
#define STORE_DAMAGED_SECTION "A DAMAGED DATABASE in gpt2d(8)"
bool store_idle(struct store *s); /* every job that was added has been delivered */

/*
 * Work off what waits (a write that must not be lost is tried once more), end the thread, deliver
 * the rest, close. 0, or -EIO when something could not be written. Takes NULL.
 */
int store_close(struct store *s);

/*
 * A negative errno for a result code that SQLite has just given; 0 for SQLITE_OK, SQLITE_ROW and
 * SQLITE_DONE. Where the system refused something, its own errno: set errno to 0 before the call.
 */
int store_errno(struct sqlite3 *db, int sqlite_code);

/*
 * Run one statement with bound values: types is a string of 'i' (int64_t), 't' (const char *, NULL
 * for null), one for each ?. row, when given, is called for every row and may return a negative
 * errno to stop. 0 or a negative errno.
 */
struct sqlite3_stmt;
int store_sql(struct sqlite3 *db, int (*row)(struct sqlite3_stmt *stmt, void *arg), void *arg,
	const char *sql, const char *types, ...);
/* The text in a column, from 0, of the row that row() was given, until it returns; "" for null. */
const char *store_text(struct sqlite3_stmt *stmt, int column);

#endif
