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
/* Stops gpt2d. now: interrupts the run in progress, else waits for it. May be called again. */
void shutdown_begin(struct daemon *d, bool now);
/* Something that the shutdown waits for may have happened. */
void shutdown_step(struct daemon *d);
/* Destroys the checker: clients that wait for a check get an error while it can be sent. */
void shutdown_stop_checks(struct daemon *d);

#endif
