#include "engine/comm/collectives.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <nccl.h>

#include "engine/comm/interface.h"
#include "engine/comm/nccl_comm.h"
#include "engine/comm/nccl_deadline.h"
#include "engine/comm/nccl_log.h"
#include "engine/comm/ucx_exchange.h"
#include "engine/comm/ucx_wire.h"
#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/host/thread.h"

enum {
	WATCH_MS = 20,    /* pause between two checks */
	ABORT_WAIT_S = 1, /* for a thread that is inside NCCL */
	BARRIER_BYTES = 256,
};

/*
 * An allowance for the buffers and channels of a communicator, which depend on the machine's links:
 * 866 MiB on two H200 (NCCL 2.28.3, without NVLS).
 */
#define SCRATCH_BYTES (INT64_C(1024) << 20)

struct collectives_group {
	struct collectives *c;
	struct collectives_group *next;
	int world;
	ncclComm_t comm;          /* NULL: world 1 */
	struct ucx_block *blocks; /* of gather_all */
	uint64_t gathers;
	/* between begin and end, of collectives or of a graph's launch */
	bool open;
	struct k_stream *stream; /* of the first collective in it; NULL: none yet */
	struct nccl_deadline_mark *mark;
	int64_t sent[COUNTED]; /* bytes */
};

/*
 * Each communicator has a unique ID: one for all ranks at the connect, and one for fewer ranks when
 * a run first needs it. ncclCommSplit would also need the ranks that do not take part in that run,
 * which do not know of it.
 */
struct collectives {
	struct k_context *ctx;
	int rank, world;
	int64_t timeout_ns;
	char library[32];
	struct ucx_wire *wire;
	struct ucx_exchange *exchange;
	pthread_mutex_t wire_lock; /* held by the thread inside wire or exchange */
	bool reported;             /* the other ranks know of the failure; with wire_lock */
	pthread_mutex_t nccl_lock; /* of groups and their communicators */
	bool aborted;
	struct collectives_group *groups;
	void *barrier; /* device, BARRIER_BYTES */
	pthread_t watcher;
	bool watching;
	atomic_bool stop;
	struct nccl_deadline deadline;
	pthread_mutex_t log_lock; /* of log */
	struct nccl_log log;
};

/* ---- watching ---- */

static int watch_wire(void *arg)
{
	struct collectives *c = arg;
	int status = 0;

	/* the thread that holds it checks the peers meanwhile */
	if (pthread_mutex_trylock(&c->wire_lock) == 0) {
		status = ucx_wire_watch(c->wire);
		if (status == -ECANCELED)
			c->reported = true;
		pthread_mutex_unlock(&c->wire_lock);
	}
	return status;
}

static void look_at_errors(struct collectives *c)
{
	/* a thread inside NCCL gets its error itself */
	if (pthread_mutex_trylock(&c->nccl_lock) != 0)
		return;
	for (struct collectives_group *g = c->groups; g != NULL; g = g->next) {
		ncclResult_t result = ncclSuccess;

		if (g->comm != NULL &&
			(ncclCommGetAsyncError(g->comm, &result) != ncclSuccess ||
				(result != ncclSuccess && result != ncclInProgress)))
			ucx_wire_fail(
				c->wire, "rank %d: nccl: %s", c->rank, ncclGetErrorString(result));
	}
	pthread_mutex_unlock(&c->nccl_lock);
}

static void look_at_deadline(struct collectives *c)
{
	const struct nccl_deadline_mark *late = nccl_deadline_late(&c->deadline);

	if (late == NULL)
		return;
	if (late->limit_ns == c->timeout_ns)
		ucx_wire_fail(c->wire, "rank %d: %s has not ended for %g s", c->rank, late->name,
			(double)c->timeout_ns * 1e-9);
	else
		ucx_wire_fail(c->wire,
			"rank %d: %s has not ended for %.3g s, %g s more than %d times what one "
			"took before",
			c->rank, late->name, (double)late->limit_ns * 1e-9,
			(double)c->timeout_ns * 1e-9, COLLECTIVES_GRAPH_TIMES);
}

/* True when locked; false if another thread does not release it. */
static bool lock_soon(pthread_mutex_t *lock)
{
	const struct timespec until = clock_timespec(clock_mono_ns() + ABORT_WAIT_S * CLOCK_S_NS);

	return pthread_mutex_clocklock(lock, CLOCK_MONOTONIC, &until) == 0;
}

