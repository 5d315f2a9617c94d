#include "daemon/engines/engine_pool.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/clock.h"
#include "daemon/engines/engine_link.h"
#include "daemon/config/log.h"
#include "proto/text.h"
#include "proto/protocol.h"
#include "proto/host/memory.h"
#include "proto/host/starved.h"

enum {
	STOP_WAIT_S = 5, /* from engine.exit to SIGKILL */
	BACKOFF_FIRST_MS = 200,
	BACKOFF_MAX_MS = 600000,
};

enum pool_state {
	POOL_DOWN,
	POOL_STARTING,
	POOL_READY,
	POOL_FAILING,
	POOL_RELEASING,
	POOL_RELEASED,
	POOL_STOPPING,
	POOL_STOPPED,
};

enum rank_state { RANK_DOWN, RANK_STARTED, RANK_GREETED, RANK_READY };

struct rank {
	struct engine_pool *pool;
	int rank, node;
	enum rank_state state;
	struct engine_link *link;
	char *address;
	json_t *device;
	json_t *gpu;      /* of its last heartbeat; NULL: it has none */
	json_t *topology; /* of its node, which its first rank sends; else NULL */
};

struct engine_pool {
	struct engine_pool_options o;
	enum pool_state state;
	char reason[1024];  /* of the last loss */
	bool reported;      /* lost() was called for these engines */
	bool warm_next;     /* releasing, and will be started after that */
	int64_t epoch;      /* number of the last start: grows, also over a restart of gpt2d */
	int64_t started_ns; /* of the last start */
	int64_t ready_ns;   /* how long it took; 0: not successful yet */
	int64_t retry_ns;   /* when down: the next start */
	int64_t backoff_ms; /* 0: the next start is immediate */
	int64_t restarts;
	struct event *timer; /* start, kill */
	struct event *watch; /* deadlines, each second */
	struct clock_watch awake;
	struct rank *ranks;
};

static const char *const pool_state_names[] = {
	"down",
	"starting",
	"ready",
	"failing",
	"releasing",
	"released",
	"stopping",
	"stopped",
};

static const char *const rank_state_names[] = {"down", "starting", "connecting", "ready"};

static void lose(struct engine_pool *p, const char *reason);
static void set_state(struct engine_pool *p, enum pool_state state);

static void arm(struct engine_pool *p, int64_t ms)
{
	struct timeval t = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	evtimer_add(p->timer, &t);
}

static int nodes(const struct engine_pool *p)
{
	return p->o.ranks > p->o.node_ranks ? p->o.ranks / p->o.node_ranks : 1;
}

/* ---- messages ---- */

static void connect_all(struct engine_pool *p)
{
	json_t *addresses = json_array(), *params, *of_ranks;

	for (int i = 0; i < p->o.ranks; i++)
		json_array_append_new(addresses,
			p->ranks[i].address ? json_string(p->ranks[i].address) : json_null());
	params = json_pack("{so}", "addresses", addresses);
	if (nodes(p) > 1) {
		of_ranks = json_array();
		for (int i = 0; i < p->o.ranks; i++)
			json_array_append_new(of_ranks, json_integer(p->ranks[i].node));
		json_object_set_new(params, "nodes", of_ranks);
	}
	engine_pool_send(p, p->o.ranks, ENGINE_CONNECT, params);
	json_decref(params);
}

static bool all_in(const struct engine_pool *p, enum rank_state state)
{
	for (int i = 0; i < p->o.ranks; i++)
		if (p->ranks[i].state != state)
			return false;
	return true;
}

/*
 * Checks that the engine has this rank and this build, and computes on the device of the settings.
 */
