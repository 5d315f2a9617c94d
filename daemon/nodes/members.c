#include "daemon/nodes/members.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/clock.h"
#include "daemon/config/log.h"
#include "daemon/config/settings.h"
#include "daemon/nodes/facts.h"
#include "daemon/nodes/link.h"
#include "daemon/nodes/listener.h"
#include "daemon/nodes/tls.h"
#include "proto/artifact.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"
#include "proto/state_files.h"
#include "proto/text.h"
#include "proto/version.h"

enum { WHY_BYTES = 400, NAMED_MAX = 3 };

struct member {
	struct members *members;
	int node;
	struct link *link; /* NULL: not connected */
	json_t *facts;     /* of its last node.hello; NULL: it never joined */
	char address[LINK_NAME_BYTES];
	char why[WHY_BYTES];    /* why it was lost last */
	int64_t since_ns;       /* UTC of the join or the loss; 0: never */
	int64_t heard_ns;       /* monotonic */
	double offset_s, rtt_s; /* of its clock; of a heartbeat. rtt_s < 0: unknown */
};

struct members {
	struct members_options o;
	struct tls *tls;
	struct listener *listener;
	struct event *beat; /* each second */
	struct clock_watch awake;
	json_t *facts; /* facts about the leader */
	int nodes;
	struct member *member; /* by node ID; the leader's is unused */
};

/* ---- the end of a membership ---- */

static void lose(struct member *member, const char *why)
{
	struct members *m = member->members;

	snprintf(member->why, sizeof(member->why), "%s", why);
	text_clean(member->why);
	member->since_ns = clock_utc_ns();
	link_destroy(member->link);
	member->link = NULL;
	log_write(LOG_ERROR, "node %d (%s, %s) is lost: %s", member->node,
		json_string_value(json_object_get(member->facts, "host")), member->address,
		member->why);
	m->o.lost(member->node, member->why, m->o.arg);
}

static void on_down(struct link *link, const char *why, void *arg)
{
	lose(arg, why);
}

/* ---- messages ---- */

/* A heartbeat returns: compares the clocks at the middle of the round trip (RFC 5905, 8). */
static void on_alive(struct member *member, const json_t *params)
{
	const int64_t sent_ns = json_integer_value(json_object_get(params, "leader_ns"));
	const int64_t sent_utc_ns = json_integer_value(json_object_get(params, "leader_utc_ns"));
	const int64_t utc_ns = json_integer_value(json_object_get(params, "utc_ns"));
	const int64_t way_ns = clock_mono_ns() - sent_ns;

	if (sent_ns <= 0 || sent_utc_ns <= 0 || utc_ns <= 0 || way_ns < 0)
		return;
	member->rtt_s = (double)way_ns / 1e9;
	member->offset_s = ((double)(utc_ns - sent_utc_ns) - (double)way_ns / 2) / 1e9;
}

static void on_message(struct link *link, const char *method, json_t *params, void *arg)
{
	struct member *member = arg;
	struct members *m = member->members;
	const char *reason;
	char why[WHY_BYTES];

	member->heard_ns = clock_mono_ns();
	if (strcmp(method, NODE_ALIVE) == 0) {
		on_alive(member, params);
	} else if (strcmp(method, NODE_LEAVE) == 0) {
		reason = json_string_value(json_object_get(params, "reason"));
		snprintf(why, sizeof(why), "%.300s", reason ? reason : "it left");
		lose(member, why);
	} else {
		m->o.message(member->node, method, params, m->o.arg);
	}
}

/* ---- the beginning ---- */

/* Why this member cannot join; empty: it can. */
static void check_hello(
	const struct members *m, const struct link *link, const json_t *params, char why[WHY_BYTES])
{
	const struct settings *s = m->o.settings;
	const int node = (int)json_integer_value(json_object_get(params, "node"));
	const int64_t ranks = json_integer_value(json_object_get(params, "ranks"));
	const int64_t protocol = json_integer_value(json_object_get(params, "protocol"));
	const char *build = json_string_value(json_object_get(params, "build"));
	const char *host = json_string_value(json_object_get(params, "host"));
	const struct member *member = &m->member[link_peer(link)];

	why[0] = '\0';
	if (host == NULL)
		snprintf(why, WHY_BYTES, NODE_HELLO " without a host");
	else if (node != link_peer(link))
		snprintf(why, WHY_BYTES, "its hello names node %d, its TLS identity names node %d",
			node, link_peer(link));
	else if (protocol != PROTOCOL_VERSION || build == NULL || strcmp(build, version_build) != 0)
		snprintf(why, WHY_BYTES,
			"wrong version: node %d (%.64s) is build %.64s with protocol %lld, the "
			"leader is build %s with protocol %d: install the same gpt2d on all nodes",
			node, host, build ? build : "?", (long long)protocol, version_build,
			PROTOCOL_VERSION);
	else if (ranks != s->ranks)
		snprintf(why, WHY_BYTES,
			"uneven: node %d (%.64s) has %lld ranks, the leader has %lld: set ranks to "
			"the same number on all nodes",
			node, host, (long long)ranks, (long long)s->ranks);
	else if (member->link != NULL)
		snprintf(why, WHY_BYTES,
			"duplicate: node %d is connected already, from %.64s (%s): give each node "
			"its own node_id",
			node, json_string_value(json_object_get(member->facts, "host")),
			member->address);
	text_clean(why);
}

