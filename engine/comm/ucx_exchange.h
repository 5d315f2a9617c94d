/*
 * ucx_exchange.h: the one pattern under every collective: each rank of a group sends a block to
 * each other rank and receives one from it, all at once.
 *
 * A block travels as a head (what collective this is, and the block itself when it is small) and
 * pieces. Pieces are received only once the head was found to speak of the same collective, so
 * ranks that disagree get an error and no byte of the caller's memory is touched. What comes in is
 * either put where it belongs or reduced in rank order through scratch memory, piece by piece, the
 * next ones in flight meanwhile.
 */
#ifndef GPT2D_ENGINE_COMM_UCX_EXCHANGE_H
#define GPT2D_ENGINE_COMM_UCX_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/comm/collectives.h"
#include "engine/comm/ucx_sum.h"
#include "engine/comm/ucx_wire.h"

enum ucx_kind {
	UCX_REDUCE_SCATTER,
	UCX_ALL_GATHER,
	UCX_ALL_REDUCE,
	UCX_BROADCAST,
	UCX_GATHER_ALL,
	UCX_BARRIER,
};

/* What the ranks must agree on; compared whole, native byte order. */
struct ucx_head {
	uint64_t sequence; /* collectives of this group before this one */
	int64_t n;         /* elements, or bytes for broadcast and gather_all */
	uint16_t kind;     /* enum ucx_kind */
	uint16_t phase;    /* 1: the all-gather half of an all_reduce */
	uint16_t world;
	uint16_t root;
	uint16_t type; /* enum ucx_sum_type */
	uint16_t op;   /* enum collectives_op */
	uint32_t zero;
};

struct ucx_block {
	const void *send;
	size_t send_bytes;
	void *receive; /* not used when reducing */
	size_t receive_bytes;
};

struct ucx_exchange_args {
	struct ucx_head head;
	const struct ucx_block *blocks; /* head.world; the own one is not looked at */
	/*
	 * Reducing: every receive_bytes is reduce_bytes, and dst = src0 op src1 ... with own as
	 * this rank's. dst may be own. NULL: not reducing.
	 */
	void *dst;
	const void *own;
	size_t reduce_bytes;
};

struct ucx_exchange;

/* For groups of at most world ranks. 0 or -ENOMEM. */
int ucx_exchange_create(struct ucx_wire *wire, int rank, int world, struct ucx_exchange **out);
/* After ucx_wire_destroy, which may still end messages of it. Takes NULL. */
void ucx_exchange_destroy(struct ucx_exchange *x);

/* Bytes of an exchange of that many ranks. */
int64_t ucx_exchange_bytes(int world);

/* The largest block that travels inside the head. */
size_t ucx_exchange_inline_bytes(void);

/* 0, or a negative errno: the wire has failed then. */
int ucx_exchange_run(struct ucx_exchange *x, const struct ucx_exchange_args *args);

/*
 * The gather_all of every implementation: bytes of each rank to all, in rank order. head says
 * sequence and world; blocks: room for head->world.
 */
int ucx_exchange_gather(struct ucx_exchange *x, const struct ucx_head *head,
	struct ucx_block *blocks, void *out, const void *in, size_t bytes);

/* "reduce_scatter" */
const char *ucx_exchange_kind_name(enum ucx_kind kind);

#endif
