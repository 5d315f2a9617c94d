/*
 * command_hold.h: the requests drain, resume, release and warm, and the clients that wait until
 * they have taken effect; rows of command.c's table.
 */
#ifndef GPT2D_DAEMON_COMMAND_HOLD_H
#define GPT2D_DAEMON_COMMAND_HOLD_H

#include <jansson.h>

struct daemon;
struct reply;

void command_drain(struct daemon *d, struct reply *reply, json_t *params);
void command_resume(struct daemon *d, struct reply *reply, json_t *params);
void command_release(struct daemon *d, struct reply *reply, json_t *params);
void command_warm(struct daemon *d, struct reply *reply, json_t *params);

/* Runs, holds or engines changed: replies to clients that waited for this. */
void command_hold_reply(struct daemon *d);
/* The engines were lost: an error to clients that wait for them. */
void command_hold_engines_lost(struct daemon *d, const char *reason);
/* gpt2d is stopping: an error to all clients that wait. */
void command_hold_stop(struct daemon *d);
/* Drops the replies to clients that still wait. */
void command_hold_drop(struct daemon *d);

#endif
