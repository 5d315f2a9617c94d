/*
 * prune.h: old runs go, with their files: asked for by "prune", or by the settings retain_runs
 * and retain_days when no run is with the engines, or many have ended without such a moment. Never
 * one that has not ended, nor one marked as kept.
 *
 * The directories of a run are moved to STATE_DIR/runs/.trash first: that decides it. Then they are
 * emptied, its rows are deleted, and the empty directories removed. What a gpt2d that went away has
 * left in the trash, the next one finishes (recover.h). A run whose folder is not there is not
 * removed by "prune" unless that says "forget": what gpt2d knows of it is all that leads to it.
 *
 * On a full disk there may be no room to delete rows. Then prune removes the files of all selected
 * runs first and deletes the rows after that.
 */
#ifndef GPT2D_DAEMON_RUNS_PRUNE_H
#define GPT2D_DAEMON_RUNS_PRUNE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct reply;
struct daemon;
struct pruner;

/* Empties the trash in the background, and keeps to the settings. */
int prune_create(struct daemon *d, struct pruner **out);
void prune_destroy(struct pruner *p); /* after worker_stop and store_close; takes NULL */

/* A run has ended: see soon whether another is to go. */
void prune_soon(struct pruner *p);
/* Whether a run is being removed, or is about to be. */
bool prune_has(const struct pruner *p, int64_t id);

/* The method "prune"; it answers the request, now or later. */
void prune_request(struct daemon *d, struct reply *reply, json_t *params);

#endif
