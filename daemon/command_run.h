/*
 * command_run.h: the requests about runs: show, list, follow, cancel, priority; rows of command.c's
 * table.
 */
#ifndef GPT2D_DAEMON_COMMAND_RUN_H
#define GPT2D_DAEMON_COMMAND_RUN_H

#include <jansson.h>

#include "daemon/runs/lifecycle.h"

struct daemon;
struct reply;

void command_show(struct daemon *d, struct reply *reply, json_t *params);
void command_list(struct daemon *d, struct reply *reply, json_t *params);
void command_follow(struct daemon *d, struct reply *reply, json_t *params);
void command_cancel(struct daemon *d, struct reply *reply, json_t *params);
void command_priority(struct daemon *d, struct reply *reply, json_t *params);

/* Drops the replies to clients that wait for the end of a run that they cancelled. */
void command_cancel_drop(struct daemon *d);
/* An observer of lifecycle.h, with arg a struct daemon: replies to them. */
void command_cancel_observe(void *arg, struct run *run, enum lifecycle_event event);
/* The store has begun to fail: an error to clients whose run has ended. */
void command_cancel_store_fails(struct daemon *d);

#endif
