/*
 * lifecycle.h: the one place where a run changes its state: checked against run.h's table, written
 * to the store, told to the followers, logged. A run that ended leaves memory when that is durable,
 * never before the caller returns to the loop.
 */
#ifndef GPT2D_DAEMON_RUNS_LIFECYCLE_H
#define GPT2D_DAEMON_RUNS_LIFECYCLE_H

#include <stdbool.h>

#include "daemon/store/run.h"

struct daemon;

/* A run that has just been stored as queued. */
void lifecycle_begin(struct daemon *d, struct run *run);

/*
 * 0, or -EINVAL when the table does not allow it. reason may be NULL. Needs no memory: where there
 * is none to hand the new state to the store, lifecycle_retry does it later.
 */
int lifecycle_move(struct daemon *d, struct run *run, enum run_state to, const char *reason);

/* Whether the state of a run that is in memory is durable. */
bool lifecycle_stored(const struct run *run);

/* The store cannot be written: who follows a run that has ended is told that this is not stored. */
void lifecycle_store_fails(struct daemon *d);

/* To be called from time to time: states that could not be handed to the store. */
void lifecycle_retry(struct daemon *d);

#endif
