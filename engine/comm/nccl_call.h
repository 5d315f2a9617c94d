/*
 * nccl_call.h: one collective of NCCL on this rank: how it is started, and what of it counts as
 * sent.
 */
#ifndef GPT2D_ENGINE_COMM_NCCL_CALL_H
#define GPT2D_ENGINE_COMM_NCCL_CALL_H

#include <nccl.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/comm/collectives.h"
#include "engine/comm/collectives_counted.h"

enum nccl_call_kind {
	NCCL_REDUCE_SCATTER,
	NCCL_ALL_GATHER,
	NCCL_ALL_REDUCE,
	NCCL_BROADCAST,
};

struct nccl_call {
	enum nccl_call_kind kind;
	enum collectives_counted counted;
	void *buf; /* device; in place */
	int64_t n; /* elements of type, a multiple of world where it is sliced */
	ncclDataType_t type;
	size_t elem_bytes;
	enum collectives_op op;
	int root; /* broadcast only */
};

/* As messages name it. */
const char *nccl_call_name(enum nccl_call_kind kind);

ncclResult_t nccl_call_start(
	const struct nccl_call *call, ncclComm_t comm, int rank, int world, cudaStream_t s);

/*
 * Elements that the other ranks get from this one, as the collectives over UCX count: an all_reduce
 * is a reduce-scatter and an all-gather of slices that differ by one element at most; one of few
 * integers or doubles goes whole to every rank.
 */
int64_t nccl_call_sent(const struct nccl_call *call, int rank, int world);

/* NCCL's type of the context's elements. */
ncclDataType_t nccl_call_elem_type(const struct k_context *ctx);

#endif
