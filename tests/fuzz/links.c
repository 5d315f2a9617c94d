#include "tests/fuzz/links.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/clock.h"
#include "daemon/engines/engine_link.h"
#include "proto/protocol.h"
#include "proto/rpc.h"
#include "tests/fuzz/fuzz.h"

enum { LINKS_MAX = 16, OWED_MAX = 64 };

struct engine_link {
	struct engine_link_options o;
	int who;
	pid_t pid;
	int64_t heard_ns;
	bool greeted, owes_ready, killed, ended, broken, in_message, dead;
	json_int_t owed[OWED_MAX]; /* tokens of checks */
	int n_owed;
};

/* engine_link.h knows no context: who is there. */
static struct engine_link *links[LINKS_MAX];
static pid_t last_pid = 1000;

static struct engine_link *find(int who)
{
	for (int i = 0; i < LINKS_MAX; i++)
		if (links[i] != NULL && links[i]->who == who)
			return links[i];
	return NULL;
}

static void break_link(struct engine_link *link, const char *why)
{
	if (link->broken)
		return;
	link->broken = true;
	link->o.broken(link, why, link->o.arg);
}

static void say(struct engine_link *link, const char *line, size_t n)
{
	struct rpc_message m;
	char error[256], why[320];

	if (link->broken || link->ended)
		return;
	link->in_message = true;
	if (rpc_parse(line, n, &m, NULL, error, sizeof(error)) != 0) {
		snprintf(why, sizeof(why), "sent an invalid message: %s", error);
		break_link(link, why);
	} else {
		link->heard_ns = clock_mono_ns();
		if (m.kind == RPC_NOTIFICATION)
			link->o.message(link, m.method, m.params, link->o.arg);
		else
			break_link(link, "sent a request or a reply");
		rpc_clear(&m);
	}
	link->in_message = false;
	if (link->dead)
		engine_link_destroy(link);
}

static void say_text(struct engine_link *link, const char *text)
{
	say(link, text, strlen(text));
}

static void greet(struct engine_link *link)
{
	char text[256];

	link->greeted = true;
	snprintf(text, sizeof(text),
		"{\"jsonrpc\":\"2.0\",\"method\":\"" ENGINE_HELLO "\",\"params\":{\"protocol\":%d,"
		"\"role\":\"%s\",\"rank\":%d,\"pid\":%d,\"address\":\"a\",\"device\":{}}}",
		PROTOCOL_VERSION, link->who == LINKS_CHECKER ? "check" : "rank", link->who,
		(int)link->pid);
	say_text(link, text);
}

static void answer_check(struct engine_link *link)
{
	char text[256];

	snprintf(text, sizeof(text),
		"{\"jsonrpc\":\"2.0\",\"method\":\"" CHECK_REPLY "\",\"params\":{\"token\":%lld,"
		"\"ok\":true,\"errors\":[],\"check\":{}}}",
		(long long)link->owed[--link->n_owed]);
	say_text(link, text);
}

bool links_turn(void)
{
	bool any = false;

	for (int i = 0; i < LINKS_MAX; i++) {
		struct engine_link *link = links[i];

		if (link == NULL || link->ended || link->broken)
			continue;
		if (link->killed) {
			link->ended = any = true;
		} else if (!link->greeted) {
			any = true;
			greet(link);
		} else if (link->owes_ready) {
			link->owes_ready = false;
			any = true;
			say_text(link, "{\"jsonrpc\":\"2.0\",\"method\":\"" ENGINE_READY "\"}");
		} else if (link->n_owed > 0) {
			any = true;
			answer_check(link);
		}
	}
	return any;
}

void links_say(int who, const char *line, size_t n)
{
	struct engine_link *link = find(who);

	if (link != NULL)
		say(link, line, n);
}

void links_end(int who, bool killed)
{
	struct engine_link *link = find(who);

	if (link == NULL)
		return;
	link->killed = killed;
	link->ended = true;
}

void links_close(int who)
{
	struct engine_link *link = find(who);

	if (link != NULL)
		break_link(link, NULL);
}

/* ---- engine_link.h ---- */

int engine_link_create(const struct engine_link_options *options, struct engine_link **out)
{
	struct engine_link *link = calloc(1, sizeof(*link));
	int at = 0;

	while (at < LINKS_MAX && links[at] != NULL)
		at++;
	if (link == NULL || at == LINKS_MAX) {
		free(link);
		return -ENOMEM;
	}
	link->o = *options;
	link->who = LINKS_CHECKER;
	if (sscanf(options->what, "rank %d", &link->who) != 1)
		link->who = LINKS_CHECKER;
	link->pid = ++last_pid;
	link->heard_ns = clock_mono_ns();
	links[at] = link;
	*out = link;
	return 0;
}

int engine_link_create_rank(const struct engine_link_options *options,
	const struct engine_link_rank *rank, struct engine_link **out)
{
	return engine_link_create(options, out);
}

/* The house is one node: these are never called. */
struct engine_link *engine_link_create_remote(const struct engine_link_options *options)
{
	abort();
}

void engine_link_remote_started(struct engine_link *link, pid_t pid)
{
	abort();
}

void engine_link_remote_message(struct engine_link *link, const char *method, json_t *params)
{
	abort();
}

void engine_link_remote_broken(struct engine_link *link, const char *why)
{
	abort();
}

void engine_link_remote_ended(struct engine_link *link, const char *end, bool blames_peer)
{
	abort();
}

void engine_link_destroy(struct engine_link *link)
{
	if (link == NULL)
		return;
	if (link->in_message) {
		link->dead = true;
		return;
	}
	for (int i = 0; i < LINKS_MAX; i++)
		if (links[i] == link)
			links[i] = NULL;
	free(link);
}

void engine_link_send(struct engine_link *link, const char *method, json_t *params)
{
	json_t *token = json_object_get(params, "token");

	if (strcmp(method, ENGINE_CONNECT) == 0)
		link->owes_ready = true;
	else if (strcmp(method, CHECK_REQUEST) == 0 && link->n_owed < OWED_MAX)
		link->owed[link->n_owed++] = json_integer_value(token);
	else if (strcmp(method, ENGINE_EXIT) == 0)
		link->ended = true;
	json_decref(params);
}

void engine_link_kill(struct engine_link *link)
{
	link->killed = true;
}

pid_t engine_link_pid(const struct engine_link *link)
{
	return link->pid;
}

int64_t engine_link_heard_ns(const struct engine_link *link)
{
	return link->heard_ns;
}

bool engine_link_ended(const struct engine_link *link)
{
	return link->ended;
}

void engine_link_drain(struct engine_link *link)
{
}

bool engine_link_reap(struct engine_link *link)
{
	if (!link->ended)
		return false;
	link->pid = 0;
	return true;
}

const char *engine_link_end(const struct engine_link *link)
{
	return link->killed ? "killed by signal 9" : "exited with status 0";
}

bool engine_link_blames_peer(const struct engine_link *link)
{
	return false;
}

void engine_link_check_build(
	const struct engine_link *link, json_t *params, char *why, size_t why_bytes)
{
	const json_t *protocol = json_object_get(params, "protocol");

	snprintf(why, why_bytes, "%s",
		json_integer_value(protocol) == PROTOCOL_VERSION ? "" : "speaks another protocol");
}
