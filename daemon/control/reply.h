/*
 * reply.h: the reply to one request. The function that handles a request owns its reply and sends
 * it once, now or later. A reply outlives its client: if the client disconnects first, sending only
 * frees the reply.
 */
#ifndef GPT2D_DAEMON_CONTROL_REPLY_H
#define GPT2D_DAEMON_CONTROL_REPLY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/control/role.h"

struct client;
struct reply;
struct store;

/* valid after the client disconnected */
const struct client_peer *reply_peer(const struct reply *reply);
bool reply_wanted(const struct reply *reply); /* the client is connected */
/* NULL after the client disconnected */
struct client *reply_client(const struct reply *reply);

/* Each of these sends the reply and frees it. They take result and data. */
void reply_result(struct reply *reply, json_t *result);
void reply_error(struct reply *reply, int code, json_t *data, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* The same, and the connection closes once the client has read the error. */
void reply_error_and_close(struct reply *reply, int code, json_t *data, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* Frees the reply without sending it, for an owner that ends. Takes NULL. */
void reply_drop(struct reply *reply);

/* These refuse, as reply_error does. */
void reply_no_run(struct reply *reply, int64_t id); /* there is no run of that id */
void reply_of_nobody(struct reply *reply);          /* nobody owns runs: role.h */
/* The client may not change the run: role.h. */
void reply_not_owner(struct reply *reply, int64_t id, uid_t owner);
/* The store returned rc, a negative errno; id: the run for -ENOENT. */
void reply_unread(struct reply *reply, struct store *s, int64_t id, int rc);

/* For client.c: takes the request's id. send takes the line; n is 0 for a dropped reply. */
struct reply *reply_create(struct client *client, const struct client_peer *peer, json_t *id,
	void (*send)(struct client *client, char *line, size_t n, bool close));
void reply_forget_client(struct reply *reply); /* takes NULL */

#endif
