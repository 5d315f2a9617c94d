/*
 * reply.h: the answer to one request. Whoever handles the request owns its reply and answers it
 * once, at once or later. A reply outlives its client: when the client goes first, an answer sends
 * nothing and only frees the reply.
 */
#ifndef GPT2D_DAEMON_CONTROL_REPLY_H
#define GPT2D_DAEMON_CONTROL_REPLY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "daemon/control/role.h"

struct client;
struct reply;

const struct client_peer *reply_peer(const struct reply *reply); /* valid after the client went */
bool reply_wanted(const struct reply *reply);                    /* the client is still there */
struct client *reply_client(const struct reply *reply);          /* NULL after the client went */

/* Each of these answers and frees the reply. They take result and data. */
void reply_result(struct reply *reply, json_t *result);
void reply_error(struct reply *reply, int code, json_t *data, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* The same, and the connection ends once the client has read the error. */
void reply_error_and_close(struct reply *reply, int code, json_t *data, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* Frees the reply without an answer, for an owner that ends. Takes NULL. */
void reply_drop(struct reply *reply);

/* For client.c: takes the request's id. send takes the line; n is 0 for a dropped reply. */
struct reply *reply_create(struct client *client, const struct client_peer *peer, json_t *id,
	void (*send)(struct client *client, char *line, size_t n, bool close));
void reply_forget_client(struct reply *reply); /* takes NULL */

#endif
