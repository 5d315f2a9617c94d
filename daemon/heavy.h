/*
 * heavy.h: what all clients together hold of gpt2d's memory. Output that a client has not read
 * counts towards a share of its user and a limit of all; requests whose answers may be large are
 * worked on a few at a time, users in turn, while both leave room. A client that takes nothing of
 * its output while another waits for that room is dropped after a few seconds, and memory of large
 * answers goes back to the system.
 */
#ifndef GPT2D_HEAVY_H
#define GPT2D_HEAVY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

struct event_base;
struct heavy;

enum {
	HEAVY_AT_WORK = 8,     /* requests worked on at once, */
	HEAVY_USER_WORK = 4,   /* of one user: hashing a large file takes long */
	HEAVY_USER_PART = 4,   /* of the limit: the share of one user */
	HEAVY_UNREAD_S = 5,    /* output lies untouched for it, then it may be dropped for others */
	HEAVY_KEPT = 64 << 10, /* no client with less unread is dropped */
};

/* Lies in a client; all zero but for the first three. */
struct heavy_place {
	uid_t uid;
	void (*begin)(struct heavy_place *place); /* it has its turn, until heavy_end */
	void (*drop)(struct heavy_place *place);  /* may end what it lies in */
	TAILQ_ENTRY(heavy_place) link, hold;
	bool waiting, working;
	size_t bytes;
	int64_t taken_ns; /* monotonic: when its bytes last grew from none, or shrank */
};

/* limit_bytes: held for all together before heavy requests wait. NULL without memory. */
struct heavy *heavy_create(struct event_base *base, int64_t limit_bytes);
void heavy_destroy(struct heavy *h); /* when no place waits or holds anything; takes NULL */

/* What lies unread at place by now. */
void heavy_hold(struct heavy *h, struct heavy_place *place, size_t bytes);
/* Who has output unread does not get more while that of all is too much. */
bool heavy_full(const struct heavy *h);

/* place->begin is called in a later round of the loop. */
void heavy_want(struct heavy *h, struct heavy_place *place);
/* It was answered, or waits no more; nothing happens where it does not wait or have its turn. */
void heavy_end(struct heavy *h, struct heavy_place *place);
/* It goes: it ends, and holds nothing. */
void heavy_forget(struct heavy *h, struct heavy_place *place);

#endif
