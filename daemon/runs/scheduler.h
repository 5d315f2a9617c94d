/*
 * scheduler.h: gives the segments of the run at the head of the queue to the engines, one after
 * another, and derives the run's states from the engines' reports. The scheduler sends the next
 * segment, also of the next run, as soon as one is trained, while its artifacts are still being
 * written. It prepares the next run in advance, takes and releases the engines as holds and queue
 * require, and ends runs that are too slow.
 */
#ifndef GPT2D_DAEMON_RUNS_SCHEDULER_H
#define GPT2D_DAEMON_RUNS_SCHEDULER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/store/run.h"

struct engine_pool;
struct event_base;
struct follow;
struct generation;
struct holds;
struct lifecycle;
struct queue;
struct run_log;
struct scheduler;
struct settings;
struct store;
struct worker;

struct scheduler_options {
	struct event_base *base;
	const struct settings *settings;
	const char *state_dir;
	struct store *store;
	struct worker *worker;
	struct queue *queue;
	struct lifecycle *lifecycle;
	struct holds *holds;
	struct engine_pool *pool;
	struct generation *generation; /* shares the engines with the runs */
	struct follow *follow;
	struct run_log *run_log;
	void (*changed)(void *arg); /* after each such check */
	void *arg;
};

struct scheduler *scheduler_create(const struct scheduler_options *options);
void scheduler_destroy(struct scheduler *s); /* takes NULL */

/*
 * The queue, a hold, the store or the engines changed: checks soon, but never before the caller
 * returns to the event loop, whether a segment can be sent and which engines are needed.
 */
void scheduler_wake(struct scheduler *s);

/* From the engines. */
void scheduler_message(struct scheduler *s, int rank, const char *method, json_t *params);
void scheduler_lost(struct scheduler *s, const char *reason);
void scheduler_gone(struct scheduler *s); /* all engine processes have ended */

/* 0; -EALREADY if the run is ending or nearly done: nothing is changed. */
int scheduler_cancel(struct scheduler *s, struct run *run);

/*
 * The engines will be stopped: interrupts the run in progress once they have ended, and queues it
 * again with restart, unless the engines have completed it. Trained runs may finish writing, unless
 * all. reason: "code: text".
 */
void scheduler_interrupt(struct scheduler *s, bool all, const char *reason);
/*
 * Interrupts the run in progress unless it is trained. The engines stay, and stop the segment
 * first. A run with restart is queued again.
 */
void scheduler_yield(struct scheduler *s, const char *reason);

bool scheduler_busy(const struct scheduler *s); /* a run has started and not ended */
/* The same, and its engines are not ending. */
bool scheduler_in_hand(const struct scheduler *s);
/* The run with the engines, NULL if none. */
struct run *scheduler_running(const struct scheduler *s);
/* Why that run is being cancelled or interrupted, "code: text"; NULL: it is not. */
const char *scheduler_stop_reason(const struct scheduler *s);

/*
 * null, or {since, after_s}: the engines ended because they were idle for after_s, and have not
 * started since.
 */
json_t *scheduler_idle_json(const struct scheduler *s);

#endif