/* A difference may prevent UCX from connecting: the engines detect that. */
static void warn_of_ucx(const struct members *m, const struct member *member)
{
	json_t *ours = json_object_get(m->facts, "ucx");
	json_t *theirs = json_object_get(member->facts, "ucx");

	if (!json_equal(ours, theirs))
		log_write(LOG_WARNING,
			"node %d: its UCX_ variables differ from the leader's: see "
			"gpt2ctl status --json",
			member->node);
}

static void on_hello(struct link *link, json_t *params, void *arg)
{
	struct members *m = arg;
	struct member *member;
	char why[WHY_BYTES];

	check_hello(m, link, params, why);
	member = &m->member[link_peer(link)];
	if (why[0] != '\0') {
		if (member->link == NULL) /* status gives the reason why the node is missing */
			snprintf(member->why, sizeof(member->why), "refused: %.380s", why);
		listener_refuse(m->listener, link, why);
		return;
	}
	link_hand_over(link, on_message, on_down, member);
	link_keep(link);
	member->link = link;
	member->since_ns = clock_utc_ns();
	member->heard_ns = clock_mono_ns();
	member->rtt_s = -1.0;
	snprintf(member->address, sizeof(member->address), "%s", link_name(link));
	json_decref(member->facts);
	member->facts = json_incref(params);
	log_write(LOG_INFO, "node %d joined: %s, %s", member->node,
		json_string_value(json_object_get(params, "host")), member->address);
	warn_of_ucx(m, member);
	link_send(link, NODE_WELCOME,
		json_pack("{si sI sO}", "nodes", m->nodes, "world",
			(json_int_t)settings_world(m->o.settings), "host",
			json_object_get(m->facts, "host")));
	m->o.joined(member->node, m->o.arg);
}

/* ---- heartbeats ---- */

static void on_beat(evutil_socket_t fd, short what, void *arg)
{
	struct members *m = arg;
	const int64_t now = clock_mono_ns();
	const bool busy = m->o.busy(m->o.arg);
	char why[WHY_BYTES];

	clock_watch_update(&m->awake, now);
	for (int node = 1; node < m->nodes; node++) {
		struct member *member = &m->member[node];

		if (member->link == NULL)
			continue;
		if (clock_watch_since(&m->awake, member->heard_ns) >=
			m->o.settings->node_timeout_s * CLOCK_S_NS) {
			snprintf(why, sizeof(why), "no heartbeat for %lld s",
				(long long)m->o.settings->node_timeout_s);
			lose(member, why);
			continue;
		}
		link_send(member->link, NODE_ALIVE,
			json_pack("{sI sI sb}", "leader_ns", (json_int_t)now, "leader_utc_ns",
				(json_int_t)clock_utc_ns(), "busy", busy));
	}
}

/* ---- create, destroy ---- */

/* Scripts that start the members read the port from this file. */
static int publish_address(const struct members *m, char *error, size_t error_bytes)
{
	char text[LINK_NAME_BYTES + 1];
	const int n = snprintf(text, sizeof(text), "%s\n", members_address(m));
	const int rc = artifact_write(m->o.state_dir, STATE_LINK, text, (size_t)n);

	if (rc < 0)
		snprintf(
			error, error_bytes, "%s/" STATE_LINK ": %s", m->o.state_dir, strerror(-rc));
	return rc;
}

