#include "daemon/engines/checker.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/config/clock.h"
#include "daemon/engines/engine_link.h"
#include "daemon/config/log.h"
#include "proto/protocol.h"
#include "proto/host/memory.h"
#include "proto/host/starved.h"

/* Prefix of errors for clients, who do not know the checker. */
#define UNCHECKED "the spec could not be checked: the engine that checks specs "

static const char unwanted[] = "no client waits for it";
const char checker_stopping[] = "gpt2d is stopping; submit it again once gpt2d is back";

struct question {
	TAILQ_ENTRY(question) link;
	int64_t token;
	struct checker_question q;
};

struct checker {
	struct checker_options o;
	struct engine_link *link;
	bool greeted;
	bool closed; /* it closed its link: its end will be known soon */
	bool broken; /* waits for the end of the process */
	bool asked;  /* the first question is with it */
	bool rest;   /* its process ends if there is no question */
	int64_t last_token;
	int64_t asked_ns; /* time of the last question, or of its start: it may be silent before */
	struct clock_watch awake;
	struct event *timer; /* each second during a wait */
	struct event *wake;  /* continues from the loop, and not from a callback of the link */
	TAILQ_HEAD(, question) questions;
};

static void wake(struct checker *c)
{
	event_active(c->wake, 0, 0);
}

static void answer_first(struct checker *c, const char *failure, json_t *reply)
{
	struct question *q = TAILQ_FIRST(&c->questions);

	TAILQ_REMOVE(&c->questions, q, link);
	c->asked = false;
	evtimer_del(c->timer);
	q->q.answer(q->q.arg, failure, reply);
	free(q);
	wake(c);
}

/* The process is unusable: the question that it has fails, the others go to the next process. */
static void broke(struct checker *c, const char *why)
{
	char failure[1024];

	if (c->broken)
		return;
	c->broken = true;
	log_write(LOG_ERROR, "checker: %s", why);
	engine_link_kill(c->link);
	if (c->asked || (!c->greeted && !TAILQ_EMPTY(&c->questions))) {
		snprintf(failure, sizeof(failure), UNCHECKED "%s", why);
		answer_first(c, failure, NULL);
	}
}

static void on_hello(struct checker *c, json_t *params)
{
	char why[900];

	engine_link_check_build(c->link, params, why, sizeof(why));
	if (why[0] != '\0') {
		broke(c, why);
		return;
	}
	c->greeted = true;
	wake(c);
}

static void say_slow(const struct checker *c, char *why, size_t why_bytes)
{
	const struct question *q = TAILQ_FIRST(&c->questions);
	const char *file = c->asked && q != NULL ? q->q.file : "";

	snprintf(why, why_bytes, "did not answer within %lld s%s%.600s%s",
		(long long)c->o.timeout_s, file[0] ? ": it reads the whole file " : "", file,
		file[0] ? "; raise check_timeout in gpt2d.conf(5)" : "");
}

static void on_message(struct engine_link *link, const char *method, json_t *params, void *arg)
{
	struct checker *c = arg;
	struct question *q = TAILQ_FIRST(&c->questions);
	const char *text = json_string_value(json_object_get(params, "message"));

	if (c->broken)
		return;
	if (strcmp(method, ENGINE_HELLO) == 0)
		on_hello(c, params);
	else if (strcmp(method, ENGINE_LOG) == 0 && text != NULL)
		log_write(LOG_INFO, "checker: %s", text);
	else if (!c->asked || q == NULL ||
		json_integer_value(json_object_get(params, "token")) != q->token)
		return;
	else if (strcmp(method, CHECK_REPLY) == 0)
		answer_first(c, NULL, params);
}

static void on_broken(struct engine_link *link, const char *why, void *arg)
{
	struct checker *c = arg;
	static const struct timeval moment = {ENGINE_LINK_END_S, 0};

	if (c->broken)
		return;
	if (why != NULL) {
		broke(c, why);
		wake(c);
		return;
	}
	c->closed = true;
	evtimer_add(c->timer, &moment);
	checker_reap(c);
}

static int start(struct checker *c)
{
	char threads[16];
	const char *argv[] = {c->o.program, "--role", "check", "--threads", threads, NULL};
	struct engine_link_options o = {
		.base = c->o.base,
		.program = c->o.program,
		.argv = argv,
		.what = "checker",
		.message = on_message,
		.broken = on_broken,
		.arg = c,
	};

	snprintf(threads, sizeof(threads), "%d", c->o.threads);
	c->greeted = c->broken = c->closed = false;
	return engine_link_create(&o, &c->link);
}

static void watch_later(struct checker *c)
{
	static const struct timeval second = {1, 0};

	evtimer_add(c->timer, &second);
}

static void arm(struct checker *c)
{
	c->asked_ns = clock_mono_ns();
	c->awake = (struct clock_watch){0};
	clock_watch_update(&c->awake, c->asked_ns);
	watch_later(c);
}

