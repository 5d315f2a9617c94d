/*
 * listener.h: the leader's listening socket. It owns up to 64 connections that have not sent
 * node.hello. If there are more, it closes the oldest, so that slow connections cannot lock members
 * out. The log gets one line with the reason for each refused connection, at most 10 lines in 10 s.
 */
#ifndef GPT2D_DAEMON_NODES_LISTENER_H
#define GPT2D_DAEMON_NODES_LISTENER_H

#include <jansson.h>
#include <stddef.h>

struct event_base;
struct link;
struct listener;
struct tls;

enum { LISTENER_UNKNOWN_LEAST = 64 };

struct listener_options {
	struct event_base *base;
	struct tls *tls;
	const char *address;   /* ADDR:PORT; without ADDR that of interface */
	const char *interface; /* NULL: any */
	/*
	 * Limit of unauthenticated connections, at least LISTENER_UNKNOWN_LEAST, because all
	 * members
	 * 	   connect at once after a restart of the leader.
	 */
	int peers;
	/* The first message of a peer that has the key. The callee owns the link from here on. */
	void (*hello)(struct link *link, json_t *params, void *arg);
	void *arg;
};

/* 0, or a negative errno with error. */
int listener_create(const struct listener_options *options, struct listener **out, char *error,
	size_t error_bytes);
void listener_destroy(struct listener *l); /* takes NULL */

const char *listener_address(const struct listener *l); /* "10.0.0.1:7290", the port as bound */
/* Sends the reason to a peer that has the key, logs it, and closes the link, which l owns again. */
void listener_refuse(struct listener *l, struct link *link, const char *why);

#endif