int members_create(const struct members_options *options, struct members **out, char *error,
	size_t error_bytes)
{
	static const struct timeval second = {1, 0};
	const struct settings *s = options->settings;
	struct members *m = memory_zeroed(1, sizeof(*m));
	int rc;

	m->o = *options;
	m->nodes = (int)s->nodes;
	m->facts = facts_json();
	m->member = memory_zeroed((size_t)m->nodes, sizeof(*m->member));
	for (int i = 0; i < m->nodes; i++)
		m->member[i] = (struct member){.members = m, .node = i, .rtt_s = -1.0};
	m->beat = event_new(options->base, -1, EV_PERSIST, on_beat, m);
	clock_watch_update(&m->awake, clock_mono_ns());
	event_add(m->beat, &second);
	rc = tls_create(&(struct tls_options){.key_file = s->key_file,
				.cluster = settings_cluster(s),
				.node = 0,
				.nodes = m->nodes},
		&m->tls, error, error_bytes);
	if (rc == 0)
		rc = listener_create(&(struct listener_options){.base = options->base,
					     .tls = m->tls,
					     .address = s->listen,
					     .interface = s->link_interface,
					     .peers = m->nodes,
					     .hello = on_hello,
					     .arg = m},
			&m->listener, error, error_bytes);
	if (rc == 0)
		rc = publish_address(m, error, error_bytes);
	if (rc < 0) {
		members_destroy(m);
		return rc;
	}
	log_write(LOG_INFO, "link: node 0 of %d waits for members on %s", m->nodes,
		members_address(m));
	*out = m;
	return 0;
}

void members_destroy(struct members *m)
{
	if (m == NULL)
		return;
	for (int i = 0; i < m->nodes; i++) {
		link_destroy(m->member[i].link);
		json_decref(m->member[i].facts);
	}
	listener_destroy(m->listener);
	tls_destroy(m->tls);
	event_free(m->beat);
	json_decref(m->facts);
	free(m->member);
	free(m);
}

/* ---- for the world ---- */

bool members_joined(const struct members *m, int node)
{
	return m->member[node].link != NULL;
}

bool members_complete(const struct members *m)
{
	for (int i = 1; i < m->nodes; i++)
		if (m->member[i].link == NULL)
			return false;
	return true;
}

void members_missing(const struct members *m, char *out, size_t out_bytes)
{
	int missing = 0, named = 0;
	size_t n;

	for (int i = 1; i < m->nodes; i++)
		missing += m->member[i].link == NULL;
	n = (size_t)snprintf(out, out_bytes, missing == 1 ? "node " : "nodes ");
	for (int i = 1; i < m->nodes && named < NAMED_MAX && n < out_bytes; i++) {
		if (m->member[i].link != NULL)
			continue;
		named++;
		n += (size_t)snprintf(out + n, out_bytes - n, "%s%d",
			named == 1                 ? ""
				: named == missing ? " and "
						   : ", ",
			i);
	}
	if (missing > named && n < out_bytes)
		snprintf(out + n, out_bytes - n, " and %d more", missing - named);
}

void members_send(struct members *m, int node, const char *method, json_t *params)
{
	if (m->member[node].link != NULL)
		link_send(m->member[node].link, method, params);
	else
		json_decref(params);
}

const char *members_address(const struct members *m)
{
	return listener_address(m->listener);
}

json_t *members_json(const struct members *m)
{
	static const char *const kept[] = {
		"host", "boot_id", "pid", "version", "build", "ucx", "gpus"};
	const int64_t now = clock_mono_ns();
	json_t *rows = json_array(), *row;

	for (int i = 1; i < m->nodes; i++) {
		const struct member *member = &m->member[i];
		const bool here = member->link != NULL;

		row = json_pack("{si ss so ss? ss? so so so}", "node", i, "state",
			here                    ? "joined"
				: member->facts ? "lost"
						: "missing",
			"since", member->since_ns ? clock_json(member->since_ns) : json_null(),
			"address", member->facts ? member->address : NULL, "reason",
			!here && member->why[0] ? member->why : NULL, "silent_s",
			here ? json_real((double)(now - member->heard_ns) / 1e9) : json_null(),
			"rtt_s",
			here && member->rtt_s >= 0 ? json_real(member->rtt_s) : json_null(),
			"clock_offset_s",
			here && member->rtt_s >= 0 ? json_real(member->offset_s) : json_null());
		for (size_t k = 0; k < sizeof(kept) / sizeof(kept[0]); k++) {
			json_t *value = json_object_get(member->facts, kept[k]);

			json_object_set_new(row, kept[k], value ? json_incref(value) : json_null());
		}
		json_array_append_new(rows, row);
	}
	return rows;
}
