/* command.h: what a client may ask for: one table of verbs. */
#ifndef GPT2D_DAEMON_COMMAND_H
#define GPT2D_DAEMON_COMMAND_H

#include "daemon/control/reply.h"
#include "proto/rpc.h"

struct daemon;
struct run;

/* Answers the request, now or later. */
void command_handle(struct daemon *d, struct reply *reply, const struct rpc_message *message);

/* submit.h's queued, with arg a struct daemon: the reply to submit. */
void command_queued(void *arg, struct reply *reply, struct run *run);

/* The result of the method "status". */
json_t *command_status(const struct daemon *d);

#endif
