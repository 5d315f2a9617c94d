/*
 * submit.h: from a spec in a message to a stored run: parsed, its data below the data roots, every
 * distinct arm checked by the checker, written; then the reply. A dry run ends before it is
 * written.
 */
#ifndef GPT2D_DAEMON_RUNS_SUBMIT_H
#define GPT2D_DAEMON_RUNS_SUBMIT_H

#include <jansson.h>
#include <stdbool.h>

struct reply;
struct daemon;

/* Answers client's request, now or later. params has a member "spec", and may
 * have "priority" and "rerun_of". */
void submit_begin(struct daemon *d, struct reply *reply, json_t *params, bool dry_run);

#endif
