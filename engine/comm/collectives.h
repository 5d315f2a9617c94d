/*
 * collectives.h: what the ranks of a run do together. Two implementations: collectives_ucx.c (host
 * memory, over UCX; CPU ranks) and collectives_nccl.c (device memory, over NCCL; CUDA ranks, which
 * meet over UCX). A world of 1 needs neither: every call is then a no-op on its buffer.
 *
 * A collective is asynchronous on the stream it is given, and all ranks of the group issue the same
 * collectives in the same order. Over UCX sums are taken in rank order (((g0 + g1) + g2) + ...), so
 * a sum has the same bits however the buffer was cut into buckets.
 *
 * Over UCX the collectives of one struct collectives run one after another in the order in which
 * they were issued, on whatever streams; every collective hears from every rank of the group, so
 * each is a barrier too. Ranks whose collectives differ in kind, size, type or root all get an
 * error, and nothing of a rank that disagrees is taken. Once a collective has failed, streams go on
 * and their buffers hold anything: look at collectives_error after a sync.
 *
 * Over NCCL sums are taken in NCCL's order, and a disagreement of the ranks is found by nobody: the
 * collective does not end, until the deadline does that. A thread watches peers, NCCL's errors and
 * the deadline, and aborts: so streams go on after a failure there too.
 */
#ifndef GPT2D_ENGINE_COMM_COLLECTIVES_H
#define GPT2D_ENGINE_COMM_COLLECTIVES_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

struct collectives; /* this process's place among all ranks of the daemon; lives with the engine */
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
	int64_t timeout_ns; /* without a message for this long a collective fails */
	/* that ranks on other nodes are reached through; NULL: all ranks are on this node */
	const char *interface;
};

/*
 * 0 or a negative errno; why gets what that does not say, else stays as it is. Over UCX: sets
 * UCX_* variables of the process (ucx_worker.c says which), so call it before other threads read
 * the environment. Inside a node no port is opened unless the user set UCX_TLS to say so.
 */
int collectives_create(const struct collectives_options *options, struct collectives **out,
	char *why, size_t why_bytes);
/*
 * After the streams it was used on were synced or destroyed. Takes NULL. Never waits for a peer
 * that is gone: after a failure the library's part is left to the end of the process, which should
 * come soon.
 */
void collectives_destroy(struct collectives *c);

/*
 * An interface must exist, be up and have an address, or collectives_create fails; NCCL takes it
 * too, unless the user set NCCL_SOCKET_IFNAME, whose value is then checked likewise.
 *
 * Bootstrap. address: what the other ranks need to reach this one, printable (base64), and it names
 * the UCX version and protocol settings, which must agree; owned by c. connect takes all ranks'
 * addresses in rank order, and nodes (nodes.h; NULL: all are on one) and returns once a message has
 * gone to and come from every peer; on failure error (NUL terminated) says which pairs and why, and
 * c is only good for collectives_destroy. Ranks on one node share memory; between nodes goes tcp on
 * the interface, or what the user set in UCX_TLS and UCX_NET_DEVICES.
 */
const char *collectives_address(const struct collectives *c);
int collectives_connect(struct collectives *c, const char *const *addresses, const int *nodes,
	char *error, size_t error_bytes);
/*
 * How long collectives of host memory wait for a message from here on, where peers may have much to
 * do first; 0: timeout_ns again. None is under way.
 */
void collectives_set_timeout(struct collectives *c, int64_t ns);
/* "UCX 1.13.1 (self,posix,cma)", "NCCL 2.28.9" */
const char *collectives_library(const struct collectives *c);

/* What carries the tensors; empty: not known. */
struct collectives_network {
	char name[32];     /* "IB", "Socket": NCCL's, also where nothing needs it; "UCX" */
	char devices[160]; /* of it: "[0]mlx5_0:1/IB [RO]", "eth0" */
	char paths[160];   /* between ranks: "P2P/CUMEM,NET/IB/GDRDMA"; UCX: those allowed */
	int gpu_direct;    /* 1: GPUDirect RDMA, 0: a network without it, -1: none, not known */
};
/* Complete once a collective has run. */
void collectives_network(struct collectives *c, struct collectives_network *out);

