#include "daemon/nodes/relay.h"

#include <event2/event.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/clock.h"
#include "daemon/config/log.h"
#include "daemon/config/settings.h"
#include "daemon/engines/checker.h"
#include "daemon/engines/engine_link.h"
#include "daemon/nodes/facts.h"
#include "daemon/nodes/link.h"
#include "daemon/nodes/tls.h"
#include "proto/host/memory.h"
#include "proto/host/starved.h"
#include "proto/protocol.h"
#include "proto/text.h"

enum {
	RETRY_FIRST_MS = 50,
	RETRY_MAX_MS = 1000,
	RETRY_REFUSED_MS = 2000,
	STOP_S = 12,     /* a leader that is stopped too, as in a Slurm job, ends its run first */
	RESOLVE_MS = 20, /* between checks whether the name is resolved */
	WHY_BYTES = 400,
};

enum relay_state { WAITING, RESOLVING, CONNECTING, JOINED, FENCING, STOPPING, STOPPED };

static const char *const state_names[] = {
	"waiting", "connecting", "connecting", "joined", "fencing", "stopping", "stopped"};

/* A rank of this node. */
struct relay_rank {
	struct relay *relay;
	int rank; /* of the world */
	struct engine_link *link;
	bool ready;
	json_t *device;
};

struct relay {
	struct relay_options o;
	enum relay_state state;
	struct tls *tls;
	struct link *link; /* NULL: none */
	struct gaicb lookup;
	char host[1025], port[8]; /* longest name: NI_MAXHOST */
	struct event *timer;      /* the next attempt to join */
	struct event *watch;      /* each second */
	struct clock_watch awake;
	bool leaving; /* relay_stop was called */
	unsigned attempts;
	int64_t retry_ms;
	int64_t since_ns; /* UTC of the join, or of its end */
	int64_t heard_ns; /* of the leader */
	int64_t epoch;    /* of the last node.start on this connection */
	char leader[320]; /* the leader's host, as it reported */
	char leader_name[420];
	char why[WHY_BYTES], why_before[WHY_BYTES];
	char address[LINK_NAME_BYTES];
	struct relay_rank *ranks;
};

static void join(struct relay *r);

/* ---- engines ---- */

static bool none_left(const struct relay *r)
{
	for (int64_t i = 0; i < r->o.settings->ranks; i++)
		if (r->ranks[i].link != NULL)
			return false;
	return true;
}

static void kill_engines(struct relay *r)
{
	for (int64_t i = 0; i < r->o.settings->ranks; i++)
		if (r->ranks[i].link != NULL)
			engine_link_kill(r->ranks[i].link);
}

/* To the leader, about a rank. Takes params, and adds epoch and rank. */
static void report(const struct relay_rank *rank, const char *method, json_t *params)
{
	struct relay *r = rank->relay;

	if (r->state != JOINED) {
		json_decref(params);
		return;
	}
	json_object_set_new(params, "epoch", json_integer((json_int_t)r->epoch));
	json_object_set_new(params, "rank", json_integer(rank->rank));
	link_send(r->link, method, params);
}

static void on_engine_message(
	struct engine_link *link, const char *method, json_t *params, void *arg)
{
	struct relay_rank *rank = arg;

	if (strcmp(method, ENGINE_HELLO) == 0) {
		json_decref(rank->device);
		rank->device = json_incref(json_object_get(params, "device"));
	}
	rank->ready |= strcmp(method, ENGINE_READY) == 0;
	report(rank, NODE_SAID, json_pack("{ss sO}", "method", method, "params", params));
}

static void on_engine_broken(struct engine_link *link, const char *why, void *arg)
{
	report(arg, NODE_BROKEN, json_pack("{ss?}", "reason", why));
}

static void report_end(struct relay_rank *rank, const char *text, bool blames_peer)
{
	report(rank, NODE_ENDED,
		json_pack("{so sb}", "end", text_json(text), "blames_peer", blames_peer));
}

static void start_rank(struct relay *r, int place, int world)
{
	struct relay_rank *rank = &r->ranks[place];
	const struct engine_link_rank command = {
		.rank = rank->rank,
		.local_rank = place,
		.ranks = world,
		.threads = r->o.threads,
		.peak_tflops = (int)r->o.settings->peak_tflops,
		.tuning_dir = r->o.tuning_dir,
		.interface = settings_interface(r->o.settings),
	};
	char what[32], why[160];
	const struct engine_link_options o = {
		.base = r->o.base,
		.program = r->o.program,
		.what = what,
		.message = on_engine_message,
		.broken = on_engine_broken,
		.arg = rank,
	};
	int rc;

	snprintf(what, sizeof(what), "rank %d", rank->rank);
	rank->ready = false;
	rc = engine_link_create_rank(&o, &command, &rank->link);
	if (rc == 0) {
		report(rank, NODE_STARTED,
			json_pack("{sI}", "pid", (json_int_t)engine_link_pid(rank->link)));
		return;
	}
	snprintf(why, sizeof(why), "cannot be started: %s", starved_text(rc));
	report_end(rank, why, false);
}