/* Notifies the other ranks, and lets the streams continue. */
static void give_up(struct collectives *c)
{
	bool locked = lock_soon(&c->wire_lock);

	if (locked && !c->reported)
		ucx_wire_tell(c->wire);
	if (locked) {
		c->reported = true;
		pthread_mutex_unlock(&c->wire_lock);
	}
	/* the abort releases a thread inside NCCL */
	locked = lock_soon(&c->nccl_lock);
	c->aborted = true;
	for (struct collectives_group *g = c->groups; g != NULL; g = g->next)
		if (g->comm != NULL)
			ncclCommAbort(g->comm);
	if (locked)
		pthread_mutex_unlock(&c->nccl_lock);
}

static void read_log(struct collectives *c)
{
	pthread_mutex_lock(&c->log_lock);
	nccl_log_read(&c->log);
	pthread_mutex_unlock(&c->log_lock);
}

static void *watch(void *arg)
{
	const struct timespec nap = clock_timespec(WATCH_MS * CLOCK_MS_NS);
	struct collectives *c = arg;

	k_event_sync(c->deadline.ring[0].begun, 0); /* sets the device of this thread */
	while (!atomic_load(&c->stop)) {
		watch_wire(c);
		look_at_errors(c);
		look_at_deadline(c);
		read_log(c);
		if (ucx_wire_error(c->wire) != NULL) {
			give_up(c);
			read_log(c);
			break;
		}
		nanosleep(&nap, NULL);
	}
	return NULL;
}

static int start_watcher(struct collectives *c)
{
	int status = thread_start(&c->watcher, watch, c, "nccl watch");

	c->watching = status == 0;
	return status;
}

/* ---- life ---- */

/*
 * NCCL_SOCKET_IFNAME: the interface between nodes. Ranks within this machine need no port on its
 * network. The user's value stays, and is checked, because NCCL itself would only report a system
 * error.
 */
static int choose_interface(const char *interface, char *why, size_t why_bytes)
{
	const char *given = getenv("NCCL_SOCKET_IFNAME");
	char exact[INTERFACE_ADDRESS_BYTES];

	if (given != NULL && given[0] != '\0')
		return interface_check_nccl(given, why, why_bytes);
	if (interface == NULL && getenv("UCX_TLS") != NULL)
		return 0;
	snprintf(exact, sizeof(exact), "%s%s", interface ? "=" : "", interface ? interface : "lo");
	return setenv("NCCL_SOCKET_IFNAME", exact, 1) == 0 ? 0 : -ENOMEM;
}

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
	int status = 0, version = 0;

	if (options->world < 1 || options->rank < 0 || options->rank >= options->world)
		return -EINVAL;
	c = memory_zeroed(1, sizeof(*c));
	c->ctx = options->ctx;
	c->rank = options->rank;
	c->world = options->world;
	c->timeout_ns = options->timeout_ns;
	pthread_mutex_init(&c->wire_lock, NULL);
	pthread_mutex_init(&c->nccl_lock, NULL);
	pthread_mutex_init(&c->log_lock, NULL);
	c->log.fd = -1;
	snprintf(c->library, sizeof(c->library), "none (1 rank)");
	if (c->world > 1) {
		status = choose_interface(options->interface, why, why_bytes);
		nccl_log_begin(&c->log);
		ncclGetVersion(&version);
		snprintf(c->library, sizeof(c->library), "NCCL %d.%d.%d", version / 10000,
			version / 100 % 100, version % 100);
		if (status == 0)
			status = ucx_wire_create(&wire, &c->wire, why, why_bytes);
		if (status == 0)
			c->exchange = ucx_exchange_create(c->wire, c->rank, c->world);
		if (status == 0)
			status = nccl_deadline_init(&c->deadline, c->ctx);
		if (status == 0)
			c->barrier = k_alloc(c->ctx, BARRIER_BYTES);
		if (status == 0 && c->barrier == NULL)
			status = -ENOMEM;
	}
	if (status != 0)
		collectives_destroy(c);
	else
		*out = c;
	return status;
}

void collectives_destroy(struct collectives *c)
{
	if (c == NULL)
		return;
	if (c->watching) {
		atomic_store(&c->stop, true);
		pthread_join(c->watcher, NULL);
	}
	while (c->groups != NULL) {
		struct collectives_group *g = c->groups;

		c->groups = g->next;
		/* no collective is running: an abort waits for no peer, unlike ncclCommDestroy */
		if (g->comm != NULL && !c->aborted)
			ncclCommAbort(g->comm);
		free(g->blocks);
		free(g);
	}
	nccl_deadline_finish(&c->deadline);
	k_free(c->ctx, c->barrier);
	ucx_wire_destroy(c->wire);
	ucx_exchange_destroy(c->exchange);
	nccl_log_end(&c->log);
	pthread_mutex_destroy(&c->log_lock);
	pthread_mutex_destroy(&c->nccl_lock);
	pthread_mutex_destroy(&c->wire_lock);
	free(c);
}