static void check_hello(const struct rank *r, json_t *params, char *why, size_t why_bytes)
{
	const char *role = json_string_value(json_object_get(params, "role"));
	json_t *rank = json_object_get(params, "rank");
	json_t *device = json_object_get(params, "device");
	const char *backend = json_string_value(json_object_get(device, "backend"));
	const char *asked = r->pool->o.backend;

	engine_link_check_build(r->link, params, why, why_bytes);
	if (why[0] != '\0')
		return;
	if (r->state != RANK_STARTED)
		snprintf(why, why_bytes, "sent hello twice");
	else if (role == NULL || strcmp(role, "rank") != 0 || json_integer_value(rank) != r->rank)
		snprintf(why, why_bytes, "sent hello for another rank");
	else if (asked != NULL && (backend == NULL || strcmp(backend, asked) != 0))
		snprintf(why, why_bytes, "computes on %.32s (expected %s, the setting device)",
			backend ? backend : "an unknown device", asked);
}

static void on_hello(struct rank *r, json_t *params)
{
	struct engine_pool *p = r->pool;
	const char *address = json_string_value(json_object_get(params, "address"));
	char why[900], reason[960];

	check_hello(r, params, why, sizeof(why));
	if (why[0] != '\0') {
		snprintf(reason, sizeof(reason), "engine_refused: rank %d %s", r->rank, why);
		engine_pool_restart(p, reason);
		return;
	}
	r->state = RANK_GREETED;
	free(r->address);
	r->address = address ? memory_text(address) : NULL;
	json_decref(r->device);
	r->device = json_incref(json_object_get(params, "device"));
	if (all_in(p, RANK_GREETED))
		connect_all(p);
}

static void on_ready(struct rank *r)
{
	struct engine_pool *p = r->pool;

	if (p->state != POOL_STARTING || r->state != RANK_GREETED)
		return;
	r->state = RANK_READY;
	if (!all_in(p, RANK_READY))
		return;
	p->ready_ns = clock_mono_ns() - p->started_ns;
	log_write(
		LOG_INFO, "engines: %d ready after %.2f s", p->o.ranks, (double)p->ready_ns / 1e9);
	set_state(p, POOL_READY);
	p->o.ready(p->o.arg);
}

/* Of its report only known members are used, and only numbers. */
static void on_alive(struct rank *r, const json_t *params)
{
	static const char *const keys[] = {"utilization", "memory_used_bytes", "memory_total_bytes",
		"temperature_c", "power_w", "other_processes", "other_pid", "other_memory_bytes"};
	const json_t *said = json_object_get(params, "gpu");

	json_decref(r->gpu);
	r->gpu = json_is_object(said) ? json_object() : NULL;
	for (size_t i = 0; r->gpu && i < sizeof(keys) / sizeof(keys[0]); i++) {
		json_t *value = json_object_get(said, keys[i]);

		json_object_set_new(
			r->gpu, keys[i], json_is_number(value) ? json_incref(value) : json_null());
	}
}

static void on_topology(struct rank *r, const json_t *params)
{
	json_t *topology = json_object_get(params, "topology");

	json_decref(r->topology);
	r->topology = json_is_object(topology) ? json_incref(topology) : NULL;
}

static void on_message(struct engine_link *link, const char *method, json_t *params, void *arg)
{
	struct rank *r = arg;
	struct engine_pool *p = r->pool;

	if (p->state != POOL_STARTING && p->state != POOL_READY && p->state != POOL_FAILING &&
		p->state != POOL_STOPPING)
		return;
	if (strcmp(method, ENGINE_ALIVE) == 0)
		on_alive(r, params);
	else if (strcmp(method, ENGINE_HELLO) == 0)
		on_hello(r, params);
	else if (strcmp(method, ENGINE_READY) == 0)
		on_ready(r);
	else if (strcmp(method, ENGINE_TOPOLOGY) == 0)
		on_topology(r, params);
	else
		p->o.message(r->rank, method, params, p->o.arg);
}

static void on_broken(struct engine_link *link, const char *why, void *arg)
{
	struct rank *r = arg;
	struct engine_pool *p = r->pool;
	char reason[512];

	if (p->state != POOL_STARTING && p->state != POOL_READY)
		return;
	snprintf(reason, sizeof(reason), "engine_lost: rank %d %s", r->rank,
		why ? why : "closed its link");
	if (why != NULL) {
		engine_pool_restart(p, reason);
		return;
	}
	snprintf(p->reason, sizeof(p->reason), "%s", reason);
	set_state(p, POOL_FAILING);
	arm(p, ENGINE_LINK_END_S * 1000);
	engine_pool_reap(p);
}