static void stop_when_ended(struct relay *r)
{
	if (r->state != STOPPING || r->link != NULL || !none_left(r))
		return;
	r->state = STOPPED;
	r->o.stopped(r->o.arg);
}

/* Leaves the leader, if connected. */
static void stop_now(struct relay *r)
{
	if (r->state == JOINED)
		link_send(r->link, NODE_LEAVE, json_pack("{ss}", "reason", "its gpt2d is stopped"));
	if (r->link != NULL)
		link_finish(r->link);
	evtimer_del(r->timer);
	r->state = STOPPING;
	kill_engines(r);
	stop_when_ended(r);
}

/* After the last one has ended: joins again, or stops. */
static void on_none_left(struct relay *r)
{
	if (r->leaving && r->state == JOINED) {
		stop_now(r);
	} else if (r->state == FENCING) {
		r->state = WAITING;
		join(r);
	} else {
		stop_when_ended(r);
	}
}

void relay_reap(struct relay *r)
{
	bool ended = false;

	for (int64_t i = 0; i < r->o.settings->ranks; i++) {
		struct relay_rank *rank = &r->ranks[i];

		if (rank->link == NULL || !engine_link_ended(rank->link))
			continue;
		if (engine_link_pid(rank->link) > 0)
			engine_link_drain(rank->link); /* its last messages come before its end */
		if (!engine_link_reap(rank->link))
			continue;
		log_write(LOG_INFO, "rank %d %s", rank->rank, engine_link_end(rank->link));
		report_end(rank, engine_link_end(rank->link), engine_link_blames_peer(rank->link));
		engine_link_destroy(rank->link);
		rank->link = NULL;
		rank->ready = false;
		ended = true;
	}
	if (ended && none_left(r))
		on_none_left(r);
}

/* ---- messages of the leader ---- */

static void start(struct relay *r, const json_t *params)
{
	const int64_t epoch = json_integer_value(json_object_get(params, "epoch"));
	const int64_t world = json_integer_value(json_object_get(params, "world"));
	const int64_t first = settings_node(r->o.settings) * r->o.settings->ranks;

	if (epoch <= r->epoch || world < first + r->o.settings->ranks || world > INT32_MAX ||
		!none_left(r)) {
		log_write(LOG_ERROR, "link: the leader's " NODE_START " is ignored");
		return;
	}
	r->epoch = epoch;
	for (int i = 0; i < (int)r->o.settings->ranks; i++) {
		r->ranks[i].rank = (int)first + i;
		start_rank(r, i, (int)world);
	}
}

/* Each node has its own roots below which runs may read. */
static json_t *own_params(const struct relay *r, const char *method, json_t *params)
{
	const struct data_roots roots = settings_data_roots(r->o.settings);
	json_t *own;

	if (strcmp(method, SEGMENT_START) != 0)
		return json_incref(params);
	own = json_copy(params);
	json_object_set_new(own, "data_roots", data_roots_json(&roots));
	return own;
}

static void pass_on(struct relay *r, const json_t *params)
{
	const int64_t n = json_integer_value(json_object_get(params, "ranks"));
	const char *method = json_string_value(json_object_get(params, "method"));
	json_t *message = json_object_get(params, "params"), *own;

	if (method == NULL || !json_is_object(message))
		return;
	own = own_params(r, method, message);
	for (int64_t i = 0; i < n && i < r->o.settings->ranks; i++)
		if (r->ranks[i].link != NULL)
			engine_link_send(r->ranks[i].link, method, json_incref(own));
	json_decref(own);
}

static void on_heartbeat(struct relay *r, json_t *params)
{
	json_t *back = json_copy(params);

	json_object_set_new(back, "utc_ns", json_integer((json_int_t)clock_utc_ns()));
	link_send(r->link, NODE_ALIVE, back);
	if (r->leaving && !json_is_true(json_object_get(params, "busy")))
		stop_now(r);
}

