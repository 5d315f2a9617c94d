/*
 * scheduler.h: gives the segments of the run at the head of the queue to the engines, one after
 * another, and makes of what they answer the run's states. The next segment, also of the next run,
 * is sent as soon as one is trained, while its artifacts are still being written; the next run is
 * made ready before it is needed.
 */
#ifndef GPT2D_DAEMON_RUNS_SCHEDULER_H
#define GPT2D_DAEMON_RUNS_SCHEDULER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/store/run.h"

struct daemon;
struct scheduler;

/* 0 or -ENOMEM. */
int scheduler_create(struct daemon *d, struct scheduler **out);
void scheduler_destroy(struct scheduler *s); /* takes NULL */

/* Something changed: look whether a segment can be sent. */
void scheduler_wake(struct scheduler *s);

/* From the engines. */
void scheduler_message(struct scheduler *s, int rank, const char *method, json_t *params);
void scheduler_lost(struct scheduler *s, const char *reason);
void scheduler_gone(struct scheduler *s); /* no process of them is left */

/* 0; -EALREADY when it is ending or nearly done: nothing is changed. */
int scheduler_cancel(struct scheduler *s, struct run *run);

/* Why a run is interrupted when gpt2d stops. */
extern const char scheduler_stopped[];
/*
 * Let go of what is in progress, as its engines are about to be stopped: once they are gone it is
 * interrupted, and queued again with restart, unless they have completed it. Runs whose work is
 * done and that are being written are left to finish unless all.
 */
void scheduler_interrupt(struct scheduler *s, bool all);
/*
 * Interrupt what is in progress and not yet trained, as the engines are wanted back; they let go of
 * it first. A run with restart is queued again.
 */
void scheduler_yield(struct scheduler *s, const char *reason);
bool scheduler_busy(const struct scheduler *s); /* a run has begun and not ended */
/* The same, and its engines are not ending. */
bool scheduler_in_hand(const struct scheduler *s);
/* The run that is with the engines, NULL when none. */
struct run *scheduler_running(const struct scheduler *s);
/* Whether that run is being cancelled or interrupted. */
bool scheduler_stopping(const struct scheduler *s);
/* Why it is: "code: text"; NULL: it is not. */
const char *scheduler_stop_reason(const struct scheduler *s);
/* Why run, the next one, cannot be made ready: the disk is full; NULL: another run, or it can. */
const struct store_failure *scheduler_lack(const struct scheduler *s, const struct run *run);

#endif
