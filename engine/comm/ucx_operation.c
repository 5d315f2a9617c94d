#include "engine/comm/ucx_operation.h"

#include <string.h>

/* First element of slice r of n elements in world slices that differ by one at most. */
static int64_t slice_first(int64_t n, int world, int r)
{
	int64_t rest = n % world;

	return n / world * r + (r < rest ? r : rest);
}

static size_t slice_bytes(const struct ucx_operation *o, int r)
{
	int world = o->world;

	return (size_t)(slice_first(o->n, world, r + 1) - slice_first(o->n, world, r)) *
		ucx_sum_elem_bytes(o->type);
}

static char *slice_at(const struct ucx_operation *o, int r)
{
	return (char *)o->buf +
		(size_t)slice_first(o->n, o->world, r) * ucx_sum_elem_bytes(o->type);
}

static int exchange(
	const struct ucx_operation *o, int phase, void *dst, const void *own, size_t reduce_bytes)
{
	struct ucx_exchange_args args = {
		.head =
			{
				.sequence = o->sequence,
				.n = o->n,
				.kind = (uint16_t)o->kind,
				.phase = (uint16_t)phase,
				.world = (uint16_t)o->world,
				.root = (uint16_t)o->root,
				.type = (uint16_t)o->type,
				.op = (uint16_t)o->op,
			},
		.blocks = o->blocks,
		.dst = dst,
		.own = own,
		.reduce_bytes = reduce_bytes,
	};

	return ucx_exchange_run(o->exchange, &args);
}

/* Bytes sent are counted when the exchange has succeeded. */
static int count_sent(int status, size_t bytes, int64_t *sent)
{
	if (status == 0)
		*sent += (int64_t)bytes;
	return status;
}

static int run_reduce_scatter(const struct ucx_operation *o, int64_t *sent)
{
	size_t bytes = 0;
	char *own = slice_at(o, o->rank);
	size_t own_bytes = slice_bytes(o, o->rank);

	for (int p = 0; p < o->world; p++) {
		o->blocks[p] =
			(struct ucx_block){slice_at(o, p), slice_bytes(o, p), NULL, own_bytes};
		bytes += p == o->rank ? 0 : o->blocks[p].send_bytes;
	}
	return count_sent(exchange(o, 0, own, own, own_bytes), bytes, sent);
}

static int gather_slices(const struct ucx_operation *o, int phase, int64_t *sent)
{
	char *own = slice_at(o, o->rank);
	size_t own_bytes = slice_bytes(o, o->rank);

	for (int p = 0; p < o->world; p++)
		o->blocks[p] =
			(struct ucx_block){own, own_bytes, slice_at(o, p), slice_bytes(o, p)};
	return count_sent(
		exchange(o, phase, NULL, NULL, 0), own_bytes * (size_t)(o->world - 1), sent);
}

static int run_all_gather(const struct ucx_operation *o, int64_t *sent)
{
	return gather_slices(o, 0, sent);
}

/* A few integers or doubles are sent whole to every rank, in one round. */
static int run_small_all_reduce(const struct ucx_operation *o, int64_t *sent)
{
	size_t bytes = (size_t)o->n * ucx_sum_elem_bytes(o->type);

	for (int p = 0; p < o->world; p++)
		o->blocks[p] = (struct ucx_block){o->buf, bytes, NULL, bytes};
	return count_sent(
		exchange(o, 0, o->buf, o->buf, bytes), bytes * (size_t)(o->world - 1), sent);
}

static int run_all_reduce(const struct ucx_operation *o, int64_t *sent)
{
	int status;

	if (!o->elements &&
		(size_t)o->n * ucx_sum_elem_bytes(o->type) <= ucx_exchange_inline_bytes())
		return run_small_all_reduce(o, sent);
	status = run_reduce_scatter(o, sent);
	return status != 0 ? status : gather_slices(o, 1, sent);
}

static int run_broadcast(const struct ucx_operation *o, int64_t *sent)
{
	size_t bytes = (size_t)o->n, sends = o->rank == o->root ? bytes : 0;

	for (int p = 0; p < o->world; p++)
		o->blocks[p] = (struct ucx_block){o->buf, sends, o->buf, p == o->root ? bytes : 0};
	return count_sent(exchange(o, 0, NULL, NULL, 0), sends * (size_t)(o->world - 1), sent);
}

static int run_gather_all(const struct ucx_operation *o, int64_t *sent)
{
	struct ucx_head head = {.sequence = o->sequence, .world = (uint16_t)o->world};
	size_t bytes = (size_t)o->n;
	int status = ucx_exchange_gather(o->exchange, &head, o->blocks, o->buf, o->in, bytes);

	return count_sent(status, bytes * (size_t)(o->world - 1), sent);
}

static int run_barrier(const struct ucx_operation *o, int64_t *sent)
{
	memset(o->blocks, 0, (size_t)o->world * sizeof *o->blocks);
	return exchange(o, 0, NULL, NULL, 0);
}

int ucx_operation_run(const struct ucx_operation *o, int64_t *sent)
{
	static int (*const runs[])(const struct ucx_operation *o, int64_t *sent) = {
		[UCX_REDUCE_SCATTER] = run_reduce_scatter,
		[UCX_ALL_GATHER] = run_all_gather,
		[UCX_ALL_REDUCE] = run_all_reduce,
		[UCX_BROADCAST] = run_broadcast,
		[UCX_GATHER_ALL] = run_gather_all,
		[UCX_BARRIER] = run_barrier,
	};

	return runs[o->kind](o, sent);
}