static void welcome(struct relay *r, const json_t *params)
{
	const char *host = json_string_value(json_object_get(params, "host"));

	link_keep(r->link);
	r->state = JOINED;
	r->since_ns = clock_utc_ns();
	r->retry_ms = RETRY_FIRST_MS;
	r->epoch = 0;
	r->why[0] = r->why_before[0] = '\0';
	snprintf(r->leader, sizeof(r->leader), "%s", host ? host : "");
	text_clean(r->leader);
	snprintf(r->leader_name, sizeof(r->leader_name), "%s (%s)", r->leader, r->o.settings->join);
	log_write(LOG_INFO, "link: joined the leader, %s (%s), as node %d", r->leader,
		link_name(r->link), settings_node(r->o.settings));
}

/* ---- checks ---- */

/* A check for the leader, with this node's checker. */
struct relay_check {
	struct relay *relay;
	json_t *params; /* of node.check */
};

static void on_checked(void *arg, const char *failure, json_t *reply)
{
	struct relay_check *c = arg;
	json_t *errors = json_object_get(reply, "errors");

	if (failure != NULL)
		errors = json_pack("[{ss ss}]", "key", "", "message", failure);
	else
		errors = errors ? json_incref(errors) : json_array();
	if (c->relay->state == JOINED)
		link_send(c->relay->link, NODE_CHECKED,
			json_pack("{sO so}", "id", json_object_get(c->params, "id"), "errors",
				errors));
	else
		json_decref(errors);
	json_decref(c->params);
	free(c);
}

static bool is_wanted(void *arg)
{
	const struct relay_check *c = arg;

	return c->relay->state == JOINED;
}

static void check(struct relay *r, json_t *params)
{
	struct relay_check *c;
	struct checker_question asked = {
		.world = json_integer_value(json_object_get(params, "world")),
		.spec = json_string_value(json_object_get(params, "spec")),
		.arm = json_string_value(json_object_get(params, "arm")),
		.file = json_string_value(json_object_get(params, "file")),
		.runs = json_string_value(json_object_get(params, "runs")),
		.probe = json_string_value(json_object_get(params, "probe")),
		.resume = json_object_get(params, "resume"),
		.answer = on_checked,
		.wanted = is_wanted,
	};

	if (r->leaving) { /* it has no checker any more, and the leader does not wait for it */
		link_send(r->link, NODE_CHECKED,
			json_pack("{sO? s[]}", "id", json_object_get(params, "id"), "errors"));
		return;
	}
	if (!json_is_integer(json_object_get(params, "id")) || asked.spec == NULL ||
		asked.arm == NULL || asked.file == NULL)
		return;
	c = memory_zeroed(1, sizeof(*c));
	c->relay = r;
	c->params = json_incref(params);
	asked.arg = c;
	checker_ask(r->o.checker, &asked);
}

/* ---- the loss of the leader ---- */

/*
 * Said once for each reason: an attempt to join comes each second. Two of them may take turns, as
 * those of two addresses of a name.
 */
static void say(struct relay *r, const char *why)
{
	char now[WHY_BYTES];
	bool said;

	snprintf(now, sizeof(now), "%s", why);
	text_clean(now);
	if (strcmp(now, r->why) == 0)
		return;
	said = strcmp(now, r->why_before) == 0;
	memcpy(r->why_before, r->why, sizeof(r->why));
	memcpy(r->why, now, sizeof(now));
	if (!said)
		log_write(r->state == JOINED ? LOG_ERROR : LOG_WARNING, "link: leader %s: %s; %s",
			r->o.settings->join, r->why,
			r->state == JOINED ? "the engines end, and gpt2d joins again"
					   : "gpt2d retries each second");
}

static void retry_later(struct relay *r)
{
	const struct timeval t = {
		.tv_sec = r->retry_ms / 1000, .tv_usec = r->retry_ms % 1000 * 1000};

	evtimer_add(r->timer, &t);
	r->retry_ms = r->retry_ms * 2 > RETRY_MAX_MS ? RETRY_MAX_MS : r->retry_ms * 2;
}

static void part(struct relay *r, const char *why)
{
	const bool was_joined = r->state == JOINED;

	link_destroy(r->link);
	r->link = NULL;
	if (r->state == STOPPING) {
		stop_when_ended(r);
		return;
	}
	say(r, why);
	if (was_joined)
		r->since_ns = clock_utc_ns();
	r->state = WAITING;
	if (r->leaving) {
		stop_now(r);
	} else if (was_joined && !none_left(r)) {
		r->state = FENCING;
		kill_engines(r);
	} else {
		retry_later(r);
	}
}

static void on_down(struct link *link, const char *why, void *arg)
{
	part(arg, why);
}

