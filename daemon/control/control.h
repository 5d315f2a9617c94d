/*
 * control.h: the listening socket: who is let in, and how many.
 */
#ifndef GPT2D_DAEMON_CONTROL_CONTROL_H
#define GPT2D_DAEMON_CONTROL_CONTROL_H

#include "daemon/control/client.h"

struct control;
struct settings;

/* With descriptors for fewer, its own user's gpt2ctl might not reach gpt2d. */
enum { CONTROL_CLIENTS_MIN = 16 };

/*
 * Descriptors that clients leave to the engines of so many ranks, the database and the files of
 * runs.
 */
int64_t control_descriptors_kept(int64_t ranks);

struct control_options {
	struct client_options client;
	int fd; /* bound and not yet listening; control's from the call on, also where that fails */
	const struct settings *settings; /* limits and admins, as they are at each time */
};

/* 0 or -ENOMEM. */
int control_create(const struct control_options *options, struct control **out);
void control_destroy(struct control *c); /* closes all; takes NULL */
/* Go on at another socket, as options.fd; who is connected stays. 0 or -ENOMEM. */
int control_listen(struct control *c, int fd);
void control_stop_listening(struct control *c);
bool control_idle(const struct control *c); /* nothing waits to be written */
/* Nobody is listened to any more: client_end_requests of all. Then whether all are served. */
void control_end_requests(struct control *c);
bool control_served(const struct control *c);
int64_t control_clients(const struct control *c);

#endif
