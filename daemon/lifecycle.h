/*
 * lifecycle.h: the one place where a run changes its state: checked against run.h's table, written
 * to the store, told to the followers, logged. A run that ended leaves memory when that is durable.
 */
#ifndef GPT2D_LIFECYCLE_H
#define GPT2D_LIFECYCLE_H

#include "daemon/run.h"

struct daemon;

/* A run that has just been stored as queued. */
void lifecycle_begin(struct daemon *d, struct run *run);

/*
 * 0, or -EINVAL when the table does not allow it. reason may be NULL. After a state that ends a run
 * the caller must not touch it again, unless it queues it again at once (restart).
 */
int lifecycle_move(struct daemon *d, struct run *run, enum run_state to, const char *reason);

#endif
