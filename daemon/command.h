/* command.h: the requests of clients, as one table of methods. */
#ifndef GPT2D_DAEMON_COMMAND_H
#define GPT2D_DAEMON_COMMAND_H

#include "daemon/control/reply.h"
#include "proto/rpc.h"

struct daemon;
struct run;

/* Replies now or later. */
void command_handle(struct daemon *d, struct reply *reply, const struct rpc_message *message);

/* The callback queued of submit.h, with arg a struct daemon: the reply to submit. */
void command_queued(void *arg, struct reply *reply, struct run *run);

/* The result of the method "status". */
json_t *command_status(const struct daemon *d);

#endif