/* ---- start and end ---- */

static void set_state(struct engine_pool *p, enum pool_state state)
{
	const char *before = engine_pool_state_name(p);

	p->state = state;
	log_write(LOG_DEBUG, "engines: %s -> %s", before, engine_pool_state_name(p));
}

static int start_rank(struct engine_pool *p, struct rank *r)
{
	const struct engine_link_rank command = {
		.rank = r->rank,
		.local_rank = r->rank % p->o.node_ranks,
		.ranks = p->o.ranks,
		.threads = p->o.threads,
		.peak_tflops = p->o.peak_tflops,
		.tuning_dir = p->o.tuning_dir,
		.interface = p->o.interface,
	};
	char what[32];
	struct engine_link_options o = {
		.base = p->o.base,
		.program = p->o.program,
		.what = what,
		.message = on_message,
		.broken = on_broken,
		.arg = r,
	};

	snprintf(what, sizeof(what), "rank %d", r->rank);
	if (r->node == 0)
		return engine_link_create_rank(&o, &command, &r->link);
	r->link = engine_link_create_remote(&o);
	return 0;
}

static void start_all(struct engine_pool *p)
{
	char reason[160];
	int rc;

	if (nodes(p) > 1 && !p->o.complete(p->o.world)) {
		set_state(p, POOL_DOWN); /* until engine_pool_node_joined */
		p->retry_ns = clock_mono_ns();
		return;
	}
	set_state(p, POOL_STARTING);
	p->epoch = p->epoch < clock_utc_ns() ? clock_utc_ns() : p->epoch + 1;
	p->reported = false;
	p->started_ns = clock_mono_ns();
	p->ready_ns = 0;
	for (int i = 0; i < p->o.ranks; i++) {
		rc = start_rank(p, &p->ranks[i]);
		if (rc < 0) {
			snprintf(reason, sizeof(reason),
				"engine_lost: rank %d cannot be started: %s", i, starved_text(rc));
			engine_pool_restart(p, reason);
			return;
		}
		p->ranks[i].state = RANK_STARTED;
	}
	for (int node = 1; node < nodes(p) && p->state == POOL_STARTING; node++)
		p->o.remote_start(node, p->epoch, p->o.world);
}

/* All processes have ended: down, released, or stopped. */
static void all_ended(struct engine_pool *p)
{
	for (int i = 0; i < p->o.ranks; i++) {
		engine_link_destroy(p->ranks[i].link);
		p->ranks[i].link = NULL;
		p->ranks[i].state = RANK_DOWN;
		json_decref(p->ranks[i].gpu);
		p->ranks[i].gpu = NULL;
	}
	evtimer_del(p->timer);
	p->o.gone(p->o.arg);
	if (p->state == POOL_STOPPING) {
		set_state(p, POOL_STOPPED);
		p->o.stopped(p->o.world);
		return;
	}
	if (p->state == POOL_RELEASING) {
		set_state(p, POOL_RELEASED);
		if (p->warm_next)
			engine_pool_warm(p);
		else
			p->o.released(p->o.arg);
		return;
	}
	set_state(p, POOL_DOWN);
	p->restarts++;
	p->retry_ns = clock_mono_ns() + p->backoff_ms * CLOCK_MS_NS;
	arm(p, p->backoff_ms);
	p->backoff_ms = p->backoff_ms ? p->backoff_ms * 2 : BACKOFF_FIRST_MS;
	if (p->backoff_ms > BACKOFF_MAX_MS)
		p->backoff_ms = BACKOFF_MAX_MS;
}

/* Whether its process was not collected yet. */
static bool is_left(const struct rank *r)
{
	if (r->link == NULL)
		return false;
	return r->node == 0 ? engine_link_pid(r->link) > 0 : !engine_link_ended(r->link);
}

/* Whether the node has processes. */
static bool remote_left(const struct engine_pool *p, int node)
{
	for (int i = node * p->o.node_ranks; i < (node + 1) * p->o.node_ranks; i++)
		if (is_left(&p->ranks[i]))
			return true;
	return false;
}