static void refused(struct relay *r, const json_t *params)
{
	const char *reason = json_string_value(json_object_get(params, "reason"));
	char why[WHY_BYTES];

	snprintf(why, sizeof(why), "it refuses this node: %.300s", reason ? reason : "no reason");
	r->retry_ms = RETRY_REFUSED_MS;
	part(r, why);
}

static void on_message(struct link *link, const char *method, json_t *params, void *arg)
{
	struct relay *r = arg;
	const int64_t epoch = json_integer_value(json_object_get(params, "epoch"));

	r->heard_ns = clock_mono_ns();
	if (strcmp(method, NODE_REFUSED) == 0)
		refused(r, params);
	else if (strcmp(method, NODE_WELCOME) == 0 && r->state == CONNECTING)
		welcome(r, params);
	else if (r->state != JOINED)
		part(r, "it sent another message than " NODE_WELCOME " first");
	else if (strcmp(method, NODE_ALIVE) == 0)
		on_heartbeat(r, params);
	else if (strcmp(method, NODE_START) == 0)
		start(r, params);
	else if (strcmp(method, NODE_CHECK) == 0)
		check(r, params);
	else if (epoch != r->epoch)
		return; /* of an earlier world */
	else if (strcmp(method, NODE_SEND) == 0)
		pass_on(r, params);
	else if (strcmp(method, NODE_KILL) == 0)
		kill_engines(r);
}

/* ---- joining ---- */

static void on_up(struct link *link, void *arg)
{
	struct relay *r = arg;
	json_t *hello = facts_json();

	json_object_set_new(hello, "protocol", json_integer(PROTOCOL_VERSION));
	json_object_set_new(hello, "node", json_integer(settings_node(r->o.settings)));
	json_object_set_new(hello, "ranks", json_integer((json_int_t)r->o.settings->ranks));
	link_send(link, NODE_HELLO, hello);
}

/* If a name has several addresses, the leader may listen on one: each attempt takes the next. */
static const struct addrinfo *choose(struct relay *r, const struct addrinfo *found)
{
	const struct addrinfo *to = found;
	unsigned n = 0;

	for (const struct addrinfo *i = found; i != NULL; i = i->ai_next)
		n++;
	for (n = r->attempts++ % n; n > 0; n--)
		to = to->ai_next;
	return to;
}

static void connect_to(struct relay *r, const struct addrinfo *found)
{
	const struct addrinfo *to = choose(r, found);
	const struct link_options options = {.base = r->o.base,
		.tls = r->tls,
		.up = on_up,
		.message = on_message,
		.down = on_down,
		.arg = r};
	struct sockaddr_storage from;
	const char *interface = r->o.settings->link_interface;
	char why[WHY_BYTES];
	int rc = 0;

	if (interface != NULL)
		rc = facts_interface_address(interface, &from, why, sizeof(why));
	if (rc == 0) {
		r->state = CONNECTING;
		rc = link_connect(&options, to->ai_addr,
			interface != NULL ? (struct sockaddr *)(void *)&from : NULL, &r->link);
		snprintf(why, sizeof(why), "%s", rc < 0 ? strerror(-rc) : "");
	}
	if (rc < 0)
		part(r, why);
	else
		snprintf(r->address, sizeof(r->address), "%s", link_name(r->link));
}

/* A thread of the C library resolves the name; it may not be done yet. */
static void take_lookup(struct relay *r)
{
	static const struct timeval soon = {0, RESOLVE_MS * 1000};
	struct addrinfo *found = r->lookup.ar_result;
	const int rc = gai_error(&r->lookup);

	if (rc == EAI_INPROGRESS) {
		evtimer_add(r->timer, &soon);
		return;
	}
	if (rc != 0) {
		part(r, gai_strerror(rc));
		return;
	}
	connect_to(r, found);
	freeaddrinfo(found);
}

