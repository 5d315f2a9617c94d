#include "daemon/nodes/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/config/log.h"
#include "daemon/config/settings.h"
#include "daemon/engines/checker.h"
#include "daemon/engines/engine_link.h"
#include "daemon/nodes/members.h"
#include "daemon/nodes/relay.h"
#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"
#include "proto/text.h"

/* A spec that members check. */
struct check {
	TAILQ_ENTRY(check) link;
	int64_t id;
	bool *asked; /* by node: its reply is pending */
	int left;    /* of them */
	json_t *errors;
	void (*answer)(void *arg, json_t *errors);
	void *arg;
};

struct world {
	struct world_options o;
	enum settings_part part;
	struct engine_pool *pool;
	struct members *members; /* of a leader */
	struct relay *relay;     /* of a member */
	int64_t epoch;           /* epoch of the engines, as the members have it */
	TAILQ_HEAD(, check) checks;
	int64_t last_check;
	int stopping; /* the pool, the relay: number that has not ended */
};

/* ---- callbacks of the pool ---- */

static void on_stopped(void *arg)
{
	struct world *w = arg;

	if (--w->stopping == 0)
		w->o.pool.stopped(w->o.pool.arg);
}

static bool is_busy(void *arg)
{
	const struct world *w = arg;

	return w->o.busy(w->o.pool.arg);
}

static bool is_complete(void *arg)
{
	const struct world *w = arg;

	return members_complete(w->members);
}

static void start_remote(int node, int64_t epoch, void *arg)
{
	struct world *w = arg;

	w->epoch = epoch;
	members_send(w->members, node, NODE_START,
		json_pack("{sI sI}", "epoch", (json_int_t)epoch, "world",
			(json_int_t)settings_world(w->o.settings)));
}

static void send_remote(int node, int n, const char *method, json_t *params, void *arg)
{
	struct world *w = arg;

	members_send(w->members, node, NODE_SEND,
		json_pack("{sI si ss sO}", "epoch", (json_int_t)w->epoch, "ranks", n, "method",
			method, "params", params));
}

static void kill_remote(int node, void *arg)
{
	struct world *w = arg;

	members_send(w->members, node, NODE_KILL, json_pack("{sI}", "epoch", (json_int_t)w->epoch));
}

/* ---- checks ---- */

static void end_check(struct world *w, struct check *c)
{
	TAILQ_REMOVE(&w->checks, c, link);
	c->answer(c->arg, c->errors);
	json_decref(c->errors);
	free(c->asked);
	free(c);
}

static void on_checked(struct world *w, int node, const json_t *params)
{
	const int64_t id = json_integer_value(json_object_get(params, "id"));
	const char *key, *message;
	char text[1024];
	struct check *c;
	json_t *error;
	size_t i;

	TAILQ_FOREACH(c, &w->checks, link)
		if (c->id == id && c->asked[node])
			break;
	if (c == NULL)
		return;
	json_array_foreach(json_object_get(params, "errors"), i, error) {
		key = json_string_value(json_object_get(error, "key"));
		message = json_string_value(json_object_get(error, "message"));
		snprintf(text, sizeof(text), "node %d: %s", node, message ? message : "refused");
		text_clean(text);
		json_array_append_new(
			c->errors, json_pack("{ss ss}", "key", key ? key : "", "message", text));
	}
	c->asked[node] = false;
	if (--c->left == 0)
		end_check(w, c);
}

/* A lost node does not count: its engines check the spec again before the run. */
static void skip_checks(struct world *w, int node)
{
	struct check *c, *next;

	for (c = TAILQ_FIRST(&w->checks); c != NULL; c = next) {
		next = TAILQ_NEXT(c, link);
		if (!c->asked[node])
			continue;
		c->asked[node] = false;
		if (--c->left == 0)
			end_check(w, c);
	}
}

/* Whether a run of so many ranks has some on that node, which is there. */
static bool has_part(const struct world *w, int node, int64_t ranks)
{
	return node * w->o.settings->ranks < ranks && members_joined(w->members, node);
}

