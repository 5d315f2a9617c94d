/*
 * client.h: one client of the control socket: who it is (the kernel says), its lines in, its lines
 * out, and the bounds of both. One request at a time: the next line is looked at when the one
 * before has been answered, so replies keep the order of requests.
 */
#ifndef GPT2D_DAEMON_CONTROL_CLIENT_H
#define GPT2D_DAEMON_CONTROL_CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/control/reply.h"
#include "proto/rpc.h"

struct event_base;
struct client;
struct budget;
struct turns;

struct client_options {
	struct event_base *base;
	struct turns *turns;   /* in which lines of clients are handled, outlives them all */
	struct budget *budget; /* what they hold, and whose turn it is; outlives them all */
	int64_t buffer_bytes;  /* output held before events are dropped and no request is taken */
	int64_t hello_s;       /* a client that says nothing for it before its hello is let go */
	/* A request, whose reply the callee owns. */
	void (*request)(struct reply *reply, const struct rpc_message *message, void *arg);
	void (*gone)(struct client *client, void *arg); /* about to be freed */
	void *arg;
};

/* 0 and the client owns fd, or -ENOMEM. It frees itself when it has nothing more to do. */
int client_create(const struct client_options *options, int fd, const struct client_peer *peer,
	struct client **out);
void client_destroy(struct client *client); /* at once, or when its callback returns */

const struct client_peer *client_peer(const struct client *client);
bool client_greeted(const struct client *client);
void client_set_greeted(struct client *client);
size_t client_unwritten_bytes(const struct client *client);

/*
 * The answer may be large: the same request comes again when it is its turn, a few such
 * requests of all clients at a time; then client_has_turn, until it is answered.
 */
void client_wait_turn(
	struct client *client, struct reply *reply, const struct rpc_message *message);
bool client_has_turn(const struct client *client);

/* An event: true, or false when the client's buffer is full and it was dropped. must: never
 * dropped. */
bool client_event(struct client *client, const char *line, size_t n, bool must);

/* Since when it has nothing to do here and says nothing, monotonic; INT64_MAX when it has. */
int64_t client_idle_since_ns(const struct client *client);
/*
 * Nothing more is taken from it: what it has sent is answered, and what it sends from now on is
 * refused by the system, so that it knows that it was not taken.
 */
void client_end_requests(struct client *client);
/* After that: all has been answered, and nothing waits to be written. */
bool client_served(const struct client *client);
/* The connection ends, soon: what the client had to be told cannot be. */
void client_hang_up(struct client *client);
/* It goes, and is told why when it reads what it gets. */
void client_dismiss(struct client *client, const char *why);

/* Runs it waits for; a client that has ended its side is kept while there are any. */
void client_add_follows(struct client *client, int n);
int client_follows(const struct client *client);

#endif
