/*
 * ucx_wire.h: tagged messages between the ranks over UCX, and waiting for them with a deadline.
 * One thread at a time may be inside a wire; ucx_wire_fail and ucx_wire_error may be called from
 * any.
 *
 * Failures. Three things end a wait: nothing arrived or left for timeout_ns; a peer is lost (its
 * process ended, or UCX reports its connection broken); another rank says that it failed. Whoever
 * finds the first two tells the others, so that they need not wait for their own deadline. A wire
 * that failed is only good for ucx_wire_destroy.
 */
#ifndef GPT2D_ENGINE_COMM_UCX_WIRE_H
#define GPT2D_ENGINE_COMM_UCX_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ucp/api/ucp.h>

struct ucx_wire;

enum ucx_message_state { UCX_MESSAGE_FREE, UCX_MESSAGE_POSTED, UCX_MESSAGE_DONE };

/* One send or receive; it and its buffer stay where they are until it is done. */
struct ucx_message {
	enum ucx_message_state state;
	ucs_status_t status; /* once done */
	size_t bytes;        /* received */
	void *request;       /* UCX's, while posted */
	struct ucx_wire *wire;
};

enum { UCX_WIRE_WORLD_MAX = 1024, UCX_WIRE_ERROR_MAX = 256 };

struct ucx_wire_options {
	int rank, world;
	int64_t timeout_ns;
	/* that ranks on other nodes are reached through; NULL: all ranks are on this node */
	const char *interface;
};

/*
 * 0 or a negative errno; why gets what that does not say, else stays as it is, and UCX's reason is
 * on stderr. Sets UCX_* variables of the environment (the .c says which).
 */
int ucx_wire_create(
	const struct ucx_wire_options *options, struct ucx_wire **out, char *why, size_t why_bytes);

/*
 * Takes NULL. What was sent is flushed, for two seconds at most. After a failure it returns at
 * once, no peer is asked, and UCX's part is left to the end of the process, which should come soon.
 */
void ucx_wire_destroy(struct ucx_wire *w);

/* This rank's printable address; owned by w. */
const char *ucx_wire_address(const struct ucx_wire *w);

/* "1.13.1" */
const char *ucx_wire_version(const struct ucx_wire *w);

/* The transports in use: the value of UCX_TLS; owned by w. */
const char *ucx_wire_transports(const struct ucx_wire *w);

/* The network devices in use: the value of UCX_NET_DEVICES; NULL: no network is used. */
const char *ucx_wire_devices(const struct ucx_wire *w);

int64_t ucx_wire_timeout_ns(const struct ucx_wire *w);
void ucx_wire_set_timeout(struct ucx_wire *w, int64_t ns); /* for waits that begin from here on */

/* As collectives_connect. */
int ucx_wire_connect(struct ucx_wire *w, const char *const *addresses, const int *nodes,
	char *error, size_t error_bytes);

/*
 * Post a message. Tags are the caller's; a receive takes the message of exactly its tag, so the
 * sender must be part of it. The two highest bits of a tag are 0. A failure to post is found in
 * m->status.
 */
void ucx_wire_send(struct ucx_wire *w, int peer, uint64_t tag, const void *buf, size_t bytes,
	struct ucx_message *m);
void ucx_wire_receive(
	struct ucx_wire *w, uint64_t tag, void *buf, size_t bytes, struct ucx_message *m);

/* Start of a wait: the deadline counts from here. */
void ucx_wire_begin(struct ucx_wire *w);

/*
 * One turn of a wait: progress; after some turns without any, sleep until there is something. The
 * caller looks at its messages and comes again. 0, -ETIMEDOUT when nothing moved for timeout_ns, or
 * -ECANCELED when another rank failed (ucx_wire_error then holds what it said).
 */
int ucx_wire_turn(struct ucx_wire *w);

/*
 * Between waits: look at the peers' processes and at what other ranks told, without waiting. 0, or
 * a negative errno: the wire has failed then (by another rank's word: -ECANCELED).
 */
int ucx_wire_watch(struct ucx_wire *w);

/*
 * A message to or from a peer ended with an error: the peer counts as lost for that reason, unless
 * a better one turns up in the grace that follows: its process ended, or it told of a failure.
 */
void ucx_wire_mark_lost(struct ucx_wire *w, int peer, ucs_status_t status);

/* Why no more can be expected from or given to a peer; NULL while it may still live. */
const char *ucx_wire_peer_lost(struct ucx_wire *w, int peer);

/* Keep the first failure. */
void ucx_wire_fail(struct ucx_wire *w, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
const char *ucx_wire_error(const struct ucx_wire *w); /* NULL when none */

/* Tell the other ranks of this rank's failure, as far as that goes at once. */
void ucx_wire_tell(struct ucx_wire *w);

/* Take back what was posted to receive, as far as that goes at once; what is done stays done. */
void ucx_wire_cancel(struct ucx_wire *w, struct ucx_message *messages, int count);

#endif
