/*
 * wal_held.h: a write-ahead log that grows because another process reads of it: who begins to read
 * and does not end (a forgotten sqlite3 with an open transaction) keeps the log from beginning
 * anew, whatever is moved into the database. Noticed in the store's thread, told by the loop.
 */
#ifndef GPT2D_DAEMON_STORE_WAL_HELD_H
#define GPT2D_DAEMON_STORE_WAL_HELD_H

#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct daemon;
struct database;

enum { WAL_HELD_ADVICE_BYTES = 640 }; /* fits what lock_holders.h says */

struct wal_held {
	char path[PATH_MAX]; /* of the log */
	int64_t bytes;
	int64_t since_ns; /* UTC; 0: nobody holds it */
	char advice[WAL_HELD_ADVICE_BYTES];
};

/* What both threads see of it. */
struct wal_watch {
	pthread_mutex_t lock;
	struct wal_held held;
	int64_t looked_ns; /* monotonic, of the store's thread */
};

void wal_watch_init(struct wal_watch *w);
void wal_watch_destroy(struct wal_watch *w);
/* In the store's thread, after a checkpoint of db: whether that it is held began or ended. */
bool wal_watch_note(struct wal_watch *w, const struct database *db);
/* Whether it is held; out is filled when it is. */
bool wal_watch_look(struct wal_watch *w, struct wal_held *out);

/* The log tells that it began or ended, once. */
void wal_held_tell(struct daemon *d);
/* {path, bytes, since, advice}, as protocol.h has it; JSON null: nobody holds it. */
json_t *wal_held_json(const struct daemon *d);

#endif
