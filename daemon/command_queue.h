/*
 * command_queue.h: the requests about the queue as a whole and a run's place in it, rows of
 * command.c's table.
 */
#ifndef GPT2D_DAEMON_COMMAND_QUEUE_H
#define GPT2D_DAEMON_COMMAND_QUEUE_H

#include <jansson.h>

#include "daemon/control/reply.h"

struct daemon;

/* Each answers the request, now or later; params are checked against the table. */
void command_drain(struct daemon *d, struct reply *reply, json_t *params);
void command_resume(struct daemon *d, struct reply *reply, json_t *params);
void command_release(struct daemon *d, struct reply *reply, json_t *params);
void command_warm(struct daemon *d, struct reply *reply, json_t *params);
void command_priority(struct daemon *d, struct reply *reply, json_t *params);

#endif
