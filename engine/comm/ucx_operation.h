/*
 * ucx_operation.h: one collective over UCX on this rank, as exchanges with each other rank of its
 * group.
 */
#ifndef GPT2D_ENGINE_COMM_UCX_OPERATION_H
#define GPT2D_ENGINE_COMM_UCX_OPERATION_H

#include "engine/comm/ucx_exchange.h"

struct ucx_operation {
	enum ucx_kind kind;
	void *buf;
	const void *in; /* gather_all only */
	int64_t n;      /* elements, or bytes for broadcast and gather_all */
	int root;       /* broadcast only */
	enum ucx_sum_type type;
	enum collectives_op op;
	bool elements; /* of the compute type: the plan's, not the engine's internal numbers */
	uint64_t sequence;
	/* its group */
	int rank, world;
	struct ucx_exchange *exchange;
	struct ucx_block *blocks; /* world, for its own use */
};

/*
 * Runs it, and adds the bytes that this rank has sent to *sent. 0, or a negative errno: then the
 * wire has failed.
 */
int ucx_operation_run(const struct ucx_operation *o, int64_t *sent);

#endif