static void kill_all(struct engine_pool *p)
{
	for (int i = 0; i < p->o.ranks; i++)
		if (p->ranks[i].link)
			engine_link_kill(p->ranks[i].link);
	for (int node = 1; node < nodes(p); node++)
		if (remote_left(p, node))
			p->o.remote_kill(node, p->o.world);
}

static void lose(struct engine_pool *p, const char *reason)
{
	if (p->reported)
		return;
	p->reported = true;
	if (reason != p->reason)
		snprintf(p->reason, sizeof(p->reason), "%s", reason);
	text_clean(p->reason);
	log_write(LOG_ERROR, "engines: %s", p->reason);
	kill_all(p);
	p->o.lost(p->reason, p->o.arg);
}

/*
 * Reads the last messages of an ended rank before its end is judged: SIGCHLD may come before its
 * lines. The engines get nothing new meanwhile.
 */
static void read_last_messages(struct engine_pool *p, struct rank *r)
{
	if (p->state == POOL_STARTING || p->state == POOL_READY) {
		set_state(p, POOL_FAILING);
		arm(p, ENGINE_LINK_END_S * 1000);
	}
	if (engine_link_pid(r->link) > 0)
		engine_link_drain(r->link);
}

/*
 * Why an ended rank ended, or NULL if none has. A rank that blames its peer counts only if no other
 * has ended (*sure is false then).
 */
static const struct rank *first_ended(struct engine_pool *p, bool *left, bool *sure)
{
	const struct rank *first = NULL;

	*left = *sure = false;
	for (int i = 0; i < p->o.ranks; i++) {
		struct rank *r = &p->ranks[i];

		if (r->link == NULL)
			continue;
		if (!engine_link_ended(r->link)) {
			*left = true;
			continue;
		}
		read_last_messages(p, r);
		if (engine_link_reap(r->link))
			r->state = RANK_DOWN;
		if (first == NULL || !*sure) {
			first = r;
			*sure = !engine_link_blames_peer(r->link);
		}
	}
	return first;
}

void engine_pool_reap(struct engine_pool *p)
{
	bool left, sure;
	const struct rank *ended = first_ended(p, &left, &sure);
	char reason[900];

	if (ended == NULL)
		return;
	if (p->state != POOL_STOPPING && p->state != POOL_RELEASING && !p->reported) {
		snprintf(reason, sizeof(reason), "engine_lost: rank %d %s", ended->rank,
			engine_link_end(ended->link));
		if (sure || !left)
			lose(p, reason);
		else
			snprintf(p->reason, sizeof(p->reason), "%s", reason);
	}
	if (!left)
		all_ended(p);
}

void engine_pool_restart(struct engine_pool *p, const char *reason)
{
	bool left = false;

	if (p->state != POOL_STARTING && p->state != POOL_READY && p->state != POOL_FAILING)
		return;
	set_state(p, POOL_FAILING);
	lose(p, reason);
	for (int i = 0; i < p->o.ranks; i++)
		left |= is_left(&p->ranks[i]);
	if (left)
		return;
	/* none could be started, or all were on a lost node */
	all_ended(p);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct engine_pool *p = arg;

	switch (p->state) {
	case POOL_DOWN:
		start_all(p);
		break;
	case POOL_FAILING:
		lose(p, p->reason);
		break;
	case POOL_RELEASING:
	case POOL_STOPPING:
		log_write(LOG_WARNING, "engines: not ended within %d s, killed", STOP_WAIT_S);
		kill_all(p);
		break;
	default:
		break;
	}
}

void engine_pool_hear(struct engine_pool *p)
{
	for (int i = 0; (p->state == POOL_STARTING || p->state == POOL_READY) && i < p->o.ranks;
		i++)
		if (p->ranks[i].link)
			engine_link_drain(p->ranks[i].link);
}

