/*
 * cancel.h: who asked for a run to be cancelled and waits for the answer. It is given when it is
 * true: the run has ended and that is durable, or its work was done before the engines heard of it.
 */
#ifndef GPT2D_DAEMON_RUNS_CANCEL_H
#define GPT2D_DAEMON_RUNS_CANCEL_H

#include <stdbool.h>
#include <stdint.h>

struct cancels;
struct reply;
struct daemon;
struct run;

struct cancels *cancel_create(void);    /* NULL without memory */
void cancel_destroy(struct cancels *c); /* takes NULL */

/* A request to cancel a run that is in memory; it is answered now or later. */
void cancel_begin(struct daemon *d, struct reply *reply, struct run *run);
/* The run has the state in which it stays: answers who waits. late: it is not cancelled. */
void cancel_settled(struct daemon *d, const struct run *run, bool late);
/* The store fails: who waits for what has ended is told that it is not durable. */
void cancel_store_fails(struct daemon *d);

#endif
