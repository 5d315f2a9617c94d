/*
 * reconcile.h: what the store holds when gpt2d starts, made true: no run is starting or running any
 * more. One that had begun and whose marker is on disk is done; the others are interrupted, have no
 * marker any more, and are queued again when their spec says so. Queued ones keep their order, but
 * for one whose folder says that it is done: it is. Of runs that have ended otherwise no folder
 * says so (unmark.h).
 */
#ifndef GPT2D_DAEMON_RUNS_RECONCILE_H
#define GPT2D_DAEMON_RUNS_RECONCILE_H

#include <stddef.h>

struct daemon;

/* Before the loop and the store's thread: fills queue and counts. 0, or a negative errno with
 * error. */
int reconcile_runs(struct daemon *d, char *error, size_t error_bytes);

#endif
