#include "engine/comm/collectives.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "engine/comm/ucx_exchange.h"
#include "engine/comm/ucx_operation.h"
#include "engine/comm/ucx_sum.h"
#include "engine/comm/ucx_wire.h"
#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/host/thread.h"

/* Number of checks for the turn before waiting for a wake-up. */
#define LOOK_NS (100 * CLOCK_MS_NS)

/*
 * An issued collective. It runs where its stream runs host functions: on the stream's thread, or in
 * the caller for the compute stream.
 */
struct operation {
	struct operation *next_free;
	struct operation *next_made;
	struct collectives_group *group;
	struct ucx_operation what;
	uint64_t ticket;
};

struct collectives_group {
	struct collectives *c;
	struct collectives_group *next;
	int world;
	uint64_t issued; /* collectives of this group */
	struct ucx_block *blocks;
	_Atomic int64_t sent[COUNTED]; /* bytes */
};

/*
 * Collectives run one at a time and in the order in which they were issued, on any streams: each
 * takes a ticket when issued and waits for its turn. So two ranks cannot wait for each other in
 * different collectives, and only one thread is inside UCX.
 */
struct collectives {
	struct k_context *ctx;
	int rank, world;
	int64_t timeout_ns;
	char library[96];
	struct ucx_wire *wire;         /* NULL: world 1 */
	struct ucx_exchange *exchange; /* NULL: world 1 */
	bool connected;
	pthread_mutex_t lock; /* protects the following */
	pthread_cond_t turn;
	uint64_t issued, finished;
	bool running;
	struct operation *free_operations, *made_operations;
	struct collectives_group *groups;
};

/* ---- life ---- */

int collectives_create(const struct collectives_options *options, struct collectives **out,
	char *why, size_t why_bytes)
{
	const struct ucx_wire_options wire = {
		.rank = options->rank,
		.world = options->world,
		.timeout_ns = options->timeout_ns,
		.interface = options->interface,
	};
	struct collectives *c;
	int status;

	if (options->world < 1 || options->rank < 0 || options->rank >= options->world)
		return -EINVAL;
	c = memory_zeroed(1, sizeof *c);
	c->ctx = options->ctx;
	c->rank = options->rank;
	c->world = options->world;
	c->timeout_ns = options->timeout_ns;
	pthread_mutex_init(&c->lock, NULL);
	thread_condition_init(&c->turn);
	snprintf(c->library, sizeof c->library, "none (1 rank)");
	if (c->world > 1) {
		status = ucx_wire_create(&wire, &c->wire, why, why_bytes);
		if (status == 0)
			c->exchange = ucx_exchange_create(c->wire, c->rank, c->world);
		if (status != 0) {
			collectives_destroy(c);
			return status;
		}
		snprintf(c->library, sizeof c->library, "UCX %s (%s)", ucx_wire_version(c->wire),
			ucx_wire_transports(c->wire));
	}
	*out = c;
	return 0;
}

