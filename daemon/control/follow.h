/*
 * follow.h: the events of each run, numbered from 1, and the clients that follow them. gpt2d sends
 * at most one step in 100 ms. It keeps the last events of a run, within limits, for later
 * followers. A follower whose buffer is full loses events, and its last event has their number.
 */
#ifndef GPT2D_DAEMON_CONTROL_FOLLOW_H
#define GPT2D_DAEMON_CONTROL_FOLLOW_H

#include <jansson.h>
#include <stdint.h>

#include "daemon/control/client.h"

struct event_base;
struct follow;

struct follow *follow_create(struct event_base *base);
void follow_destroy(struct follow *f); /* takes NULL */

/* Sends an event of run id to all its followers. Takes params, and adds id, seq and at. */
void follow_event(struct follow *f, int64_t id, const char *method, json_t *params);
/* A step, sent now or soon; the newest replaces an unsent one. Takes progress. */
void follow_step(struct follow *f, int64_t id, json_t *progress);
/* The newest progress, a new reference; JSON null: there is none. */
json_t *follow_progress(const struct follow *f, int64_t id);
/* The run is queued again, or has ended: discards its progress. */
void follow_clear_progress(struct follow *f, int64_t id);
/* The run has ended: its followers get done {state, reason, dir} as the last event. Takes done. */
void follow_end(struct follow *f, int64_t id, json_t *done);
/* The condition of the store has changed: an event for each run that has followers. */
void follow_store(struct follow *f, json_t *store);

/*
 * client follows the run. *seq: the number of the last event; *first: that of the oldest kept
 * event, or seq + 1. 0, or with nothing changed -EALREADY: it already follows the run, -E2BIG: it
 * follows too many runs. The caller sends the reply, then calls follow_replay.
 */
int follow_add(struct follow *f, int64_t id, struct client *client, int64_t *seq, int64_t *first);
/* The client gets the kept events numbered above after. */
void follow_replay(struct follow *f, int64_t id, struct client *client, int64_t after);
/* Removes a client whose connection closes. */
void follow_forget(struct follow *f, struct client *client);

/* The last event for a client that follows a run that has already ended. Takes done. */
void follow_ended(struct client *client, int64_t id, json_t *done);

#endif