static void join(struct relay *r)
{
	static const struct addrinfo hints = {
		.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	struct addrinfo numeric = hints, *found = NULL;
	struct gaicb *list[] = {&r->lookup};

	numeric.ai_flags |= AI_NUMERICHOST;
	if (getaddrinfo(r->host, r->port, &numeric, &found) == 0) {
		connect_to(r, found);
		freeaddrinfo(found);
		return;
	}
	r->lookup = (struct gaicb){.ar_name = r->host, .ar_service = r->port, .ar_request = &hints};
	r->state = RESOLVING;
	if (getaddrinfo_a(GAI_NOWAIT, list, 1, NULL) == 0)
		take_lookup(r);
	else
		part(r, "cannot resolve its name");
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct relay *r = arg;

	if (r->leaving)
		stop_now(r);
	else if (r->state == RESOLVING)
		take_lookup(r);
	else if (r->state == WAITING)
		join(r);
}

static void on_watch(evutil_socket_t fd, short what, void *arg)
{
	struct relay *r = arg;
	char why[WHY_BYTES];

	clock_watch_update(&r->awake, clock_mono_ns());
	if (r->state != JOINED ||
		clock_watch_since(&r->awake, r->heard_ns) <
			r->o.settings->node_timeout_s * CLOCK_S_NS)
		return;
	snprintf(why, sizeof(why), "no heartbeat for %lld s",
		(long long)r->o.settings->node_timeout_s);
	part(r, why);
}

/* ---- create, destroy ---- */

int relay_create(
	const struct relay_options *options, struct relay **out, char *error, size_t error_bytes)
{
	static const struct timeval second = {1, 0};
	const struct settings *s = options->settings;
	struct relay *r = memory_zeroed(1, sizeof(*r));
	const char *colon = strrchr(s->join, ':');
	const bool bracketed = s->join[0] == '[' && colon > s->join && colon[-1] == ']';
	int rc;

	r->o = *options;
	r->retry_ms = RETRY_FIRST_MS;
	snprintf(r->host, sizeof(r->host), "%.*s", (int)(colon - s->join) - 2 * bracketed,
		s->join + bracketed);
	snprintf(r->port, sizeof(r->port), "%s", colon + 1);
	snprintf(r->leader_name, sizeof(r->leader_name), "%s", s->join);
	r->ranks = memory_zeroed((size_t)s->ranks, sizeof(*r->ranks));
	for (int i = 0; i < (int)s->ranks; i++) {
		r->ranks[i].relay = r;
		r->ranks[i].rank = settings_node(s) * (int)s->ranks + i;
	}
	r->timer = evtimer_new(options->base, on_timer, r);
	r->watch = event_new(options->base, -1, EV_PERSIST, on_watch, r);
	clock_watch_update(&r->awake, clock_mono_ns());
	event_add(r->watch, &second);
	rc = tls_create(&(struct tls_options){.key_file = s->key_file,
				.cluster = settings_cluster(s),
				.node = settings_node(s)},
		&r->tls, error, error_bytes);
	if (rc < 0) {
		relay_destroy(r);
		return rc;
	}
	event_active(r->timer, 0, 0);
	*out = r;
	return 0;
}

void relay_destroy(struct relay *r)
{
	if (r == NULL)
		return;
	if (gai_cancel(&r->lookup) == EAI_NOTCANCELED)
		return; /* a thread still writes there, and the process will end soon */
	for (int64_t i = 0; i < r->o.settings->ranks; i++) {
		engine_link_destroy(r->ranks[i].link);
		json_decref(r->ranks[i].device);
	}
	link_destroy(r->link);
	tls_destroy(r->tls);
	event_free(r->timer);
	event_free(r->watch);
	free(r->ranks);
	free(r);
}

/* ---- for the world ---- */

void relay_stop(struct relay *r)
{
	static const struct timeval wait = {STOP_S, 0};

	if (r->leaving)
		return;
	r->leaving = true;
	if (r->state == JOINED && !none_left(r))
		evtimer_add(r->timer, &wait);
	else
		stop_now(r);
}

const char *relay_leader(const struct relay *r)
{
	return r->leader_name;
}

const char *relay_engine_state(const struct relay *r)
{
	bool ready = true;

	for (int64_t i = 0; i < r->o.settings->ranks; i++)
		ready &= r->ranks[i].ready;
	return none_left(r) ? "down" : ready ? "ready" : "starting";
}

json_t *relay_json(const struct relay *r)
{
	return json_pack("{ss ss? ss so ss? so}", "state", state_names[r->state], "host",
		r->leader[0] ? r->leader : NULL, "address", r->o.settings->join, "since",
		r->since_ns ? clock_json(r->since_ns) : json_null(), "reason",
		r->why[0] ? r->why : NULL, "silent_s",
		r->state == JOINED ? json_real((double)(clock_mono_ns() - r->heard_ns) / 1e9)
				   : json_null());
}

json_t *relay_ranks_json(const struct relay *r)
{
	json_t *rows = json_array();

	for (int64_t i = 0; i < r->o.settings->ranks; i++) {
		const struct relay_rank *rank = &r->ranks[i];

		json_array_append_new(rows,
			json_pack("{si si sI ss sO? sn}", "rank", rank->rank, "node",
				settings_node(r->o.settings), "pid",
				(json_int_t)(rank->link ? engine_link_pid(rank->link) : 0), "state",
				rank->link == NULL    ? "down"
					: rank->ready ? "ready"
						      : "starting",
				"device", rank->device, "gpu"));
	}
	return rows;
}
