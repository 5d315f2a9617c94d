/*
 * record_hold.h: what the store holds of hold.h: what keeps queued runs from starting, since when,
 * who wanted it and why.
 */
#ifndef GPT2D_DAEMON_STORE_RECORD_HOLD_H
#define GPT2D_DAEMON_STORE_RECORD_HOLD_H

#include <stdint.h>
#include <sys/types.h>

#include "daemon/store/store.h"

struct record_hold {
	const char *what; /* lives as long as the program */
	int64_t since_ns; /* UTC; 0: not held */
	uid_t uid;
	char reason[256]; /* empty: none was given */
};

/* done comes once it is durable, or with why it is not. 0, or -ENOMEM with nothing added. */
int record_hold_set(struct store *s, const struct record_hold *hold,
	void (*done)(void *arg, int rc), void *arg);

/* Before store_start: fills hold, whose what says which; not held when there is no row. */
int record_hold_read(struct store *s, struct record_hold *hold);

#endif