/* The node of each rank; NULL: there is one. */
static json_t *nodes_json(int64_t world, int node_ranks)
{
	json_t *nodes = world > node_ranks ? json_array() : NULL;

	for (int64_t rank = 0; nodes != NULL && rank < world; rank++)
		json_array_append_new(nodes, json_integer((json_int_t)(rank / node_ranks)));
	return nodes;
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
	struct checker *c = arg;
	struct question *q;
	char failure[320];
	int rc;

	if (c->link != NULL && c->broken && engine_link_reap(c->link)) {
		engine_link_destroy(c->link);
		c->link = NULL;
	}
	q = TAILQ_FIRST(&c->questions);
	if (q == NULL && c->rest && c->link != NULL && !c->broken) {
		c->broken = true;
		engine_link_kill(c->link);
	}
	if (q == NULL || c->asked || (c->link != NULL && (c->broken || c->closed)))
		return;
	if (!q->q.wanted(q->q.arg)) {
		answer_first(c, unwanted, NULL);
		return;
	}
	if (c->link == NULL) {
		rc = start(c);
		if (rc < 0) {
			snprintf(failure, sizeof(failure), UNCHECKED "cannot be started: %s",
				starved_text(rc));
			answer_first(c, failure, NULL);
			return;
		}
		arm(c);
	}
	if (!c->greeted)
		return;
	c->asked = true;
	arm(c);
	engine_link_send(c->link, CHECK_REQUEST,
		json_pack("{sI sI ss ss so ss? ss* sO* so*}", "token", (json_int_t)q->token,
			"world", (json_int_t)q->q.world, "spec", q->q.spec, "arm", q->q.arm,
			"data_roots", data_roots_json(&c->o.data_roots), "runs",
			q->q.runs ? q->q.runs : c->o.runs, "probe", q->q.probe, "resume",
			(json_t *)q->q.resume, "nodes", nodes_json(q->q.world, c->o.node_ranks)));
}

/* Since when it is silent. */
static int64_t heard_ns(const struct checker *c)
{
	const int64_t heard = engine_link_heard_ns(c->link);

	return heard > c->asked_ns ? heard : c->asked_ns;
}

/* The client has gone: the process with its question is ended. */
static bool end_unwanted(struct checker *c)
{
	const struct question *q = TAILQ_FIRST(&c->questions);

	if (!c->asked || c->broken || c->closed || q == NULL || q->q.wanted(q->q.arg))
		return false;
	log_write(LOG_INFO, "checker: ended: no client waits for its check");
	c->broken = true;
	engine_link_kill(c->link);
	answer_first(c, unwanted, NULL);
	return true;
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct checker *c = arg;
	const bool asked = c->asked, greeted = c->greeted;
	const int64_t alive_ns = c->o.alive_timeout_s * CLOCK_S_NS;
	char why[800] = "closed its link";

	if (!c->closed && c->link != NULL) {
		engine_link_drain(c->link);
		if (c->broken || c->closed || c->asked != asked || c->greeted != greeted)
			return; /* gpt2d itself was suspended */
	}
	clock_watch_update(&c->awake, clock_mono_ns());
	if (end_unwanted(c))
		return;
	if (!c->closed &&
		clock_watch_since(&c->awake, c->asked_ns) >= c->o.timeout_s * CLOCK_S_NS) {
		say_slow(c, why, sizeof(why));
	} else if (!c->closed && c->link != NULL && greeted &&
		clock_watch_since(&c->awake, heard_ns(c)) > alive_ns) {
		snprintf(
			why, sizeof(why), "was silent for %lld s", (long long)c->o.alive_timeout_s);
	} else if (!c->closed) {
		watch_later(c);
		return;
	}
	broke(c, why);
	wake(c);
}

void checker_create(const struct checker_options *options, struct checker **out)
{
	struct checker *c = memory_zeroed(1, sizeof(*c));

	c->o = *options;
	TAILQ_INIT(&c->questions);
	c->timer = evtimer_new(options->base, on_timer, c);
	c->wake = event_new(options->base, -1, 0, on_wake, c);
	*out = c;
}

void checker_destroy(struct checker *c)
{
	if (c == NULL)
		return;
	engine_link_destroy(c->link);
	c->link = NULL;
	while (!TAILQ_EMPTY(&c->questions))
		answer_first(c, checker_stopping, NULL);
	event_free(c->timer);
	event_free(c->wake);
	free(c);
}

void checker_ask(struct checker *c, const struct checker_question *question)
{
	struct question *q = memory_zeroed(1, sizeof(*q));

	q->token = ++c->last_token;
	q->q = *question;
	TAILQ_INSERT_TAIL(&c->questions, q, link);
	wake(c);
}

void checker_rest(struct checker *c, bool rest)
{
	if (c->rest == rest)
		return;
	c->rest = rest;
	wake(c);
}

void checker_reap(struct checker *c)
{
	char why[900];
	const char *end;

	if (c == NULL || c->link == NULL)
		return;
	if (engine_link_ended(c->link))
		engine_link_drain(c->link); /* its last messages */
	if (c->link == NULL || !engine_link_reap(c->link))
		return;
	end = engine_link_end(c->link);
	snprintf(why, sizeof(why), "%s%s", strncmp(end, "killed", 6) == 0 ? "was " : "", end);
	broke(c, why);
	wake(c);
}