void collectives_destroy(struct collectives *c)
{
	if (c == NULL)
		return;
	ucx_wire_destroy(c->wire);
	ucx_exchange_destroy(c->exchange);
	while (c->groups != NULL) {
		struct collectives_group *g = c->groups;

		c->groups = g->next;
		free(g->blocks);
		free(g);
	}
	while (c->made_operations != NULL) {
		struct operation *o = c->made_operations;

		c->made_operations = o->next_made;
		free(o);
	}
	pthread_cond_destroy(&c->turn);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

int64_t collectives_scratch_bytes(int world, int ranks)
{
	return ucx_exchange_bytes(world);
}

int64_t collectives_growth(const struct collectives *c, int ranks)
{
	return 0;
}

const char *collectives_address(const struct collectives *c)
{
	return c->wire == NULL ? "" : ucx_wire_address(c->wire);
}

int collectives_connect(struct collectives *c, const char *const *addresses, const int *nodes,
	char *error, size_t error_bytes)
{
	int status;

	if (c->wire == NULL)
		return 0;
	status = ucx_wire_connect(c->wire, addresses, nodes, error, error_bytes);
	c->connected = status == 0;
	return status;
}

const char *collectives_library(const struct collectives *c)
{
	return c->library;
}

void collectives_set_timeout(struct collectives *c, int64_t ns)
{
	if (c->wire != NULL)
		ucx_wire_set_timeout(c->wire, ns > 0 ? ns : c->timeout_ns);
}

void collectives_network(struct collectives *c, struct collectives_network *out)
{
	const char *devices;

	*out = (struct collectives_network){.name = "UCX", .gpu_direct = -1};
	if (c->wire == NULL)
		return;
	snprintf(out->paths, sizeof(out->paths), "%s", ucx_wire_transports(c->wire));
	devices = ucx_wire_devices(c->wire);
	if (devices != NULL)
		snprintf(out->devices, sizeof(out->devices), "%s", devices);
}

const char *collectives_error(const struct collectives *c)
{
	return c->wire == NULL ? NULL : ucx_wire_error(c->wire);
}

/* ---- groups ---- */

int collectives_group(struct collectives *c, int world, struct collectives_group **out)
{
	struct collectives_group *g;

	if (world < 1 || world > c->world || c->rank >= world)
		return -EINVAL;
	for (g = c->groups; g != NULL; g = g->next)
		if (g->world == world) {
			*out = g;
			return 0;
		}
	g = memory_zeroed(1, sizeof *g);
	g->blocks = memory_zeroed((size_t)world, sizeof *g->blocks);
	g->c = c;
	g->world = world;
	g->next = c->groups;
	c->groups = g;
	*out = g;
	return 0;
}

int collectives_rank(const struct collectives_group *g)
{
	return g->c->rank;
}

int collectives_world(const struct collectives_group *g)
{
	return g->world;
}

void collectives_count(const struct collectives_group *g, struct collectives_bytes *out)
{
	out->reduce_scatter = atomic_load(&g->sent[COUNTED_REDUCE_SCATTER]);
	out->all_gather = atomic_load(&g->sent[COUNTED_ALL_GATHER]);
	out->all_reduce = atomic_load(&g->sent[COUNTED_ALL_REDUCE]);
	out->other = atomic_load(&g->sent[COUNTED_OTHER]);
}

/* ---- issue and run in turn ---- */

/*
 * Waits until all earlier collectives have run. -ETIMEDOUT if the turn does not come because the
 * stream of an earlier one is blocked. Also then no other thread is inside UCX until end_turn.
 */
static int wait_for_turn(struct collectives *c, const struct operation *o)
{
	int64_t since = clock_mono_ns();
	int status = 0;

	pthread_mutex_lock(&c->lock);
	while (c->finished != o->ticket && ucx_wire_error(c->wire) == NULL) {
		const struct timespec until = clock_timespec(clock_mono_ns() + LOOK_NS);

		pthread_cond_timedwait(&c->turn, &c->lock, &until);
		if (c->running)
			since = clock_mono_ns();
		if (c->finished != o->ticket &&
			clock_mono_ns() - since > ucx_wire_timeout_ns(c->wire)) {
			status = -ETIMEDOUT;
			break;
		}
	}
	if (status == 0 && ucx_wire_error(c->wire) != NULL)
		status = -ECANCELED;
	if (status != -ECANCELED)
		c->running = true;
	pthread_mutex_unlock(&c->lock);
	return status;
}

static void end_turn(struct collectives *c, struct operation *o, bool ran)
{
	pthread_mutex_lock(&c->lock);
	if (ran)
		c->running = false;
	if (c->finished <= o->ticket)
		c->finished = o->ticket + 1;
	o->next_free = c->free_operations;
	c->free_operations = o;
	pthread_cond_broadcast(&c->turn);
	pthread_mutex_unlock(&c->lock);
}

static enum collectives_counted counted_as(const struct ucx_operation *o)
{
	switch (o->kind) {
	case UCX_REDUCE_SCATTER:
		return COUNTED_REDUCE_SCATTER;
	case UCX_ALL_GATHER:
		return COUNTED_ALL_GATHER;
	case UCX_ALL_REDUCE:
		return o->elements ? COUNTED_ALL_REDUCE : COUNTED_OTHER;
	default:
		return COUNTED_OTHER;
	}
}

static void run(void *arg)
{
	struct operation *o = arg;
	struct collectives *c = o->group->c;
	int status = wait_for_turn(c, o);
	int64_t sent = 0;

	if (status == -ETIMEDOUT) {
		ucx_wire_fail(c->wire,
			"rank %d: %s: the collectives issued before it did not run for %g s",
			c->rank, ucx_exchange_kind_name(o->what.kind),
			(double)ucx_wire_timeout_ns(c->wire) * 1e-9);
		ucx_wire_tell(c->wire);
	}
	if (status == 0) {
		ucx_operation_run(&o->what, &sent);
		atomic_fetch_add(&o->group->sent[counted_as(&o->what)], sent);
	}
	end_turn(c, o, status != -ECANCELED);
}

static struct operation *take_operation(struct collectives *c)
{
	struct operation *o = c->free_operations;

	if (o != NULL) {
		c->free_operations = o->next_free;
		return o;
	}
	o = memory_zeroed(1, sizeof *o);
	o->next_made = c->made_operations;
	c->made_operations = o;
	return o;
}

static void issue(struct collectives_group *g, struct ucx_operation what, struct k_stream *s)
{
	struct collectives *c = g->c;
	struct operation *o;

	if (ucx_wire_error(c->wire) != NULL)
		return;
	if (!c->connected) {
		ucx_wire_fail(c->wire, "rank %d: %s before the ranks were connected", c->rank,
			ucx_exchange_kind_name(what.kind));
		return;
	}
	pthread_mutex_lock(&c->lock);
	o = take_operation(c);
	what.sequence = g->issued++;
	what.rank = c->rank;
	what.world = g->world;
	what.exchange = c->exchange;
	what.blocks = g->blocks;
	o->group = g;
	o->ticket = c->issued++;
	o->what = what;
	pthread_mutex_unlock(&c->lock);
	k_stream_host(s, run, o);
}

static enum ucx_sum_type elem_type(const struct collectives *c)
{
	return k_elem_bytes(c->ctx) == sizeof(double) ? UCX_SUM_DOUBLE : UCX_SUM_FLOAT;
}

/* Unequal slices are a fault of the caller's plan: refused before anything is sent. */
static bool divides(struct collectives_group *g, enum ucx_kind kind, int64_t n)
{
	if (n % g->world == 0)
		return true;
	ucx_wire_fail(g->c->wire, "rank %d: %s of %lld elements, a multiple of %d expected",
		g->c->rank, ucx_exchange_kind_name(kind), (long long)n, g->world);
	return false;
}

void collectives_reduce_scatter(
	struct collectives_group *g, void *buf, int64_t n, struct k_stream *s)
{
	if (g->world > 1 && n > 0 && divides(g, UCX_REDUCE_SCATTER, n))
		issue(g,
			(struct ucx_operation){.kind = UCX_REDUCE_SCATTER,
				.buf = buf,
				.n = n,
				.type = elem_type(g->c),
				.op = COLLECTIVES_SUM},
			s);
}

void collectives_all_gather(struct collectives_group *g, void *buf, int64_t n, struct k_stream *s)
{
	if (g->world > 1 && n > 0 && divides(g, UCX_ALL_GATHER, n))
		issue(g,
			(struct ucx_operation){.kind = UCX_ALL_GATHER,
				.buf = buf,
				.n = n,
				.type = elem_type(g->c)},
			s);
}

void collectives_all_reduce(struct collectives_group *g, void *buf, int64_t n,
	enum collectives_type type, enum collectives_op op, struct k_stream *s)
{
	bool elements = type == COLLECTIVES_ELEM;
	enum ucx_sum_type sum = type == COLLECTIVES_INT64 ? UCX_SUM_INT64 : UCX_SUM_DOUBLE;

	if (g->world > 1 && n > 0)
		issue(g,
			(struct ucx_operation){.kind = UCX_ALL_REDUCE,
				.buf = buf,
				.n = n,
				.type = elements ? elem_type(g->c) : sum,
				.op = op,
				.elements = elements},
			s);
}

void collectives_broadcast(
	struct collectives_group *g, void *buf, size_t bytes, int root, struct k_stream *s)
{
	if (g->world > 1 && (root < 0 || root >= g->world))
		ucx_wire_fail(g->c->wire, "rank %d: broadcast from rank %d in a group of %d",
			g->c->rank, root, g->world);
	else if (g->world > 1 && bytes > 0)
		issue(g,
			(struct ucx_operation){.kind = UCX_BROADCAST,
				.buf = buf,
				.n = (int64_t)bytes,
				.root = root},
			s);
}

void collectives_gather_all(
	struct collectives_group *g, void *out, const void *in, size_t bytes, struct k_stream *s)
{
	if (bytes == 0)
		return;
	if (g->world == 1 && out != in)
		k_copy(s, out, in, bytes);
	if (g->world > 1)
		issue(g,
			(struct ucx_operation){
				.kind = UCX_GATHER_ALL, .buf = out, .in = in, .n = (int64_t)bytes},
			s);
}

void collectives_barrier(struct collectives_group *g, struct k_stream *s)
{
	if (g->world > 1)
		issue(g, (struct ucx_operation){.kind = UCX_BARRIER}, s);
}

/* Each runs separately: over shared memory, grouping gains nothing. */
void collectives_begin(struct collectives_group *g)
{
}

void collectives_end(struct collectives_group *g)
{
}

/* Only backends with NCCL have graphs. */
void collectives_graph_begin(struct collectives_group *g, int64_t about_ns, struct k_stream *s)
{
}

void collectives_graph_end(
	struct collectives_group *g, const struct collectives_bytes *sent, struct k_stream *s)
{
}
