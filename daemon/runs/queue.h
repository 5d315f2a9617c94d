/*
 * queue.h: the runs in memory, those that have not ended, and which of them comes next. Policy
 * only: the store has what is durable.
 */
#ifndef GPT2D_DAEMON_RUNS_QUEUE_H
#define GPT2D_DAEMON_RUNS_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/store/run.h"

struct queue;

/* For engines of so many ranks. */
struct queue *queue_create(int64_t ranks);
void queue_destroy(struct queue *q); /* and the runs in it; takes NULL */

/*
 * In its place: the higher priority first, of equals the lower id, and after all of them those that
 * do not fit; q owns run from here on.
 */
void queue_add(struct queue *q, struct run *run);
void queue_remove(struct queue *q, struct run *run); /* the caller owns it again */
struct run *queue_find(const struct queue *q, int64_t id);
/* Another priority, and the place that goes with it. */
void queue_set_priority(struct queue *q, struct run *run, int64_t priority);

/*
 * Whether there are the ranks that it asks for. A run was accepted when there were: gpt2d has been
 * started with fewer since, and it waits until there are enough again.
 */
bool queue_fits(const struct queue *q, const struct run *run);
/* The queued run that is the next to start; NULL when none fits. */
struct run *queue_head(const struct queue *q);
/* The queued run that comes next, after `after` (NULL: the very next). NULL: none. */
struct run *queue_next(const struct queue *q, const struct run *after);
/* Runs in state queued; those that start before run, for "position". */
int64_t queue_length(const struct queue *q);
int64_t queue_before(const struct queue *q, const struct run *run);

/* A run that has ended, which is not on disk yet; NULL: none. */
struct run *queue_ending(const struct queue *q);

/* Calls each for every run; each may remove the run it is given. */
void queue_each(struct queue *q, void (*each)(struct run *run, void *arg), void *arg);

#endif