/*
 * The first `world` ranks; -EINVAL when this rank is not one of them. All of them call it, for NCCL
 * makes a communicator the first time; when that fails, a negative errno and collectives_error.
 */
int collectives_group(struct collectives *c, int world, struct collectives_group **out);
int collectives_rank(const struct collectives_group *g);
int collectives_world(const struct collectives_group *g);

/*
 * In place on buf (n elements of the compute type, n a multiple of world): slice r = n/world from
 * r*n/world. After reduce_scatter rank r's slice holds the sum, the other slices hold anything.
 */
void collectives_reduce_scatter(
	struct collectives_group *g, void *buf, int64_t n, struct k_stream *s);
/*
 * Collectives of one kind issued to one stream between begin and end may be run as one (a gather
 * bucket's). None of them has been started before end, so nothing is to wait for them before.
 */
void collectives_begin(struct collectives_group *g);
void collectives_end(struct collectives_group *g);
/* In place: every rank's slice goes to all. */
void collectives_all_gather(struct collectives_group *g, void *buf, int64_t n, struct k_stream *s);
/* In place on n elements; any n. */
void collectives_all_reduce(struct collectives_group *g, void *buf, int64_t n,
	enum collectives_type type, enum collectives_op op, struct k_stream *s);
void collectives_broadcast(
	struct collectives_group *g, void *buf, size_t bytes, int root, struct k_stream *s);
/* in (bytes) of every rank, in rank order, to out (world * bytes) of every rank; host memory,
 * small. NCCL: done when the call returns. */
void collectives_gather_all(
	struct collectives_group *g, void *out, const void *in, size_t bytes, struct k_stream *s);
void collectives_barrier(struct collectives_group *g, struct k_stream *s);

/*
 * Payload bytes this rank has sent to other ranks, by kind, since the group was made. all_reduce is
 * of elements alone, so that it can be held against plan_step_traffic; integers and doubles count
 * as other.
 */
struct collectives_bytes {
	int64_t reduce_scatter, all_gather, all_reduce, other;
};
void collectives_count(const struct collectives_group *g, struct collectives_bytes *out);
/* The fields of that struct, to count by. */
enum collectives_counted {
	COUNTED_REDUCE_SCATTER,
	COUNTED_ALL_GATHER,
	COUNTED_ALL_REDUCE,
	COUNTED_OTHER,
	COUNTED,
};

/* Sent between two counts. */
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

/* A step issues no more collectives than this. */
enum { COLLECTIVES_STEP_MAX = 2 * 4096 + 64 };

/* Beyond timeout_ns a graph may take so many times what it took before. */
enum { COLLECTIVES_GRAPH_TIMES = 4 };

/*
 * Around the launch on s of a graph that holds collectives: it counts as having sent so much.
 * about_ns: the longest that it, or what was captured, has taken; it is late once it takes
 * timeout_ns and COLLECTIVES_GRAPH_TIMES times that. Capturing counts too, though nothing is sent.
 */
void collectives_graph_begin(struct collectives_group *g, int64_t about_ns, struct k_stream *s);
void collectives_graph_end(
	struct collectives_group *g, const struct collectives_bytes *sent, struct k_stream *s);

/*
 * Memory that collectives take beyond the caller's buffers, of the kind the buffers are of, when
 * there are world ranks and a group of the first `ranks` of them; NCCL: an allowance.
 */
int64_t collectives_scratch_bytes(int world, int ranks);
/* How much of it collectives_group of that many ranks would still take. */
int64_t collectives_growth(const struct collectives *c, int ranks);

/*
 * First failure ("rank 2: no message for 30 s in reduce_scatter"), NULL when none. Later calls do
 * nothing. A rank that finds a failure tells the others, whose text then ends in "(reported by rank
 * 0)".
 */
const char *collectives_error(const struct collectives *c);

#endif
