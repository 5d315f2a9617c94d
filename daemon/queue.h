/*
 * queue.h: the runs in memory, those that have not ended, and which of them comes next. Policy
 * only: what is durable stands in the store.
 */
#ifndef GPT2D_QUEUE_H
#define GPT2D_QUEUE_H

#include "daemon/run.h"

struct queue;

struct queue *queue_create(void);    /* NULL without memory */
void queue_destroy(struct queue *q); /* and the runs in it; takes NULL */

/* In its place: the higher priority first, of equals the lower id; q owns run from here on. */
void queue_add(struct queue *q, struct run *run);
void queue_remove(struct queue *q, struct run *run); /* the caller owns it again */
struct run *queue_find(const struct queue *q, int64_t id);
/* Another priority, and the place that goes with it. */
void queue_set_priority(struct queue *q, struct run *run, int64_t priority);

/* The queued run that starts next, after `after` (NULL: the very next). NULL: none. */
struct run *queue_next(const struct queue *q, const struct run *after);
/* Runs in state queued; those that start before run, for "position". */
int64_t queue_length(const struct queue *q);
int64_t queue_before(const struct queue *q, const struct run *run);

/* Calls each for every run; each may remove the run it is given. */
void queue_each(struct queue *q, void (*each)(struct run *run, void *arg), void *arg);

#endif
