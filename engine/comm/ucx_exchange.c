#include "engine/comm/ucx_exchange.h"
#include "proto/host/memory.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	WINDOW = 3, /* pieces in flight to and from each peer */
	/* with those of the other ranks it should fit the second-level cache */
	REDUCE_PIECE = 256 * 1024,
	DIRECT_PIECE = 1024 * 1024,
	HEAD_BYTES = 8192, /* one eager message over shared memory */
	INLINE_BYTES = HEAD_BYTES - (int)sizeof(struct ucx_head),
	PER_LANE = WINDOW + 1, /* messages in one direction: head, pieces */
};

/* The exchange between this rank and one peer. Piece k uses message 1 + k % WINDOW. */
struct lane {
	struct ucx_message *out, *in; /* PER_LANE each */
	char *stage_out, *stage_in;   /* HEAD_BYTES each: the heads */
	char *scratch;                /* WINDOW * REDUCE_PIECE */
	bool head_taken;
	int64_t n_out, n_in; /* pieces */
	int64_t out_posted, in_posted, in_done;
};

struct ucx_exchange {
	struct ucx_wire *wire;
	int capacity; /* ranks */
	int rank;
	struct lane *lanes;
	struct ucx_message *out, *in;
	char *stages, *scratch;
	const void **sources;
	/* the current exchange */
	const struct ucx_exchange_args *args;
	uint64_t tag; /* without source and piece */
	size_t piece_bytes;
	int64_t reduced; /* pieces */
};

static const struct {
	const char *name;
	const char *unit; /* of n; NULL: n is unused */
} kinds[] = {
	[UCX_REDUCE_SCATTER] = {"reduce_scatter", "elements"},
	[UCX_ALL_GATHER] = {"all_gather", "elements"},
	[UCX_ALL_REDUCE] = {"all_reduce", "elements"},
	[UCX_BROADCAST] = {"broadcast", "bytes"},
	[UCX_GATHER_ALL] = {"gather_all", "bytes"},
	[UCX_BARRIER] = {"barrier", NULL},
};

const char *ucx_exchange_kind_name(enum ucx_kind kind)
{
	return kinds[kind].name;
}

size_t ucx_exchange_inline_bytes(void)
{
	return INLINE_BYTES;
}

int64_t ucx_exchange_bytes(int world)
{
	int64_t lane = WINDOW * REDUCE_PIECE + 2 * HEAD_BYTES +
		2 * PER_LANE * (int64_t)sizeof(struct ucx_message) + (int64_t)sizeof(struct lane);

	return world < 2 ? 0 : world * (lane + (int64_t)sizeof(void *));
}

struct ucx_exchange *ucx_exchange_create(struct ucx_wire *wire, int rank, int world)
{
	size_t lanes = (size_t)world;
	struct ucx_exchange *x = memory_zeroed(1, sizeof *x);

	x->wire = wire;
	x->rank = rank;
	x->capacity = world;
	x->lanes = memory_zeroed(lanes, sizeof *x->lanes);
	x->out = memory_zeroed(lanes * PER_LANE, sizeof *x->out);
	x->in = memory_zeroed(lanes * PER_LANE, sizeof *x->in);
	x->stages = aligned_alloc(64, lanes * 2 * HEAD_BYTES);
	x->scratch = aligned_alloc(4096, lanes * WINDOW * REDUCE_PIECE);
	x->sources = memory_zeroed(lanes, sizeof *x->sources);
	if (x->stages == NULL || x->scratch == NULL)
		memory_exhausted();
	for (size_t p = 0; p < lanes; p++) {
		x->lanes[p].out = x->out + p * PER_LANE;
		x->lanes[p].in = x->in + p * PER_LANE;
		x->lanes[p].stage_out = x->stages + p * 2 * HEAD_BYTES;
		x->lanes[p].stage_in = x->lanes[p].stage_out + HEAD_BYTES;
		x->lanes[p].scratch = x->scratch + p * WINDOW * REDUCE_PIECE;
	}
	return x;
}

void ucx_exchange_destroy(struct ucx_exchange *x)
{
	if (x == NULL)
		return;
	free(x->sources);
	free(x->scratch);
	free(x->stages);
	free(x->in);
	free(x->out);
	free(x->lanes);
	free(x);
}

/* ---- one exchange ---- */

/*
 * 61 bits: ranks of the group 11, source 10, sequence 20, phase 1, piece 19. Every exchange
 * receives from every rank, so no two exchanges 2^20 apart are ever in progress; the head has the
 * whole sequence number.
 */
