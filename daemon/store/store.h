/*
 * store.h: one SQLite database, one thread that alone uses it, and jobs for that thread. Waiting
 * write jobs share one transaction (WAL, synchronous full). The loop calls a job's done() after the
 * commit. Jobs run and complete in the order in which they were added, except that reads and files
 * overtake writes that are being retried (see must). record.h has the jobs.
 */
#ifndef GPT2D_DAEMON_STORE_STORE_H
#define GPT2D_DAEMON_STORE_STORE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "daemon/store/store_sql.h"

struct sqlite3;
struct store;

enum store_kind {
	STORE_WRITE, /* in a transaction shared with other writes */
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
 * -EPROTO for a schema newer than DATABASE_SCHEMA, -ENOTSUP for a file system without what the
 * write-ahead log needs.
 */
int store_open(const char *path, struct store **out, char *error, size_t error_bytes);
struct sqlite3 *store_db(struct store *s); /* before store_start only */
const char *store_path(const struct store *s);
int store_start(struct store *s); /* the thread: 0 or a negative errno */
void store_add(struct store *s, struct store_job *job);
/* Readable when store_deliver has work, and when a failure begins or ends. */
int store_fd(const struct store *s);
void store_deliver(struct store *s); /* calls done() of completed jobs */
bool store_idle(struct store *s);    /* all added jobs have been delivered */
/* Seconds since the thread began its current job; 0: it is idle. */
double store_busy_s(const struct store *s);

/*
 * Whether the store is failing: the last write failed, or a job found the database damaged, or the
 * thread is silent. It retries every second until a write succeeds. A damaged database stays
 * failing until gpt2d ends, and gpt2d does not write to it. out, unless NULL, gets the reason.
 */
bool store_failure(struct store *s, struct store_failure *out);
bool store_failing(struct store *s);
/* In the thread: whether the database's name leads to another file. */
bool store_gone(struct store *s);

/* {path, errno, error, since, advice}, as in protocol.h; JSON null: it is not failing. */
json_t *store_failure_json(struct store *s);
/*
 * Why the store refused with rc, a negative errno: "FILE: ERROR; ADVICE", without the advice if the
 * store has recovered.
 */
void store_failure_text(struct store *s, int rc, char out[FAILURE_TEXT_BYTES]);

/*
 * Completes waiting jobs (a write that must not be lost is tried once), ends the thread, delivers
 * the rest, closes. 0, or -EIO if a write failed. Takes NULL.
 */
int store_close(struct store *s);

#endif
