/*
 * shutdown.h: how gpt2d stops in good order. The run in progress ends or is interrupted, the
 * engines end, the ends of runs are written, and clients get their last replies and events.
 */
#ifndef GPT2D_DAEMON_SHUTDOWN_H
#define GPT2D_DAEMON_SHUTDOWN_H

#include <stdbool.h>

struct daemon;
struct event;

/* The event that performs one step of the shutdown: struct daemon's shutdown. NULL: error. */
struct event *shutdown_event(struct daemon *d);
/*
 * Stops gpt2d. now: interrupts the run in progress instead of waiting for it. May be called again.
 */
void shutdown_begin(struct daemon *d, bool now);
/* A condition of the shutdown may have changed. */
void shutdown_step(struct daemon *d);
/* Destroys the checker: clients that wait for a check get an error while it can be sent. */
void shutdown_stop_checks(struct daemon *d);

#endif
