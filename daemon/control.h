/*
 * control.h: the listening socket: who is let in, how many, and where they are found again.
 */
#ifndef GPT2D_CONTROL_H
#define GPT2D_CONTROL_H

#include "daemon/client.h"

struct control;
struct settings;

/*
 * Descriptors that clients leave to engines, the database and the files of runs; with fewer than
 * the second nobody could speak to gpt2d, its own user's gpt2ctl included.
 */
enum { CONTROL_DESCRIPTORS_KEPT = 64, CONTROL_DESCRIPTORS_MIN = CONTROL_DESCRIPTORS_KEPT + 16 };

struct control_options {
	struct client_options client;
	int fd; /* bound and not yet listening; owned by control from here on */
	const struct settings *settings; /* limits and admins, as they are at each time */
};

/* 0 or -ENOMEM. */
int control_create(const struct control_options *options, struct control **out);
void control_destroy(struct control *c); /* closes all; takes NULL */
/* Go on at another socket, as options.fd; who is connected stays. 0 or -ENOMEM. */
int control_listen(struct control *c, int fd);
void control_stop_listening(struct control *c);
bool control_idle(const struct control *c); /* nothing waits to be written */
int64_t control_clients(const struct control *c);
/* A client by its number; NULL when it has gone, or c is NULL. */
struct client *control_find(const struct control *c, uint64_t number);

#endif
