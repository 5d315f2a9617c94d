/*
 * queue.h: the runs in memory that have not ended, and the next one of them. Policy only: the store
 * has the durable state.
 */
#ifndef GPT2D_DAEMON_RUNS_QUEUE_H
#define GPT2D_DAEMON_RUNS_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/store/run.h"

struct queue;

/* For engines with this many ranks. */
struct queue *queue_create(int64_t ranks);
void queue_destroy(struct queue *q); /* also frees its runs; takes NULL */

/*
 * Inserts run in order: higher priority first, then lower ID, and last the runs that do not fit; q
 * owns run from here on.
 */
void queue_add(struct queue *q, struct run *run);
void queue_remove(struct queue *q, struct run *run); /* the caller owns it again */
struct run *queue_find(const struct queue *q, int64_t id);
/* Sets another priority and moves the run. */
void queue_set_priority(struct queue *q, struct run *run, int64_t priority);

/*
 * Whether there are enough ranks for the run. If gpt2d was restarted with fewer ranks after it
 * accepted the run, the run waits until there are enough.
 */
bool queue_fits(const struct queue *q, const struct run *run);
/* The queued run that starts next; NULL if none fits. */
struct run *queue_head(const struct queue *q);
/* The queued run after `after` (NULL: the first one). NULL: none. */
struct run *queue_next(const struct queue *q, const struct run *after);
int64_t queue_length(const struct queue *q); /* number of queued runs */

/* A run that has ended and is not on disk yet; NULL: none. */
struct run *queue_ending(const struct queue *q);

/* Calls each for every run; each may remove its run. */
void queue_each(struct queue *q, void (*each)(struct run *run, void *arg), void *arg);

#endif
