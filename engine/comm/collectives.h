/*
 * collectives.h: collective operations of the ranks of a run. Two implementations:
 * collectives_ucx.c (host memory, over UCX; CPU ranks) and collectives_nccl.c (device memory, over
 * NCCL; CUDA ranks, which connect over UCX first). With one rank every call is a no-op on its
 * buffer.
 *
 * A collective is asynchronous on its stream, and all ranks of the group issue the same collectives
 * in the same order. Over UCX sums are taken in rank order (((g0 + g1) + g2) + ...), so a sum has
 * the same bits for any bucket sizes.
 *
 * Over UCX the collectives of one struct collectives run one after another in the order in which
 * they were issued, on any streams; every collective receives from every rank of the group, so each
 * is also a barrier. If ranks disagree in kind, size, type or root, all get an error, and no data
 * of the disagreeing rank is used. After a collective has failed, streams continue and their
 * buffers have undefined content: check collectives_error after a sync.
 *
 * Over NCCL sums are taken in NCCL's order, and nothing detects a disagreement of the ranks: the
 * collective hangs until the deadline ends it. A thread watches peers, NCCL's errors and the
 * deadline, and aborts; then streams continue as above.
 */
#ifndef GPT2D_ENGINE_COMM_COLLECTIVES_H
#define GPT2D_ENGINE_COMM_COLLECTIVES_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* this process's place among all ranks of the daemon; lives as long as the engine */
struct collectives;
struct collectives_group; /* the first `world` of those ranks; made once, kept over runs */

enum collectives_type {
	COLLECTIVES_ELEM, /* the compute type */
	COLLECTIVES_INT64,
	COLLECTIVES_DOUBLE,
};
enum collectives_op { COLLECTIVES_SUM, COLLECTIVES_MAX };

struct collectives_options {
	struct k_context *ctx;
	int rank;
	int world;          /* all ranks of all nodes */
	int64_t timeout_ns; /* a collective fails after this time without a message */
	/* interface to ranks on other nodes; NULL: all ranks are on this node */
	const char *interface;
};

/*
 * 0 or a negative errno; why gets an explanation if the errno alone is not enough, else is
 * unchanged. Over UCX: sets UCX_* variables of the process (see ucx_worker.c), so call it before
 * other threads read the environment. Within a node no port is opened unless the user's UCX_TLS
 * requires it.
 */
int collectives_create(const struct collectives_options *options, struct collectives **out,
	char *why, size_t why_bytes);
/*
 * After the streams it was used on were synced or destroyed. Takes NULL. Never waits for a lost
 * peer: after a failure the library's part is freed at the end of the process, which should come
 * soon.
 */
void collectives_destroy(struct collectives *c);

/*
 * An interface must exist, be up and have an address, or collectives_create fails; NCCL uses it
 * too, unless the user set NCCL_SOCKET_IFNAME, which is then checked in the same way.
 *
 * Bootstrap. address: printable (base64) data with which other ranks can connect to this one. It
 * also has the UCX version and protocol settings, which must agree; owned by c. connect takes all
 * ranks' addresses in rank order, and nodes (nodes.h; NULL: all are on one) and returns once a
 * message has gone to and come from every peer. On failure error (NUL terminated) names the pairs
 * and the reason, and c can only be destroyed. Ranks on one node share memory; between nodes they
 * use tcp on the interface, or the user's UCX_TLS and UCX_NET_DEVICES.
 */
const char *collectives_address(const struct collectives *c);
int collectives_connect(struct collectives *c, const char *const *addresses, const int *nodes,
	char *error, size_t error_bytes);
/*
 * Timeout of collectives of host memory from here on, for when peers may have much work first; 0:
 * timeout_ns again. No collective may be in progress.
 */
void collectives_set_timeout(struct collectives *c, int64_t ns);
/* "UCX 1.13.1 (self,posix,cma)", "NCCL 2.28.9" */
const char *collectives_library(const struct collectives *c);

/* The transport of tensors; empty: not known. */
struct collectives_network {
	char name[32];     /* "IB", "Socket": NCCL's, also if unused; "UCX" */
	char devices[160]; /* of it: "[0]mlx5_0:1/IB [RO]", "eth0" */
	/* between ranks: "P2P/CUMEM,NET/IB/GDRDMA"; UCX: the allowed transports */
	char paths[160];
	int gpu_direct; /* 1: GPUDirect RDMA, 0: a network without it, -1: none, not known */
};
/* Completes once a collective has run. */
void collectives_network(struct collectives *c, struct collectives_network *out);