bool world_spans(const struct world *w, int64_t ranks)
{
	for (int node = 1; w->members != NULL && node < w->o.settings->nodes; node++)
		if (has_part(w, node, ranks))
			return true;
	return false;
}

bool world_check(struct world *w, const struct checker_question *question, int64_t ranks,
	void (*answer)(void *arg, json_t *errors), void *arg)
{
	const int nodes = (int)w->o.settings->nodes;
	struct check *c = memory_zeroed(1, sizeof(*c));

	c->id = ++w->last_check;
	c->asked = memory_zeroed((size_t)nodes, sizeof(*c->asked));
	for (int node = 1; w->members != NULL && node < nodes; node++) {
		if (!has_part(w, node, ranks))
			continue;
		c->asked[node] = true;
		c->left++;
		members_send(w->members, node, NODE_CHECK,
			json_pack("{sI sI ss ss ss ss? ss* sO*}", "id", (json_int_t)c->id, "world",
				(json_int_t)question->world, "spec", question->spec, "arm",
				question->arm, "file", question->file, "runs", question->runs,
				"probe", question->probe, "resume", (json_t *)question->resume));
	}
	if (c->left == 0) {
		free(c->asked);
		free(c);
		return false;
	}
	c->errors = json_array();
	c->answer = answer;
	c->arg = arg;
	TAILQ_INSERT_TAIL(&w->checks, c, link);
	return true;
}

void world_end_checks(struct world *w)
{
	while (w != NULL && !TAILQ_EMPTY(&w->checks))
		end_check(w, TAILQ_FIRST(&w->checks));
}

/* ---- messages of members ---- */

static void on_joined(int node, void *arg)
{
	struct world *w = arg;

	engine_pool_node_joined(w->pool);
	w->o.changed(w->o.pool.arg);
}

static void on_node_lost(int node, const char *why, void *arg)
{
	struct world *w = arg;

	skip_checks(w, node);
	engine_pool_node_lost(w->pool, node, why);
	w->o.changed(w->o.pool.arg);
}

static void on_ended(struct world *w, struct engine_link *link, const json_t *params)
{
	const char *text = json_string_value(json_object_get(params, "end"));
	char end[800];

	snprintf(end, sizeof(end), "%s", text ? text : "ended");
	text_clean(end);
	engine_link_remote_ended(link, end, json_is_true(json_object_get(params, "blames_peer")));
	engine_pool_reap(w->pool);
}

static void on_member_message(int node, const char *method, json_t *params, void *arg)
{
	struct world *w = arg;
	const int64_t rank = json_integer_value(json_object_get(params, "rank"));
	const int64_t epoch = json_integer_value(json_object_get(params, "epoch"));
	const char *of_rank = json_string_value(json_object_get(params, "method"));
	json_t *message = json_object_get(params, "params");
	struct engine_link *link;

	if (strcmp(method, NODE_CHECKED) == 0) {
		on_checked(w, node, params);
		return;
	}
	if (epoch != w->epoch)
		return; /* of an earlier world */
	if (rank < 0 || rank / w->o.settings->ranks != node) {
		log_write(LOG_WARNING, "node %d: %.64s: not a rank of that node", node, method);
		return;
	}
	link = engine_pool_remote(w->pool, (int)rank);
	if (link == NULL || engine_link_ended(link))
		return;
	if (strcmp(method, NODE_SAID) == 0 && of_rank != NULL && json_is_object(message))
		engine_link_remote_message(link, of_rank, message);
	else if (strcmp(method, NODE_STARTED) == 0)
		engine_link_remote_started(
			link, (pid_t)json_integer_value(json_object_get(params, "pid")));
	else if (strcmp(method, NODE_BROKEN) == 0)
		engine_link_remote_broken(
			link, json_string_value(json_object_get(params, "reason")));
	else if (strcmp(method, NODE_ENDED) == 0)
		on_ended(w, link, params);
}

/* ---- create, destroy ---- */

