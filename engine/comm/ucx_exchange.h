/*
 * ucx_exchange.h: the communication pattern of all collectives: each rank of a group sends a block
 * to each other rank and receives one from it, all at once.
 *
 * A block travels as a head (the identity of the collective, and the block itself if it is small)
 * and pieces. Pieces are received only after the head matched, so ranks that disagree get an error
 * and the caller's memory is not touched. Received data is either stored in place or reduced in
 * rank order through scratch memory, piece by piece, while the next pieces are in flight.
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

/* What the ranks must agree on; compared whole, in native byte order. */
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
	void *receive; /* not used for a reduction */
	size_t receive_bytes;
};

struct ucx_exchange_args {
	struct ucx_head head;
	const struct ucx_block *blocks; /* head.world; the own one is not used */
	/*
	 * For a reduction: every receive_bytes is reduce_bytes, and dst = src0 op src1 ... with own
	 * as this rank's. dst may be own. NULL: no reduction.
	 */
	void *dst;
	const void *own;
	size_t reduce_bytes;
};

struct ucx_exchange;

/* For groups of at most world ranks. */
struct ucx_exchange *ucx_exchange_create(struct ucx_wire *wire, int rank, int world);
/* After ucx_wire_destroy, which may still complete messages of it. Takes NULL. */
void ucx_exchange_destroy(struct ucx_exchange *x);

/* Bytes of an exchange with this many ranks. */
int64_t ucx_exchange_bytes(int world);

/* The largest block that fits into the head. */
size_t ucx_exchange_inline_bytes(void);

/* 0, or a negative errno: then the wire has failed. */
int ucx_exchange_run(struct ucx_exchange *x, const struct ucx_exchange_args *args);

/*
 * The gather_all of every implementation: bytes of each rank to all, in rank order. head has
 * sequence and world; blocks: room for head->world.
 */
int ucx_exchange_gather(struct ucx_exchange *x, const struct ucx_head *head,
	struct ucx_block *blocks, void *out, const void *in, size_t bytes);

/* "reduce_scatter" */
const char *ucx_exchange_kind_name(enum ucx_kind kind);

#endif
