/*
 * lifecycle.h: the only code that changes a run's state. It checks each change against the table of
 * run.h, logs it, stores it and notifies the observers. Followers and observers see an end once it
 * is durable; then the run leaves memory.
 */
#ifndef GPT2D_DAEMON_RUNS_LIFECYCLE_H
#define GPT2D_DAEMON_RUNS_LIFECYCLE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/store/run.h"

struct follow;
struct lifecycle;
struct queue;
struct store;

struct lifecycle_options {
	struct store *store;
	struct queue *queue;
	struct follow *follow;
	const char *state_dir;
	int64_t *counts; /* number of runs by enum run_state, kept up to date by lifecycle */
};

struct lifecycle *lifecycle_create(const struct lifecycle_options *options);
void lifecycle_destroy(struct lifecycle *l); /* takes NULL */

enum lifecycle_event {
	LIFECYCLE_MOVED,  /* run->state is new and not yet durable */
	LIFECYCLE_STORED, /* run->state is durable; a run that has ended is freed afterwards */
};
enum { LIFECYCLE_OBSERVERS = 4 };
/* Observers are called in the order in which they were added. */
void lifecycle_observe(struct lifecycle *l,
	void (*changed)(void *arg, struct run *run, enum lifecycle_event event), void *arg);

/* A run that has just been stored as queued: the queue owns it from now on. */
void lifecycle_begin(struct lifecycle *l, struct run *run);

/*
 * 0, or -EINVAL if the table does not allow it. reason ("code: text") may be NULL. The run is not
 * freed before the caller returns to the event loop.
 */
int lifecycle_move(struct lifecycle *l, struct run *run, enum run_state to, const char *reason);

/* Whether the state of a run in memory is durable. */
bool lifecycle_stored(const struct run *run);

#endif
