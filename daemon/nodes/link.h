/*
 * link.h: one connection between two gpt2d: TCP, TLS 1.3 with a pre-shared key (tls.h), JSON-RPC
 * notifications, one per line, as on the control socket. The owner (members.c, relay.c) defines the
 * messages.
 */
#ifndef GPT2D_DAEMON_NODES_LINK_H
#define GPT2D_DAEMON_NODES_LINK_H

#include <jansson.h>
#include <stdint.h>
#include <sys/socket.h>

struct event_base;
struct link;
struct tls;

/* From the connection to link_keep: connect, handshake and hello. */
enum { LINK_HANDSHAKE_S = 5, LINK_NAME_BYTES = 80 };

struct link_options {
	struct event_base *base;
	struct tls *tls;
	void (*up)(struct link *link, void *arg); /* the peer has proved that it has the key */
	/* A notification; params is borrowed. */
	void (*message)(struct link *link, const char *method, json_t *params, void *arg);
	/* Called once, later: no more messages will come, and why. The owner destroys the link. */
	void (*down)(struct link *link, const char *why, void *arg);
	void *arg;
};

/* A connection that was accepted from this address; takes fd. */
struct link *link_accept(const struct link_options *options, int fd, const struct sockaddr *from);
/* from: the address to connect from, NULL: any. 0, or a negative errno. */
int link_connect(const struct link_options *options, const struct sockaddr *to,
	const struct sockaddr *from, struct link **out);
void link_destroy(struct link *link); /* drops what was not sent; takes NULL */

/* Changes the owner: later messages and the end go to the new one. */
void link_hand_over(struct link *link,
	void (*message)(struct link *link, const char *method, json_t *params, void *arg),
	void (*down)(struct link *link, const char *why, void *arg), void *arg);
/* The owner knows the peer: LINK_HANDSHAKE_S no longer applies. */
void link_keep(struct link *link);
/* Takes params. If the peer does not read, down() follows later. */
void link_send(struct link *link, const char *method, json_t *params);
/* Sends the rest, then closes; down() follows within about a second, without messages before it. */
void link_finish(struct link *link);

int link_peer(const struct link *link);         /* node ID, which up() was called for */
const char *link_name(const struct link *link); /* "10.0.0.2:41234" */

void link_format_address(const struct sockaddr *address, char out[LINK_NAME_BYTES]);
socklen_t link_address_bytes(const struct sockaddr *address);

#endif
