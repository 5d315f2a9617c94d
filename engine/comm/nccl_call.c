#include "engine/comm/nccl_call.h"

static const char *const kind_names[] = {
	[NCCL_REDUCE_SCATTER] = "reduce_scatter",
	[NCCL_ALL_GATHER] = "all_gather",
	[NCCL_ALL_REDUCE] = "all_reduce",
	[NCCL_BROADCAST] = "broadcast",
};

const char *nccl_call_name(enum nccl_call_kind kind)
{
	return kind_names[kind];
}

ncclResult_t nccl_call_start(
	const struct nccl_call *call, ncclComm_t comm, int rank, int world, cudaStream_t s)
{
	ncclRedOp_t op = call->op == COLLECTIVES_MAX ? ncclMax : ncclSum;
	size_t n = (size_t)call->n, each = n / (size_t)world;
	char *own = (char *)call->buf + each * (size_t)rank * call->elem_bytes;

	switch (call->kind) {
	case NCCL_REDUCE_SCATTER:
		return ncclReduceScatter(call->buf, own, each, call->type, op, comm, s);
	case NCCL_ALL_GATHER:
		return ncclAllGather(own, call->buf, each, call->type, comm, s);
	case NCCL_ALL_REDUCE:
		return ncclAllReduce(call->buf, call->buf, n, call->type, op, comm, s);
	case NCCL_BROADCAST:
		break;
	}
	return ncclBroadcast(call->buf, call->buf, n, call->type, call->root, comm, s);
}

int64_t nccl_call_sent(const struct nccl_call *call, int rank, int world)
{
	int64_t others = world - 1, own = call->n / world;

	switch (call->kind) {
	case NCCL_REDUCE_SCATTER:
	case NCCL_ALL_GATHER:
		return own * others;
	case NCCL_ALL_REDUCE:
		if (call->counted == COUNTED_OTHER)
			return call->n * others;
		own += rank < call->n % world ? 1 : 0;
		return call->n - own + own * others;
	case NCCL_BROADCAST:
		break;
	}
	return rank == call->root ? call->n * others : 0;
}

ncclDataType_t nccl_call_elem_type(const struct k_context *ctx)
{
	switch (k_context_dtype(ctx)) {
	case K_BF16:
		return ncclBfloat16;
	case K_FP16:
		return ncclFloat16;
	case K_FP64:
		return ncclFloat64;
	case K_FP32:
	case K_TF32:
		break;
	}
	return ncclFloat32;
}
