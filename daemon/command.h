/* command.h: what a client may ask for: one table of verbs. */
#ifndef GPT2D_DAEMON_COMMAND_H
#define GPT2D_DAEMON_COMMAND_H

#include "daemon/control/client.h"

struct daemon;

/* Answers the request, now or later. */
void command_handle(struct daemon *d, struct client *client, const struct rpc_message *message);

#endif
