/*
 * follow.h: the events of each run, numbered, and who follows them. Steps are coalesced to one
 * event in 100 ms. The last events of a run are kept for those who come later, within bounds; a
 * follower whose buffer is full loses events and is told how many in the last one.
 */
#ifndef GPT2D_DAEMON_CONTROL_FOLLOW_H
#define GPT2D_DAEMON_CONTROL_FOLLOW_H

#include <jansson.h>
#include <stdint.h>

#include "daemon/control/client.h"
#include "daemon/store/run.h"

struct event_base;
struct follow;

struct follow *follow_create(
	struct event_base *base, const char *state_dir); /* NULL without memory */
void follow_destroy(struct follow *f);                   /* takes NULL */

/* An event to all who follow the run; takes params, to which id, seq and at are added. */
void follow_event(struct follow *f, struct run *run, const char *method, json_t *params);
/*
 * A step: sent now or, when the last one was a moment ago, soon; the newest wins. Takes progress.
 */
void follow_step(struct follow *f, struct run *run, json_t *progress);
/* The last progress of a run in progress, a new reference; JSON null when there is none. */
json_t *follow_progress(const struct run *run);
/* The run is queued again, which has been told: its progress was an earlier attempt's. */
void follow_again(struct run *run);
/* The store cannot be written any more, or again: failure_json. To those who follow now. */
void follow_store(struct follow *f, json_t *store);
/* The run has ended: run.done to everybody, and nothing is kept. */
void follow_end(struct follow *f, struct run *run);

/*
 * client follows run: the reply's numbers go to *seq (the last event's) and *first (that of the
 * oldest that is kept; seq + 1 when none is). Send the reply, then follow_replay: 0, or a negative
 * errno with nothing changed (-EALREADY: it does already; -E2BIG: it follows too many).
 */
int follow_add(
	struct follow *f, struct run *run, struct client *client, int64_t *seq, int64_t *first);
/* Kept events numbered above after. */
void follow_replay(struct follow *f, struct run *run, struct client *client, int64_t after);
/* A client that is being freed. */
void follow_forget(struct follow *f, struct client *client);

/* run.done for a run that had ended before anybody followed it. */
void follow_ended(struct client *client, const struct run *run, const char *dir);

#endif