static void on_watch(evutil_socket_t fd, short what, void *arg)
{
	struct engine_pool *p = arg;
	char reason[128];

	engine_pool_hear(p);
	clock_watch_update(&p->awake, clock_mono_ns());
	if (p->state == POOL_STARTING &&
		clock_watch_since(&p->awake, p->started_ns) > p->o.start_timeout_s * CLOCK_S_NS) {
		snprintf(reason, sizeof(reason), "engine_lost: engines are not ready after %lld s",
			(long long)p->o.start_timeout_s);
		engine_pool_restart(p, reason);
	}
	for (int i = 0; p->state == POOL_READY && i < p->o.ranks; i++) {
		if (clock_watch_since(&p->awake, engine_link_heard_ns(p->ranks[i].link)) <=
			p->o.alive_timeout_s * CLOCK_S_NS)
			continue;
		snprintf(reason, sizeof(reason), "engine_hung: rank %d: silent for %lld s", i,
			(long long)p->o.alive_timeout_s);
		engine_pool_restart(p, reason);
	}
}

void engine_pool_create(const struct engine_pool_options *options, struct engine_pool **out)
{
	static const struct timeval second = {1, 0};
	struct engine_pool *p = memory_zeroed(1, sizeof(*p));

	p->o = *options;
	p->ranks = memory_zeroed((size_t)options->ranks, sizeof(*p->ranks));
	p->timer = evtimer_new(options->base, on_timer, p);
	p->watch = event_new(options->base, -1, EV_PERSIST, on_watch, p);
	for (int i = 0; i < options->ranks; i++)
		p->ranks[i] = (struct rank){.pool = p, .rank = i, .node = i / options->node_ranks};
	clock_watch_update(&p->awake, clock_mono_ns());
	event_add(p->watch, &second);
	if (options->away)
		p->state = POOL_RELEASED;
	else
		arm(p, 0);
	*out = p;
}

void engine_pool_destroy(struct engine_pool *p)
{
	if (p == NULL)
		return;
	for (int i = 0; i < p->o.ranks; i++) {
		engine_link_destroy(p->ranks[i].link);
		free(p->ranks[i].address);
		json_decref(p->ranks[i].device);
		json_decref(p->ranks[i].gpu);
		json_decref(p->ranks[i].topology);
	}
	event_free(p->timer);
	event_free(p->watch);
	free(p->ranks);
	free(p);
}

/* ---- for the rest of gpt2d ---- */

bool engine_pool_ready(const struct engine_pool *p)
{
	return p->state == POOL_READY;
}

bool engine_pool_gone(const struct engine_pool *p)
{
	for (int i = 0; i < p->o.ranks; i++)
		if (p->ranks[i].link != NULL)
			return false;
	return true;
}

void engine_pool_send(struct engine_pool *p, int n, const char *method, json_t *params)
{
	const int each = p->o.node_ranks;

	for (int i = 0; i < n && i < each; i++)
		if (p->ranks[i].link)
			engine_link_send(p->ranks[i].link, method, json_incref(params));
	for (int node = 1; node < nodes(p) && n > node * each; node++)
		if (remote_left(p, node))
			p->o.remote_send(node, n - node * each < each ? n - node * each : each,
				method, params, p->o.world);
}

void engine_pool_worked(struct engine_pool *p)
{
	p->backoff_ms = 0;
}

/* In good order; state is theirs until they have ended. */
static void end_processes(struct engine_pool *p, enum pool_state state)
{
	json_t *params = json_object();
	bool left = false;

	for (int i = 0; i < p->o.ranks; i++)
		left |= p->ranks[i].link != NULL;
	set_state(p, state);
	if (left) {
		engine_pool_send(p, p->o.ranks, ENGINE_EXIT, params);
		arm(p, STOP_WAIT_S * 1000);
		engine_pool_reap(p);
	} else {
		all_ended(p);
	}
	json_decref(params);
}

void engine_pool_release(struct engine_pool *p)
{
	p->warm_next = false;
	if (p->state == POOL_RELEASING || p->state == POOL_RELEASED || p->state == POOL_STOPPING ||
		p->state == POOL_STOPPED)
		return;
	end_processes(p, POOL_RELEASING);
}

