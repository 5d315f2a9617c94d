/*
 * client.h: one connection to the control socket: its peer, its requests and its output, and the
 * limits of both. gpt2d reads one request of a client at a time, so replies keep the order of the
 * requests. While more than buffer_bytes of output wait, gpt2d reads no request and drops events.
 * If the client then reads nothing for idle_s, gpt2d closes the connection.
 */
#ifndef GPT2D_DAEMON_CONTROL_CLIENT_H
#define GPT2D_DAEMON_CONTROL_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/control/reply.h"
#include "proto/rpc.h"

struct event_base;

struct client_options {
	struct event_base *base;
	int64_t buffer_bytes; /* settings: client_buffer */
	int64_t idle_s;       /* settings: client_idle; also the time for a hello */
	/* A request, whose reply the callee owns. */
	void (*request)(struct reply *reply, const struct rpc_message *message, void *arg);
	void (*gone)(struct client *client, void *arg); /* the client is freed after the call */
	void *arg;
};

/* The client owns fd, and frees itself when its connection ends. */
struct client *client_create(
	const struct client_options *options, int fd, const struct client_peer *peer);
void client_destroy(struct client *client);

const struct client_peer *client_peer(const struct client *client);
bool client_greeted(const struct client *client);
void client_set_greeted(struct client *client);
size_t client_unwritten_bytes(const struct client *client);

/* False: the event is dropped, because the client's buffer is full or its connection is closing. */
bool client_event(struct client *client, const char *line, size_t n);
/* An event that is sent even if the buffer is full: the last one of a run. */
void client_last_event(struct client *client, const char *line, size_t n);

/* How many runs the client follows; a connection that follows runs is never closed as idle. */
void client_add_follows(struct client *client, int n);
int client_follows(const struct client *client);

/* Monotonic: time of the client's last request; INT64_MAX while it waits for a reply. */
int64_t client_idle_since_ns(const struct client *client);
/* Sends the client an error with the reason, and closes its connection. */
void client_dismiss(struct client *client, const char *why);

/* At the end of gpt2d: requests already sent get replies, and the kernel refuses more. */
void client_end_requests(struct client *client);
/* After that: every request has its reply, and the client has read everything. */
bool client_served(const struct client *client);

#endif