static uint64_t tag_of(const struct ucx_exchange *x, int source, int64_t piece)
{
	return x->tag | (uint64_t)source << 40 | (uint64_t)piece;
}

static int64_t count_pieces(const struct ucx_exchange *x, size_t bytes)
{
	if (bytes <= INLINE_BYTES)
		return 0;
	return (int64_t)((bytes + x->piece_bytes - 1) / x->piece_bytes);
}

static size_t piece_length(const struct ucx_exchange *x, size_t bytes, int64_t piece)
{
	size_t at = (size_t)piece * x->piece_bytes;

	return bytes - at < x->piece_bytes ? bytes - at : x->piece_bytes;
}

static const char *name(const struct ucx_exchange *x)
{
	return kinds[x->args->head.kind].name;
}

/*
 * False for a message that is not done, or that ended with an error: then its peer counts as lost.
 */
static bool arrived(struct ucx_exchange *x, int peer, const struct ucx_message *m)
{
	if (m->state != UCX_MESSAGE_DONE)
		return false;
	if (m->status != UCS_OK)
		ucx_wire_mark_lost(x->wire, peer, m->status);
	return m->status == UCS_OK;
}

static void describe(const struct ucx_head *h, char *out, size_t out_bytes)
{
	if (h->kind >= sizeof kinds / sizeof *kinds || h->type > UCX_SUM_INT64)
		snprintf(out, out_bytes, "unknown (kind %u)", h->kind);
	else if (kinds[h->kind].unit == NULL)
		snprintf(out, out_bytes, "%s", kinds[h->kind].name);
	else if (h->kind == UCX_BROADCAST || h->kind == UCX_GATHER_ALL)
		snprintf(out, out_bytes, "%s of %" PRId64 " bytes from rank %u",
			kinds[h->kind].name, h->n, h->root);
	else
		snprintf(out, out_bytes, "%s (%s) of %" PRId64 " elements of %zu bytes",
			kinds[h->kind].name, h->op == COLLECTIVES_MAX ? "max" : "sum", h->n,
			ucx_sum_elem_bytes(h->type));
}

static int check_head(struct ucx_exchange *x, int peer)
{
	const struct ucx_message *m = &x->lanes[peer].in[0];
	const struct ucx_head *here = &x->args->head;
	size_t block = x->args->blocks[peer].receive_bytes;
	struct ucx_head there;
	char text_here[80], text_there[80];

	if (m->bytes < sizeof there) {
		ucx_wire_fail(x->wire, "rank %d: a head of %zu bytes in %s, at least %zu expected",
			peer, m->bytes, name(x), sizeof there);
		return -EPROTO;
	}
	memcpy(&there, x->lanes[peer].stage_in, sizeof there);
	if (memcmp(&there, here, sizeof there) == 0 &&
		m->bytes == sizeof there + (block <= INLINE_BYTES ? block : 0))
		return 0;
	describe(here, text_here, sizeof text_here);
	describe(&there, text_there, sizeof text_there);
	ucx_wire_fail(x->wire, "rank %d: collective %" PRIu64 " there is %s, here (%" PRIu64 ") %s",
		peer, there.sequence, text_there, here->sequence, text_here);
	return -EPROTO;
}

static void post_head(struct ucx_exchange *x, int peer)
{
	const struct ucx_block *b = &x->args->blocks[peer];
	struct lane *lane = &x->lanes[peer];
	size_t bytes = sizeof x->args->head;

	memcpy(lane->stage_out, &x->args->head, sizeof x->args->head);
	if (b->send_bytes > 0 && b->send_bytes <= INLINE_BYTES) {
		memcpy(lane->stage_out + bytes, b->send, b->send_bytes);
		bytes += b->send_bytes;
	}
	ucx_wire_send(x->wire, peer, tag_of(x, x->rank, 0), lane->stage_out, bytes, &lane->out[0]);
}

/* Keeps WINDOW pieces in flight to the peer. */
static void advance_out(struct ucx_exchange *x, int peer)
{
	const struct ucx_block *b = &x->args->blocks[peer];
	struct lane *lane = &x->lanes[peer];

	while (lane->out_posted < lane->n_out) {
		int64_t k = lane->out_posted;
		struct ucx_message *m = &lane->out[1 + k % WINDOW];

		if (m->state != UCX_MESSAGE_FREE && !arrived(x, peer, m))
			break;
		ucx_wire_send(x->wire, peer, tag_of(x, x->rank, 1 + k),
			(const char *)b->send + (size_t)k * x->piece_bytes,
			piece_length(x, b->send_bytes, k), m);
		lane->out_posted++;
	}
}

