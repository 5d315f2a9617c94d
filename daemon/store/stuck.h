/*
 * stuck.h: a disk of the state directory that neither answers nor fails, as that of a server that
 * is away: what the store's thread is at does not end. Noted by that thread, told by the loop,
 * which itself never waits for that disk.
 */
#ifndef GPT2D_DAEMON_STORE_STUCK_H
#define GPT2D_DAEMON_STORE_STUCK_H

#include <jansson.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct daemon;
struct stuck;

/* What both threads see of it; all zero: nothing is being done. */
struct stuck_watch {
	_Atomic int64_t begun_ns; /* monotonic; 0: nothing is being done */
	atomic_bool files;        /* it is none for the database */
};

/* In the store's thread, around all that may touch a disk. */
void stuck_begin(struct stuck_watch *w, bool files);
void stuck_end(struct stuck_watch *w);

/* Since what is being done began; 0: nothing is. */
double stuck_busy_s(const struct stuck_watch *w);

struct stuck_found {
	char path[PATH_MAX];
	int64_t since_ns; /* UTC */
	const char *advice;
};

/* Looks each 2 s; the log tells that it began or ended, once. 0 or -ENOMEM. */
int stuck_create(struct daemon *d, struct stuck **out);
void stuck_destroy(struct stuck *s); /* takes NULL */

/* Whether something is being done for longer than any answer takes; out is filled when it is. */
bool stuck_look(const struct daemon *d, struct stuck_found *out);
/* {path, since, advice}, as protocol.h has it; JSON null: it is not. */
json_t *stuck_json(const struct daemon *d);
/* Before the end, which waits for the disk: says so where something is being done already. */
void stuck_tell_end(const struct daemon *d);

#endif