/* A communicator of all ranks, and one of fewer. */
int64_t collectives_scratch_bytes(int world, int ranks)
{
	return (world > 1 ? SCRATCH_BYTES : 0) + (ranks > 1 && ranks < world ? SCRATCH_BYTES : 0);
}

int64_t collectives_growth(const struct collectives *c, int ranks)
{
	for (const struct collectives_group *g = c->groups; g != NULL; g = g->next)
		if (g->world == ranks)
			return 0;
	return ranks > 1 ? SCRATCH_BYTES : 0;
}

const char *collectives_address(const struct collectives *c)
{
	return c->wire == NULL ? "" : ucx_wire_address(c->wire);
}

const char *collectives_library(const struct collectives *c)
{
	return c->library;
}

void collectives_set_timeout(struct collectives *c, int64_t ns)
{
	pthread_mutex_lock(&c->wire_lock);
	if (c->wire != NULL)
		ucx_wire_set_timeout(c->wire, ns > 0 ? ns : c->timeout_ns);
	pthread_mutex_unlock(&c->wire_lock);
}

void collectives_network(struct collectives *c, struct collectives_network *out)
{
	read_log(c);
	pthread_mutex_lock(&c->log_lock);
	*out = c->log.network;
	pthread_mutex_unlock(&c->log_lock);
}

const char *collectives_error(const struct collectives *c)
{
	return c->wire == NULL ? NULL : ucx_wire_error(c->wire);
}

/* ---- groups ---- */

/* Gathers host memory of every rank to all; 0 or a negative errno, and then the wire has failed. */
static int gather_host(struct collectives_group *g, void *out, const void *in, size_t bytes)
{
	struct collectives *c = g->c;
	struct ucx_head head = {.sequence = g->gathers, .world = (uint16_t)g->world};
	int status = -ECANCELED;

	pthread_mutex_lock(&c->wire_lock);
	if (ucx_wire_error(c->wire) == NULL) {
		status = ucx_exchange_gather(c->exchange, &head, g->blocks, out, in, bytes);
		c->reported = c->reported || status != 0;
		g->gathers++;
	}
	pthread_mutex_unlock(&c->wire_lock);
	return status;
}

/* Sends the ID of rank 0 to all, and each creates its part of the communicator. */
static int open_comm(struct collectives_group *g, char *error, size_t error_bytes)
{
	struct collectives *c = g->c;
	struct nccl_comm_options o = {
		.ctx = c->ctx,
		.rank = c->rank,
		.world = g->world,
		.timeout_ns = c->timeout_ns,
		.watch = watch_wire,
		.arg = c,
	};
	ncclUniqueId *ids = memory_zeroed((size_t)g->world, sizeof(*ids)), own = {{0}};
	int status;

	if (c->rank == 0 && ncclGetUniqueId(&own) != ncclSuccess)
		ucx_wire_fail(c->wire, "rank 0: no id of NCCL: %.160s", ncclGetLastError(NULL));
	status = gather_host(g, ids, &own, sizeof(own));
	if (status == 0) {
		o.id = ids[0];
		status = nccl_comm_open(&o, &g->comm, error, error_bytes);
		read_log(c);
		if (status != 0)
			ucx_wire_fail(c->wire, "rank %d: %s", c->rank, error);
	}
	if (status != 0)
		snprintf(error, error_bytes, "%s", ucx_wire_error(c->wire));
	free(ids);
	return status;
}

static int make_group(struct collectives *c, int world, char *error, size_t error_bytes,
	struct collectives_group **out)
{
	struct collectives_group *g = memory_zeroed(1, sizeof(*g));
	int status = 0;

	g->blocks = memory_zeroed((size_t)world, sizeof(*g->blocks));
	g->c = c;
	g->world = world;
	if (world > 1)
		status = open_comm(g, error, error_bytes);
	if (status != 0) {
		free(g->blocks);
		free(g);
		return status;
	}
	pthread_mutex_lock(&c->nccl_lock);
	g->next = c->groups;
	c->groups = g;
	pthread_mutex_unlock(&c->nccl_lock);
	*out = g;
	return 0;
}

int collectives_connect(struct collectives *c, const char *const *addresses, const int *nodes,
	char *error, size_t error_bytes)
{
	struct collectives_group *all;
	int status;

	if (c->wire == NULL)
		return 0;
	status = ucx_wire_connect(c->wire, addresses, nodes, error, error_bytes);
	if (status != 0)
		return status;
	status = make_group(c, c->world, error, error_bytes, &all);
	if (status == 0) {
		status = start_watcher(c);
		if (status != 0)
			snprintf(error, error_bytes, "rank %d: no thread to watch peers", c->rank);
	}
	if (status != 0) {
		ucx_wire_fail(c->wire, "%s", error);
		if (!c->reported)
			ucx_wire_tell(c->wire);
	}
	return status;
}

