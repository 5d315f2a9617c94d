/*
 * ucx_wire.h: tagged messages between the ranks over UCX, and waits for them with a deadline. One
 * thread at a time may use a wire; ucx_wire_fail and ucx_wire_error may be called from any.
 *
 * Failures. Three things end a wait: nothing arrived or left for timeout_ns; a peer is lost (its
 * process ended, or UCX reports its connection broken); another rank reports a failure. A rank that
 * detects one of the first two notifies the others, so that they need not wait for their own
 * deadline. A failed wire can only be destroyed.
 */
#ifndef GPT2D_ENGINE_COMM_UCX_WIRE_H
#define GPT2D_ENGINE_COMM_UCX_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ucp/api/ucp.h>

struct ucx_wire;

enum ucx_message_state { UCX_MESSAGE_FREE, UCX_MESSAGE_POSTED, UCX_MESSAGE_DONE };

/* One send or receive; it and its buffer must stay in place until it is done. */
struct ucx_message {
	enum ucx_message_state state;
	ucs_status_t status; /* once done */
	size_t bytes;        /* received */
	void *request;       /* private to UCX, while posted */
	struct ucx_wire *wire;
};

enum { UCX_WIRE_WORLD_MAX = 1024, UCX_WIRE_ERROR_MAX = 256 };

struct ucx_wire_options {
	int rank, world;
	int64_t timeout_ns;
	/* interface to ranks on other nodes; NULL: all ranks are on this node */
	const char *interface;
};

/*
 * 0 or a negative errno; why gets an explanation if the errno alone is not enough, else is
 * unchanged, and UCX's reason is on stderr. Sets UCX_* variables of the environment (see the .c
 * file).
 */
int ucx_wire_create(
	const struct ucx_wire_options *options, struct ucx_wire **out, char *why, size_t why_bytes);

/*
 * Takes NULL. Flushes sent messages, for two seconds at most. After a failure it returns at once
 * without contacting peers, and UCX's part is freed at the end of the process, which should come
 * soon.
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
void ucx_wire_set_timeout(struct ucx_wire *w, int64_t ns); /* for waits that begin from now on */

/* As collectives_connect. */
int ucx_wire_connect(struct ucx_wire *w, const char *const *addresses, const int *nodes,
	char *error, size_t error_bytes);

/*
 * Post a message. Tags are the caller's; a receive takes only a message with its tag, so the sender
 * must be part of the tag. The two highest bits of a tag are 0. If posting fails, m->status has the
 * error.
 */
void ucx_wire_send(struct ucx_wire *w, int peer, uint64_t tag, const void *buf, size_t bytes,
	struct ucx_message *m);
void ucx_wire_receive(
	struct ucx_wire *w, uint64_t tag, void *buf, size_t bytes, struct ucx_message *m);

/* Start of a wait: the deadline counts from here. */
void ucx_wire_begin(struct ucx_wire *w);

/*
 * One step of a wait: progress; after several steps without any, sleeps until there is some. The
 * caller then checks its messages and calls again. 0, -ETIMEDOUT if nothing moved for timeout_ns,
 * or -ECANCELED if another rank failed (ucx_wire_error then has its report).
 */
int ucx_wire_turn(struct ucx_wire *w);

/*
 * Between waits: checks the peers' processes and reports of other ranks, without waiting. 0, or a
 * negative errno: then the wire has failed (-ECANCELED: reported by another rank).
 */
int ucx_wire_watch(struct ucx_wire *w);

/*
 * A message to or from a peer ended with an error: the peer counts as lost for that reason, unless
 * a better one is found in the following grace time: its process ended, or it reported a failure.
 */
void ucx_wire_mark_lost(struct ucx_wire *w, int peer, ucs_status_t status);

/* Why a peer is lost; NULL while it may be alive. */
const char *ucx_wire_peer_lost(struct ucx_wire *w, int peer);

/* Keep the first failure. */
void ucx_wire_fail(struct ucx_wire *w, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
const char *ucx_wire_error(const struct ucx_wire *w); /* NULL when none */

/* Notify the other ranks of this rank's failure, as far as possible without waiting. */
void ucx_wire_tell(struct ucx_wire *w);

/* Cancel posted receives, as far as possible without waiting; completed ones stay. */
void ucx_wire_cancel(struct ucx_wire *w, struct ucx_message *messages, int count);

#endif
