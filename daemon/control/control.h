/*
 * control.h: the control socket: gpt2d binds it, accepts clients, and limits how many. If somebody
 * removes the socket while gpt2d runs, gpt2d binds it again within 2 s; connected clients stay.
 */
#ifndef GPT2D_DAEMON_CONTROL_CONTROL_H
#define GPT2D_DAEMON_CONTROL_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/control/client.h"

struct control;
struct settings;

struct control_options {
	struct client_options client;
	const char *socket; /* absolute; its lock is held (place.h); outlives the control */
	const struct settings *settings; /* current limits and admins; outlives the control */
};

/* Binds the socket and listens: 0, or a negative errno with error. */
int control_create(const struct control_options *options, struct control **out, char *error,
	size_t error_bytes);
void control_destroy(struct control *c); /* closes every connection; takes NULL */

int64_t control_clients(const struct control *c);

/* At the end of gpt2d. */
void control_stop_listening(struct control *c); /* also removes the socket if it is still gpt2d's */
bool control_idle(const struct control *c);     /* no output waits to be read */
void control_end_requests(struct control *c);   /* client_end_requests of all clients */
bool control_served(const struct control *c);   /* client_served of all clients */

#endif