int collectives_group(struct collectives *c, int world, struct collectives_group **out)
{
	char error[UCX_WIRE_ERROR_MAX];

	if (world < 1 || world > c->world || c->rank >= world)
		return -EINVAL;
	for (struct collectives_group *g = c->groups; g != NULL; g = g->next)
		if (g->world == world) {
			*out = g;
			return 0;
		}
	return make_group(c, world, error, sizeof(error), out);
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
	*out = (struct collectives_bytes){
		.reduce_scatter = g->sent[COUNTED_REDUCE_SCATTER],
		.all_gather = g->sent[COUNTED_ALL_GATHER],
		.all_reduce = g->sent[COUNTED_ALL_REDUCE],
		.other = g->sent[COUNTED_OTHER],
	};
}

/* ---- collectives ---- */

static bool usable(const struct collectives_group *g)
{
	return g->world > 1 && !g->c->aborted && ucx_wire_error(g->c->wire) == NULL &&
		k_context_error(g->c->ctx) == NULL;
}

static void failed(struct collectives *c, const char *name, ncclResult_t result)
{
	ucx_wire_fail(c->wire, "rank %d: %s: %s: %.120s", c->rank, name, ncclGetErrorString(result),
		ncclGetLastError(NULL));
}

enum nccl_call_kind {
	NCCL_REDUCE_SCATTER,
	NCCL_ALL_GATHER,
	NCCL_ALL_REDUCE,
	NCCL_BROADCAST,
};

/* One collective of NCCL on this rank. */
struct nccl_call {
	enum nccl_call_kind kind;
	enum collectives_counted counted;
	void *buf; /* device; in place */
	int64_t n; /* elements of type, a multiple of world if it is sliced */
	ncclDataType_t type;
	size_t elem_bytes;
	enum collectives_op op;
	int root; /* broadcast only */
};

static const char *const kind_names[] = {
	[NCCL_REDUCE_SCATTER] = "reduce_scatter",
	[NCCL_ALL_GATHER] = "all_gather",
	[NCCL_ALL_REDUCE] = "all_reduce",
	[NCCL_BROADCAST] = "broadcast",
};