void engine_pool_warm(struct engine_pool *p)
{
	p->warm_next = p->state == POOL_RELEASING;
	if (p->state != POOL_RELEASED)
		return;
	p->backoff_ms = 0;
	start_all(p);
}

bool engine_pool_retry(struct engine_pool *p)
{
	if (p->state != POOL_DOWN)
		return false;
	p->backoff_ms = 0;
	start_all(p);
	return true;
}

struct engine_link *engine_pool_remote(struct engine_pool *p, int rank)
{
	return rank >= p->o.node_ranks && rank < p->o.ranks ? p->ranks[rank].link : NULL;
}

void engine_pool_node_joined(struct engine_pool *p)
{
	if (p->state == POOL_DOWN && p->o.complete(p->o.world))
		start_all(p);
}

void engine_pool_node_lost(struct engine_pool *p, int node, const char *why)
{
	const int first = node * p->o.node_ranks;
	char reason[400];

	for (int i = first; i < first + p->o.node_ranks; i++)
		if (is_left(&p->ranks[i]))
			engine_link_remote_ended(p->ranks[i].link, why, false);
	snprintf(reason, sizeof(reason), "peer_lost: node=%d rank=%d: %.300s", node, first, why);
	p->backoff_ms = 0; /* the engines are not to blame: they start when the node is back */
	engine_pool_restart(p, reason);
	engine_pool_reap(p);
}

bool engine_pool_away(const struct engine_pool *p)
{
	return p->state == POOL_RELEASED || (p->state == POOL_RELEASING && !p->warm_next);
}

bool engine_pool_released(const struct engine_pool *p)
{
	return p->state == POOL_RELEASED;
}

void engine_pool_stop(struct engine_pool *p)
{
	if (p->state != POOL_STOPPING && p->state != POOL_STOPPED)
		end_processes(p, POOL_STOPPING);
}

double engine_pool_starting_s(const struct engine_pool *p)
{
	return p->state == POOL_STARTING ? (double)(clock_mono_ns() - p->started_ns) / 1e9 : -1.0;
}

int64_t engine_pool_retry_s(const struct engine_pool *p)
{
	int64_t retry = (p->retry_ns - clock_mono_ns() + CLOCK_S_NS - 1) / CLOCK_S_NS;

	return p->state != POOL_DOWN ? -1 : retry > 0 ? retry : 0;
}

json_t *engine_pool_topology(const struct engine_pool *p)
{
	json_t *nodes = json_array();

	for (int i = 0; i < p->o.ranks; i += p->o.node_ranks)
		json_array_append_new(nodes,
			json_pack("{si sO?}", "node", p->ranks[i].node, "topology",
				p->ranks[i].topology));
	return nodes;
}

json_t *engine_pool_json(const struct engine_pool *p)
{
	json_t *ranks = json_array();
	double starting = engine_pool_starting_s(p);
	int64_t retry = engine_pool_retry_s(p);

	for (int i = 0; i < p->o.ranks; i++) {
		const struct rank *r = &p->ranks[i];

		json_array_append_new(ranks,
			json_pack("{si si sI ss sO? sO?}", "rank", i, "node", r->node, "pid",
				(json_int_t)(r->link ? engine_link_pid(r->link) : 0), "state",
				rank_state_names[r->state], "device", r->device, "gpu", r->gpu));
	}
	return json_pack("{ss ss? ss si sI so so so so}", "state", pool_state_names[p->state],
		"reason", p->reason[0] ? p->reason : NULL, "program", p->o.program, "threads",
		p->o.threads, "restarts", (json_int_t)p->restarts, "starting_s",
		starting >= 0 ? json_real(starting) : json_null(), "ready_after_s",
		p->ready_ns > 0 ? json_real((double)p->ready_ns / 1e9) : json_null(), "retry_in_s",
		retry >= 0 ? json_integer(retry) : json_null(), "ranks", ranks);
}

const char *engine_pool_state_name(const struct engine_pool *p)
{
	return pool_state_names[p->state];
}

const char *engine_pool_reason(const struct engine_pool *p)
{
	return p->reason;
}