static int take_pieces(struct ucx_exchange *x, int peer)
{
	const struct ucx_block *b = &x->args->blocks[peer];
	struct lane *lane = &x->lanes[peer];

	while (lane->in_done < lane->in_posted) {
		struct ucx_message *m = &lane->in[1 + lane->in_done % WINDOW];
		size_t expected = piece_length(x, b->receive_bytes, lane->in_done);

		if (!arrived(x, peer, m))
			break;
		if (m->bytes != expected) {
			ucx_wire_fail(x->wire, "rank %d: a piece of %zu bytes in %s, %zu expected",
				peer, m->bytes, name(x), expected);
			return -EPROTO;
		}
		lane->in_done++;
	}
	return 0;
}

/* Takes the head, then the received pieces, and posts receives for the next ones. */
static int advance_in(struct ucx_exchange *x, int peer)
{
	const struct ucx_block *b = &x->args->blocks[peer];
	struct lane *lane = &x->lanes[peer];
	int status;

	if (!lane->head_taken) {
		if (!arrived(x, peer, &lane->in[0]))
			return 0;
		status = check_head(x, peer);
		if (status != 0)
			return status;
		lane->head_taken = true;
		if (x->args->dst == NULL && lane->n_in == 0 && b->receive_bytes > 0)
			memcpy(b->receive, lane->stage_in + sizeof x->args->head, b->receive_bytes);
	}
	status = take_pieces(x, peer);
	while (status == 0 && lane->in_posted < lane->n_in) {
		int64_t k = lane->in_posted;
		char *to = lane->scratch + (size_t)(k % WINDOW) * REDUCE_PIECE;

		if (x->args->dst == NULL)
			to = (char *)b->receive + (size_t)k * x->piece_bytes;
		if (k - (x->args->dst == NULL ? lane->in_done : x->reduced) >= WINDOW)
			break;
		ucx_wire_receive(x->wire, tag_of(x, peer, 1 + k), to,
			piece_length(x, b->receive_bytes, k), &lane->in[1 + k % WINDOW]);
		lane->in_posted++;
	}
	return status;
}

/* Reduces a part of the block: at bytes from its start, the others' at offset in from's buffers. */
static void reduce_part(
	struct ucx_exchange *x, size_t at, size_t bytes, bool from_stage, size_t offset)
{
	const struct ucx_exchange_args *a = x->args;

	for (int p = 0; p < a->head.world; p++) {
		const struct lane *lane = &x->lanes[p];

		if (p == x->rank)
			x->sources[p] = (const char *)a->own + at;
		else
			x->sources[p] = (from_stage ? lane->stage_in : lane->scratch) + offset;
	}
	ucx_sum(a->head.type, a->head.op, (char *)a->dst + at, x->sources, a->head.world,
		(int64_t)(bytes / ucx_sum_elem_bytes(a->head.type)));
}

/* Reduces one piece if it was received from every rank. True if something was reduced. */
static bool advance_reduction(struct ucx_exchange *x)
{
	size_t bytes = x->args->reduce_bytes;
	int64_t pieces = count_pieces(x, bytes);

	if (bytes == 0 || x->reduced == (pieces == 0 ? 1 : pieces))
		return false;
	for (int p = 0; p < x->args->head.world; p++)
		if (p != x->rank &&
			(!x->lanes[p].head_taken ||
				(pieces > 0 && x->lanes[p].in_done <= x->reduced)))
			return false;
	if (pieces == 0)
		reduce_part(x, 0, bytes, true, sizeof x->args->head);
	else
		reduce_part(x, (size_t)x->reduced * x->piece_bytes,
			piece_length(x, bytes, x->reduced), false,
			(size_t)(x->reduced % WINDOW) * REDUCE_PIECE);
	x->reduced++;
	return true;
}

static bool waits_to_send(struct ucx_exchange *x, int peer)
{
	const struct lane *lane = &x->lanes[peer];

	for (int i = 0; i < PER_LANE; i++)
		if (lane->out[i].state != UCX_MESSAGE_FREE && !arrived(x, peer, &lane->out[i]))
			return true;
	return lane->out_posted < lane->n_out;
}

static bool waits_to_receive(const struct ucx_exchange *x, int peer)
{
	const struct lane *lane = &x->lanes[peer];

	return !lane->head_taken || lane->in_done < lane->in_posted;
}