static ncclResult_t start_call(
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

/*
 * Elements that this rank sends to the others, counted as for UCX: an all_reduce is a
 * reduce-scatter and an all-gather of slices that differ by one element at most; one of few
 * integers or doubles goes whole to every rank.
 */
static int64_t sent_by(const struct nccl_call *call, int rank, int world)
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

static ncclDataType_t elem_type(const struct k_context *ctx)
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

static void launch(struct collectives_group *g, struct nccl_call call, struct k_stream *s)
{
	struct collectives *c = g->c;
	const char *name = kind_names[call.kind];
	struct nccl_deadline_mark *mark = NULL;
	ncclResult_t result;

	if (g->world == 1 || call.n <= 0)
		return;
	if (!g->open)
		pthread_mutex_lock(&c->nccl_lock);
	if (!usable(g))
		goto out;
	if (!g->open || g->stream == NULL)
		mark = nccl_deadline_begin(&c->deadline, name, c->timeout_ns, s);
	if (g->open && g->stream == NULL) {
		g->stream = s;
		g->mark = mark;
	}
	result = start_call(&call, g->comm, c->rank, g->world, k_stream_native(s));
	if (!g->open)
		nccl_deadline_end(&c->deadline, mark, s);
	if (result != ncclSuccess)
		failed(c, name, result);
	else
		g->sent[call.counted] +=
			sent_by(&call, c->rank, g->world) * (int64_t)call.elem_bytes;
out:
	if (!g->open)
		pthread_mutex_unlock(&c->nccl_lock);
}

/* The lock is held from begin to end: NCCL keeps the calls between them in the thread. */
void collectives_begin(struct collectives_group *g)
{
	ncclResult_t result;

	if (g->world == 1)
		return;
	pthread_mutex_lock(&g->c->nccl_lock);
	if (usable(g)) {
		result = ncclGroupStart();
		g->open = result == ncclSuccess;
		if (!g->open)
			failed(g->c, "ncclGroupStart", result);
	}
	if (!g->open)
		pthread_mutex_unlock(&g->c->nccl_lock);
}

void collectives_end(struct collectives_group *g)
{
	ncclResult_t result;

	if (!g->open)
		return;
	result = ncclGroupEnd();
	if (g->stream != NULL)
		nccl_deadline_end(&g->c->deadline, g->mark, g->stream);
	if (result != ncclSuccess)
		failed(g->c, "ncclGroupEnd", result);
	g->open = false;
	g->stream = NULL;
	pthread_mutex_unlock(&g->c->nccl_lock);
}

static void launch_sliced(struct collectives_group *g, enum nccl_call_kind kind,
	enum collectives_counted counted, void *buf, int64_t n, struct k_stream *s)
{
	if (g->world > 1 && n % g->world != 0) {
		ucx_wire_fail(g->c->wire, "rank %d: %s of %lld elements among %d ranks", g->c->rank,
			kind_names[kind], (long long)n, g->world);
		return;
	}
	launch(g,
		(struct nccl_call){.kind = kind,
			.counted = counted,
			.buf = buf,
			.n = n,
			.type = elem_type(g->c->ctx),
			.elem_bytes = k_elem_bytes(g->c->ctx)},
		s);
}

void collectives_reduce_scatter(
	struct collectives_group *g, void *buf, int64_t n, struct k_stream *s)
{
	launch_sliced(g, NCCL_REDUCE_SCATTER, COUNTED_REDUCE_SCATTER, buf, n, s);
}

void collectives_all_gather(struct collectives_group *g, void *buf, int64_t n, struct k_stream *s)
{
	launch_sliced(g, NCCL_ALL_GATHER, COUNTED_ALL_GATHER, buf, n, s);
}

void collectives_all_reduce(struct collectives_group *g, void *buf, int64_t n,
	enum collectives_type type, enum collectives_op op, struct k_stream *s)
{
	struct nccl_call call = {
		.kind = NCCL_ALL_REDUCE,
		.counted = COUNTED_OTHER,
		.buf = buf,
		.n = n,
		.type = type == COLLECTIVES_INT64 ? ncclInt64 : ncclFloat64,
		.elem_bytes = sizeof(double),
		.op = op,
	};

	if (type == COLLECTIVES_ELEM) {
		call.counted = COUNTED_ALL_REDUCE;
		call.type = elem_type(g->c->ctx);
		call.elem_bytes = k_elem_bytes(g->c->ctx);
	}
	launch(g, call, s);
}

void collectives_broadcast(
	struct collectives_group *g, void *buf, size_t bytes, int root, struct k_stream *s)
{
	if (g->world > 1 && (root < 0 || root >= g->world))
		ucx_wire_fail(g->c->wire, "rank %d: broadcast from rank %d in a group of %d",
			g->c->rank, root, g->world);
	else
		launch(g,
			(struct nccl_call){.kind = NCCL_BROADCAST,
				.counted = COUNTED_OTHER,
				.buf = buf,
				.n = (int64_t)bytes,
				.type = ncclUint8,
				.elem_bytes = 1,
				.root = root},
			s);
}

void collectives_gather_all(
	struct collectives_group *g, void *out, const void *in, size_t bytes, struct k_stream *s)
{
	if (bytes == 0)
		return;
	if (g->world == 1)
		memmove(out, in, bytes);
	else if (gather_host(g, out, in, bytes) == 0)
		g->sent[COUNTED_OTHER] += (int64_t)bytes * (g->world - 1);
}

void collectives_barrier(struct collectives_group *g, struct k_stream *s)
{
	collectives_all_reduce(g, g->c->barrier, 1, COLLECTIVES_INT64, COLLECTIVES_SUM, s);
}

void collectives_graph_begin(struct collectives_group *g, int64_t about_ns, struct k_stream *s)
{
	struct collectives *c = g->c;
	int64_t most_ns = (INT64_MAX - c->timeout_ns) / COLLECTIVES_GRAPH_TIMES;
	int64_t honest_ns = about_ns < most_ns ? about_ns : most_ns;

	if (g->world > 1)
		g->mark = nccl_deadline_begin(&c->deadline, "a captured step",
			c->timeout_ns + COLLECTIVES_GRAPH_TIMES * honest_ns, s);
}

void collectives_graph_end(
	struct collectives_group *g, const struct collectives_bytes *sent, struct k_stream *s)
{
	if (g->world == 1)
		return;
	nccl_deadline_end(&g->c->deadline, g->mark, s);
	g->sent[COUNTED_REDUCE_SCATTER] += sent->reduce_scatter;
	g->sent[COUNTED_ALL_GATHER] += sent->all_gather;
	g->sent[COUNTED_ALL_REDUCE] += sent->all_reduce;
	g->sent[COUNTED_OTHER] += sent->other;
}