/*
 * The first `world` ranks; -EINVAL if this rank is not one of them. All of them must call it,
 * because NCCL makes a communicator the first time; if that fails, a negative errno and
 * collectives_error.
 */
int collectives_group(struct collectives *c, int world, struct collectives_group **out);
int collectives_rank(const struct collectives_group *g);
int collectives_world(const struct collectives_group *g);

/*
 * In place on buf (n elements of the compute type, n a multiple of world): slice r = n/world from
 * r*n/world. After reduce_scatter rank r's slice has the sum; the other slices are undefined.
 */
void collectives_reduce_scatter(
	struct collectives_group *g, void *buf, int64_t n, struct k_stream *s);
/*
 * Collectives of one kind on one stream between begin and end may run as one (a gather bucket's).
 * None of them starts before end, so do not wait for them earlier.
 */
void collectives_begin(struct collectives_group *g);
void collectives_end(struct collectives_group *g);
/* In place: each rank's slice is sent to all. */
void collectives_all_gather(struct collectives_group *g, void *buf, int64_t n, struct k_stream *s);
/* In place on n elements; any n. */
void collectives_all_reduce(struct collectives_group *g, void *buf, int64_t n,
	enum collectives_type type, enum collectives_op op, struct k_stream *s);
void collectives_broadcast(
	struct collectives_group *g, void *buf, size_t bytes, int root, struct k_stream *s);
/*
 * Gathers in (bytes) of every rank, in rank order, to out (world * bytes) on every rank; host
 * memory, small. NCCL: done when the call returns.
 */
void collectives_gather_all(
	struct collectives_group *g, void *out, const void *in, size_t bytes, struct k_stream *s);
void collectives_barrier(struct collectives_group *g, struct k_stream *s);

/*
 * Payload bytes that this rank has sent to other ranks, by kind, since the group was made.
 * all_reduce counts elements only, for comparison with plan_step_traffic; integers and doubles
 * count as other.
 */
struct collectives_bytes {
	int64_t reduce_scatter, all_gather, all_reduce, other;
};
void collectives_count(const struct collectives_group *g, struct collectives_bytes *out);
/* The fields of that struct, for counting. */
enum collectives_counted {
	COUNTED_REDUCE_SCATTER,
	COUNTED_ALL_GATHER,
	COUNTED_ALL_REDUCE,
	COUNTED_OTHER,
	COUNTED,
};

/* Bytes sent between two counts. */
static inline struct collectives_bytes collectives_between(
	const struct collectives_bytes *before, const struct collectives_bytes *after)
{
	return (struct collectives_bytes){
		.reduce_scatter = after->reduce_scatter - before->reduce_scatter,
		.all_gather = after->all_gather - before->all_gather,
		.all_reduce = after->all_reduce - before->all_reduce,
		.other = after->other - before->other,
	};
}

/* Maximum of collectives in a step. */
enum { COLLECTIVES_STEP_MAX = 2 * 4096 + 64 };

/* A graph may take timeout_ns plus this many times its longest earlier time. */
enum { COLLECTIVES_GRAPH_TIMES = 4 };

/*
 * Around the launch on s of a graph with collectives, which counts as having sent this much.
 * about_ns: the longest earlier time of the graph, or of the captured operations. The graph is late
 * after timeout_ns plus COLLECTIVES_GRAPH_TIMES times that. Also for the capture, which sends
 * nothing.
 */
void collectives_graph_begin(struct collectives_group *g, int64_t about_ns, struct k_stream *s);
void collectives_graph_end(
	struct collectives_group *g, const struct collectives_bytes *sent, struct k_stream *s);

/*
 * Memory of collectives beyond the caller's buffers, of the same kind, with world ranks and a group
 * of the first `ranks` of them; NCCL: an allowance.
 */
int64_t collectives_scratch_bytes(int world, int ranks);
/* The part of it that collectives_group with this many ranks still has to allocate. */
int64_t collectives_growth(const struct collectives *c, int ranks);

/*
 * First failure ("rank 2: no message for 30 s in reduce_scatter"), NULL if none. Later calls do
 * nothing. A rank that detects a failure notifies the others, whose text then ends in "(reported by
 * rank 0)".
 */
const char *collectives_error(const struct collectives *c);

#endif
