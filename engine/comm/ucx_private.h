/*
 * ucx_private.h: the inside of struct ucx_wire, for its three files: ucx_worker.c (context, worker,
 * end), ucx_connect.c (endpoints, bootstrap) and ucx_progress.c (messages).
 */
#ifndef GPT2D_ENGINE_COMM_UCX_PRIVATE_H
#define GPT2D_ENGINE_COMM_UCX_PRIVATE_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <ucp/api/ucp.h>

#include "engine/comm/ucx_address.h"
#include "engine/comm/ucx_library.h"
#include "engine/comm/ucx_shm.h"
#include "engine/comm/ucx_wire.h"

/* Tags of the wire's own messages; callers' tags have both bits 0. */
#define UCX_WIRE_TAG_KIND_MASK (UINT64_C(3) << 62)
#define UCX_WIRE_TAG_HELLO     (UINT64_C(1) << 62) /* low bits: the sender's rank */
#define UCX_WIRE_TAG_FAILURE   (UINT64_C(2) << 62)

struct ucx_hello {
	uint64_t from, to; /* nonces */
};

struct ucx_peer {
	ucp_ep_h ep;
	struct ucx_wire *wire;
	int rank;
	bool remote;     /* on another node */
	bool reported;   /* UCX reports the end of this endpoint: UCP_ERR_HANDLING_MODE_PEER */
	int64_t lost_ns; /* 0: alive as far as is known */
	char lost_why[256];
	struct ucx_address address;
	/* messages and their data live as long as the worker, which may complete them last */
	struct ucx_hello hello_out, hello_in;
	struct ucx_message hello[2]; /* sent, received */
	struct ucx_message tell;
};

struct ucx_wire {
	int rank, world;
	int64_t timeout_ns;
	const char *interface; /* NULL: all ranks are on this node */
	ucp_context_h context;
	ucp_worker_h worker;
	bool connected;     /* exchanged hello with every peer */
	bool shares_memory; /* with peers on this node */
	bool uses_network;  /* some endpoints are in mode PEER */
	struct ucx_shm shm;
	struct ucx_library ucx;
	bool log_pushed;
	struct ucx_address own;
	char *own_text;
	char transports[64];
	struct ucx_peer *peers; /* world */
	struct pollfd *polled;  /* world pidfds (-1: not watched), then the worker's descriptor */
	char failure_report[UCX_WIRE_ERROR_MAX];
	struct ucx_message hear;
	char heard[UCX_WIRE_ERROR_MAX];
	/* number of waiting threads */
	uint64_t completions, seen; /* completed messages; their number when moved_ns was set */
	int64_t moved_ns;
	unsigned idle, turns;
	pthread_mutex_t error_lock;
	atomic_bool failed;
	char error[UCX_WIRE_ERROR_MAX];
};

void ucx_wire_listen(struct ucx_wire *w);
/* " (10.0.0.1%eth0 -> 10.0.0.2%eth0)" for a peer on another node, "" for one on this node. */
enum { UCX_PAIR_BYTES = 2 * INTERFACE_ADDRESS_BYTES + 8 };
const char *ucx_wire_pair(const struct ucx_wire *w, int peer, char out[UCX_PAIR_BYTES]);
/* flushes sent messages, until end_ns at most */
void ucx_wire_flush(struct ucx_wire *w, int64_t end_ns);

#endif