static void create_pool(struct world *w)
{
	const struct settings *s = w->o.settings;
	struct engine_pool_options pool = w->o.pool;

	pool.node_ranks = w->part == SETTINGS_MEMBER ? 0 : (int)s->ranks;
	pool.ranks = w->part == SETTINGS_MEMBER ? 0 : (int)settings_world(s);
	pool.away |= w->part == SETTINGS_MEMBER;
	pool.interface = settings_interface(s);
	pool.complete = is_complete;
	pool.remote_start = start_remote;
	pool.remote_send = send_remote;
	pool.remote_kill = kill_remote;
	pool.stopped = on_stopped;
	pool.world = w;
	engine_pool_create(&pool, &w->pool);
}

int world_create(
	const struct world_options *options, struct world **out, char *error, size_t error_bytes)
{
	struct world *w = memory_zeroed(1, sizeof(*w));
	const struct engine_pool_options *pool = &options->pool;
	int rc = 0;

	w->o = *options;
	w->part = settings_part(options->settings);
	w->last_check = clock_utc_ns(); /* different from the numbers of an earlier leader */
	TAILQ_INIT(&w->checks);
	create_pool(w);
	if (w->part == SETTINGS_LEADER)
		rc = members_create(&(struct members_options){.base = pool->base,
					    .settings = options->settings,
					    .state_dir = options->state_dir,
					    .joined = on_joined,
					    .lost = on_node_lost,
					    .message = on_member_message,
					    .busy = is_busy,
					    .arg = w},
			&w->members, error, error_bytes);
	else if (w->part == SETTINGS_MEMBER)
		rc = relay_create(&(struct relay_options){.base = pool->base,
					  .settings = options->settings,
					  .program = pool->program,
					  .tuning_dir = pool->tuning_dir,
					  .checker = options->checker,
					  .threads = pool->threads,
					  .stopped = on_stopped,
					  .arg = w},
			&w->relay, error, error_bytes);
	if (rc < 0) {
		world_destroy(w);
		return rc;
	}
	*out = w;
	return 0;
}

void world_destroy(struct world *w)
{
	if (w == NULL)
		return;
	engine_pool_destroy(w->pool);
	members_destroy(w->members);
	relay_destroy(w->relay);
	free(w);
}

/* ---- for the rest of gpt2d ---- */

struct engine_pool *world_pool(struct world *w)
{
	return w->pool;
}

void world_reap(struct world *w)
{
	if (w == NULL)
		return;
	engine_pool_reap(w->pool);
	if (w->relay != NULL)
		relay_reap(w->relay);
}

void world_stop(struct world *w)
{
	w->stopping = w->relay != NULL ? 2 : 1;
	if (w->relay != NULL)
		relay_stop(w->relay);
	engine_pool_stop(w->pool);
}

bool world_waits(const struct world *w, char *out, size_t out_bytes)
{
	char nodes[80];

	if (w->members == NULL || members_complete(w->members))
		return false;
	members_missing(w->members, nodes, sizeof(nodes));
	snprintf(out, out_bytes, "waiting for %s", nodes);
	return true;
}

const char *world_leader(const struct world *w)
{
	return w->relay != NULL ? relay_leader(w->relay) : NULL;
}

json_t *world_engine_json(const struct world *w)
{
	json_t *engine = engine_pool_json(w->pool);

	if (w->relay != NULL) {
		json_object_set_new(engine, "state", json_string(relay_engine_state(w->relay)));
		json_object_set_new(engine, "ranks", relay_ranks_json(w->relay));
	}
	return engine;
}

json_t *world_json(const struct world *w)
{
	const struct settings *s = w->o.settings;

	if (w->part == SETTINGS_ALONE)
		return json_null();
	return json_pack("{si ss so ss ss? ss? so so}", "node", settings_node(s), "part",
		w->members ? "leader" : "member", "nodes",
		w->members ? json_integer((json_int_t)s->nodes) : json_null(), "cluster",
		settings_cluster(s), "interface", settings_interface(s), "listen",
		w->members ? members_address(w->members) : NULL, "leader",
		w->relay ? relay_json(w->relay) : json_null(), "members",
		w->members ? members_json(w->members) : json_array());
}
