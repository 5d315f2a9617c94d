#include "daemon/runs/queue.h"

#include <stdlib.h>

#include "proto/host/memory.h"

struct queue {
	int64_t ranks;
	TAILQ_HEAD(runs_head, run) runs; /* in the order in which they start */
};

struct queue *queue_create(int64_t ranks)
{
	struct queue *q = memory_zeroed(1, sizeof(*q));

	q->ranks = ranks;
	TAILQ_INIT(&q->runs);
	return q;
}

void queue_destroy(struct queue *q)
{
	struct run *run;

	if (q == NULL)
		return;
	while ((run = TAILQ_FIRST(&q->runs)) != NULL) {
		TAILQ_REMOVE(&q->runs, run, link);
		free(run);
	}
	free(q);
}

bool queue_fits(const struct queue *q, const struct run *run)
{
	return run->gpus <= q->ranks;
}

/* Whether a starts before b. */
static bool earlier(const struct queue *q, const struct run *a, const struct run *b)
{
	if (queue_fits(q, a) != queue_fits(q, b))
		return queue_fits(q, a);
	return a->priority != b->priority ? a->priority > b->priority : a->id < b->id;
}

void queue_add(struct queue *q, struct run *run)
{
	struct run *before = TAILQ_LAST(&q->runs, runs_head);

	while (before != NULL && earlier(q, run, before))
		before = TAILQ_PREV(before, runs_head, link);
	if (before != NULL)
		TAILQ_INSERT_AFTER(&q->runs, before, run, link);
	else
		TAILQ_INSERT_HEAD(&q->runs, run, link);
}

void queue_remove(struct queue *q, struct run *run)
{
	TAILQ_REMOVE(&q->runs, run, link);
}

void queue_set_priority(struct queue *q, struct run *run, int64_t priority)
{
	queue_remove(q, run);
	run->priority = priority;
	queue_add(q, run);
}

struct run *queue_find(const struct queue *q, int64_t id)
{
	struct run *run;

	TAILQ_FOREACH(run, &q->runs, link)
		if (run->id == id)
			return run;
	return NULL;
}

struct run *queue_next(const struct queue *q, const struct run *after)
{
	struct run *run = after ? TAILQ_NEXT(after, link) : TAILQ_FIRST(&q->runs);

	while (run != NULL && run->state != RUN_QUEUED)
		run = TAILQ_NEXT(run, link);
	return run;
}

struct run *queue_head(const struct queue *q)
{
	struct run *run = queue_next(q, NULL);

	return run != NULL && queue_fits(q, run) ? run : NULL;
}

int64_t queue_length(const struct queue *q)
{
	struct run *run;
	int64_t n = 0;

	TAILQ_FOREACH(run, &q->runs, link)
		n += run->state == RUN_QUEUED;
	return n;
}

struct run *queue_ending(const struct queue *q)
{
	struct run *run;

	TAILQ_FOREACH(run, &q->runs, link)
		if (run->end_pending)
			break;
	return run;
}

void queue_each(struct queue *q, void (*each)(struct run *run, void *arg), void *arg)
{
	struct run *run = TAILQ_FIRST(&q->runs), *next;

	for (; run != NULL; run = next) {
		next = TAILQ_NEXT(run, link);
		each(run, arg);
	}
}