/* One pass over everything that may have moved. *done if nothing is left. */
static int advance(struct ucx_exchange *x, bool *done)
{
	int status;

	do {
		*done = true;
		for (int i = 1; i < x->args->head.world; i++) {
			int p = (x->rank + i) % x->args->head.world;

			advance_out(x, p);
			status = advance_in(x, p);
			if (status != 0)
				return status;
			if (waits_to_send(x, p) || waits_to_receive(x, p))
				*done = false;
		}
	} while (x->args->dst != NULL && advance_reduction(x));
	return 0;
}

/* After a pass without failure: whether a lost peer is still needed. */
static int look_for_lost(struct ucx_exchange *x)
{
	for (int p = 0; p < x->args->head.world; p++) {
		const char *why;

		if (p == x->rank || !(waits_to_send(x, p) || waits_to_receive(x, p)))
			continue;
		why = ucx_wire_peer_lost(x->wire, p);
		if (why == NULL)
			continue;
		ucx_wire_fail(x->wire, "rank %d: %s in %s", p, why, name(x));
		return -ECONNRESET;
	}
	return 0;
}

static void timed_out(struct ucx_exchange *x, int64_t timeout_ns)
{
	double seconds = (double)timeout_ns * 1e-9;

	for (int p = 0; p < x->args->head.world; p++) {
		if (p == x->rank || !waits_to_receive(x, p))
			continue;
		ucx_wire_fail(x->wire, "rank %d: no message for %g s in %s", p, seconds, name(x));
		return;
	}
	for (int p = 0; p < x->args->head.world; p++) {
		if (p == x->rank || !waits_to_send(x, p))
			continue;
		ucx_wire_fail(x->wire, "rank %d: accepted no message for %g s in %s", p, seconds,
			name(x));
		return;
	}
}

static void start(struct ucx_exchange *x, const struct ucx_exchange_args *args)
{
	const struct ucx_head *h = &args->head;

	x->args = args;
	x->reduced = 0;
	x->piece_bytes = args->dst != NULL ? REDUCE_PIECE : DIRECT_PIECE;
	x->tag =
		(uint64_t)h->world << 50 | (h->sequence & 0xfffff) << 20 | (uint64_t)h->phase << 19;
	for (int p = 0; p < h->world; p++) {
		struct lane *lane = &x->lanes[p];

		if (p == x->rank)
			continue;
		memset(lane->out, 0, PER_LANE * sizeof *lane->out);
		memset(lane->in, 0, PER_LANE * sizeof *lane->in);
		lane->head_taken = false;
		lane->n_out = count_pieces(x, args->blocks[p].send_bytes);
		lane->n_in = count_pieces(x, args->blocks[p].receive_bytes);
		lane->out_posted = lane->in_posted = lane->in_done = 0;
		ucx_wire_receive(
			x->wire, tag_of(x, p, 0), lane->stage_in, HEAD_BYTES, &lane->in[0]);
	}
	for (int i = 1; i < h->world; i++)
		post_head(x, (x->rank + i) % h->world);
}

int ucx_exchange_run(struct ucx_exchange *x, const struct ucx_exchange_args *args)
{
	bool done = false;
	int status;

	assert(args->head.world <= x->capacity);
	assert(!(args->dst != NULL && args->reduce_bytes > 0 && args->own == NULL));
	ucx_wire_begin(x->wire);
	start(x, args);
	for (;;) {
		status = advance(x, &done);
		if (status != 0 || done)
			break;
		status = ucx_wire_turn(x->wire);
		if (status == 0)
			status = look_for_lost(x);
		if (status != 0)
			break;
	}
	if (status == -ETIMEDOUT)
		timed_out(x, ucx_wire_timeout_ns(x->wire));
	if (status != 0) {
		if (status != -ECANCELED)
			ucx_wire_tell(x->wire);
		ucx_wire_cancel(x->wire, x->in, x->capacity * PER_LANE);
	}
	x->args = NULL;
	return status;
}

int ucx_exchange_gather(struct ucx_exchange *x, const struct ucx_head *head,
	struct ucx_block *blocks, void *out, const void *in, size_t bytes)
{
	struct ucx_exchange_args args = {.head = *head, .blocks = blocks};

	args.head.kind = UCX_GATHER_ALL;
	args.head.n = (int64_t)bytes;
	for (int p = 0; p < head->world; p++)
		blocks[p] = (struct ucx_block){in, bytes, (char *)out + bytes * (size_t)p, bytes};
	memmove((char *)out + bytes * (size_t)x->rank, in, bytes);
	return ucx_exchange_run(x, &args);
}
