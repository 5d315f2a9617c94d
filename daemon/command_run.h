/*
 * command_run.h: the requests about runs: to see one, all, or what happens to one, and to end one;
 * rows of command.c's table.
 */
#ifndef GPT2D_DAEMON_COMMAND_RUN_H
#define GPT2D_DAEMON_COMMAND_RUN_H

#include <jansson.h>

#include "daemon/control/reply.h"

struct daemon;

/* Each answers the request, now or later; params are checked against the table. */
void command_show(struct daemon *d, struct reply *reply, json_t *params);
void command_list(struct daemon *d, struct reply *reply, json_t *params);
void command_follow(struct daemon *d, struct reply *reply, json_t *params);
void command_cancel(struct daemon *d, struct reply *reply, json_t *params);

#endif
