#include "daemon/runs/gate.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/engines/checker.h"
#include "daemon/config/clock.h"
#include "daemon/control/control.h"
#include "daemon/daemon.h"
#include "daemon/engines/engine_pool.h"
#include "daemon/store/failure.h"
#include "daemon/config/log.h"
#include "daemon/runs/queue.h"
#include "daemon/store/record_hold.h"
#include "daemon/runs/scheduler.h"
#include "daemon/config/settings.h"
#include "proto/protocol.h"

static const struct {
	const char *what;
	const char *lift; /* what gpt2ctl calls the verb that ends it, and what that does */
} names[GATE_HOLDS] = {
	[GATE_DRAINED] = {"drained", "gpt2ctl resume lets runs start"},
	[GATE_RELEASED] = {"released", "gpt2ctl warm takes the engines again"},
};

struct held {
	struct record_hold record; /* since_ns 0: not held */
	bool lifting;              /* its end is being written */
	bool now;                  /* once it is stored, the run in progress gives way */
	int writes;                /* of it, that the store has in hand */
};

struct waiter {
	TAILQ_ENTRY(waiter) link;
	uint64_t client;
	enum gate_hold hold;
	bool lift;
	bool already;
	int64_t since_ns; /* monotonic */
};

struct gate {
	struct daemon *daemon;
	struct held held[GATE_HOLDS];
	TAILQ_HEAD(, waiter) waiters;
	struct event *turn;
	struct event *idle; /* the engines end when it is over */
	int64_t idle_s;     /* what it was set to */
	int64_t idle_at_ns; /* UTC, when it was over last */
	char why[512];
};

/* One request on its way through the store. */
struct change {
	struct gate *gate;
	struct waiter waiter;
	struct record_hold record; /* what it becomes */
	bool wait;
	bool now;
};

/* ---- what is ---- */

bool gate_held(const struct gate *g, enum gate_hold hold)
{
	return g->held[hold].record.since_ns != 0;
}

bool gate_open(const struct gate *g)
{
	return !g->daemon->stopping && !gate_held(g, GATE_DRAINED) && !gate_held(g, GATE_RELEASED);
}

json_t *gate_json(const struct gate *g, enum gate_hold hold)
{
	const struct record_hold *r = &g->held[hold].record;

	if (r->since_ns == 0)
		return json_null();
	return json_pack("{so sI ss?}", "since", clock_json(r->since_ns), "uid", (json_int_t)r->uid,
		"reason", r->reason[0] ? r->reason : NULL);
}

json_t *gate_idle_json(const struct gate *g)
{
	if (gate_held(g, GATE_RELEASED) || !engine_pool_away(g->daemon->pool))
		return json_null();
	return json_pack(
		"{so sI}", "since", clock_json(g->idle_at_ns), "after_s", (json_int_t)g->idle_s);
}

static void say_why(struct gate *g)
{
	char at[CLOCK_TEXT_BYTES];
	const struct record_hold *r;

	g->why[0] = '\0';
	for (int i = 0; i < GATE_HOLDS; i++) {
		r = &g->held[i].record;
		if (r->since_ns == 0)
			continue;
		clock_text(r->since_ns, at);
		/* the seconds are enough: "2026-01-08 19:50:57Z" */
		snprintf(g->why, sizeof(g->why), "%s: since %.10s %.8sZ by uid %u%s%s; %s",
			names[i].what, at, at + 11, (unsigned)r->uid, r->reason[0] ? ": " : "",
			r->reason, names[i].lift);
	}
}

const char *gate_why(const struct gate *g)
{
	if (g->daemon->stopping)
		return "stopping: gpt2d is stopping; the run starts when gpt2d runs again";
	return g->why[0] ? g->why : NULL;
}

/* Once it is on disk. */
static void log_held(const struct record_hold *record)
{
	log_write(LOG_INFO, "%s%s%s%s", record->since_ns ? "" : "no longer ", record->what,
		record->reason[0] ? ": " : "", record->reason);
}

static void set_held(struct gate *g, enum gate_hold hold, const struct record_hold *record)
{
	g->held[hold].record = *record;
	g->held[hold].lifting = false;
	say_why(g);
	if (hold == GATE_RELEASED && record->since_ns == 0)
		engine_pool_warm(g->daemon->pool);
	scheduler_wake(g->daemon->scheduler);
	gate_turn(g);
}

/* ---- answers ---- */

static const char stopping[] = "gpt2d is stopping; what was asked for is kept";

/* For who drains before maintenance, a run goes on until its end is on disk. */
static const struct run *in_progress(const struct gate *g, enum gate_hold hold)
{
	const struct run *run = scheduler_running(g->daemon->scheduler);

	return run != NULL || hold != GATE_DRAINED ? run : queue_unstored(g->daemon->queue);
}

static void answer(struct gate *g, const struct waiter *w)
{
	struct daemon *d = g->daemon;
	struct client *client = control_find(d->control, w->client);
	const struct run *run = in_progress(g, w->hold);
	json_t *result;

	if (client == NULL)
		return;
	result = json_pack("{so so sb so sb sI ss sf}", "drained", gate_json(g, GATE_DRAINED),
		"released", gate_json(g, GATE_RELEASED), "already", w->already, "running",
		run ? json_integer(run->id) : json_null(), "stopping",
		scheduler_stopping(d->scheduler), "queued", (json_int_t)queue_length(d->queue),
		"engine", engine_pool_state_name(d->pool), "took_s",
		(double)(clock_mono_ns() - w->since_ns) / 1e9);
	client_reply(client, result);
}

static void refuse(struct gate *g, const struct waiter *w, int code, const char *message)
{
	struct client *client = control_find(g->daemon->control, w->client);

	if (client)
		client_refuse(client, code, NULL, "%s", message);
}

/* Whether what w waits for has come about, or *why it will not. */
static bool settled(const struct gate *g, const struct waiter *w, const char **why)
{
	const struct daemon *d = g->daemon;
	bool held = gate_held(g, w->hold);

	*why = NULL;
	if (w->lift && held)
		*why = "the engines were released again meanwhile: gpt2ctl status says by whom";
	else if (!w->lift && !held)
		*why = w->hold == GATE_DRAINED ? "gpt2d was resumed meanwhile: runs start again"
					       : "the engines were taken again meanwhile: gpt2ctl "
						 "status shows them";
	if (*why != NULL)
		return true;
	if (w->lift)
		return w->hold == GATE_DRAINED || engine_pool_ready(d->pool);
	if (w->hold == GATE_DRAINED)
		return !scheduler_busy(d->scheduler) && in_progress(g, w->hold) == NULL;
	return engine_pool_released(d->pool);
}

static void serve_waiters(struct gate *g)
{
	struct waiter *w, *next;
	const char *why;

	for (w = TAILQ_FIRST(&g->waiters); w != NULL; w = next) {
		next = TAILQ_NEXT(w, link);
		if (control_find(g->daemon->control, w->client) != NULL) {
			if (!settled(g, w, &why))
				continue;
			if (why)
				refuse(g, w, PROTOCOL_BUSY, why);
			else
				answer(g, w);
		}
		TAILQ_REMOVE(&g->waiters, w, link);
		free(w);
	}
}

/* Now, or once it has come about. */
static void answer_or_wait(struct gate *g, const struct waiter *w, bool wait)
{
	struct waiter *kept = wait ? malloc(sizeof(*kept)) : NULL;

	if (!wait) {
		answer(g, w);
	} else if (g->daemon->stopping) {
		refuse(g, w, PROTOCOL_BUSY, stopping);
		free(kept);
	} else if (kept == NULL) {
		refuse(g, w, PROTOCOL_INTERNAL, "out of memory");
	} else {
		*kept = *w;
		TAILQ_INSERT_TAIL(&g->waiters, kept, link);
	}
	gate_turn(g);
}

/* ---- changes ---- */

/* The run in progress gives way, where that is wanted; the hold is on disk. */
static void yield(struct gate *g, struct held *h)
{
	if (h->now && h->record.since_ns != 0)
		scheduler_yield(
			g->daemon->scheduler, "released: the engines were asked back at once");
	h->now = false;
}

static void on_stored(void *arg, int rc)
{
	struct change *c = arg;
	struct gate *g = c->gate;
	struct held *h = &g->held[c->waiter.hold];
	const struct record_hold none = {.what = h->record.what};
	char why[FAILURE_TEXT_BYTES], message[FAILURE_TEXT_BYTES + 80];

	h->writes--;
	if (rc < 0) {
		failure_text(g->daemon->store, rc, why);
		snprintf(message, sizeof(message),
			"%s: nothing is changed, it could not be stored: %s", h->record.what, why);
		h->lifting = false;
		if (!c->waiter.lift && gate_held(g, c->waiter.hold)) {
			h->now = false;
			set_held(g, c->waiter.hold, &none);
		}
		refuse(g, &c->waiter, PROTOCOL_STORE, message);
	} else {
		if (c->waiter.lift && h->lifting) { /* else it is held anew */
			set_held(g, c->waiter.hold, &none);
			log_held(&none);
		}
		if (!c->waiter.lift && !gate_held(g, c->waiter.hold)) { /* one before it failed */
			set_held(g, c->waiter.hold, &c->record);
			h->now = c->now;
			log_held(&c->record);
		} else if (!c->waiter.lift && !c->waiter.already) {
			log_held(&c->record);
		}
		if (!c->waiter.lift)
			yield(g, h);
		answer_or_wait(g, &c->waiter, c->wait);
	}
	free(c);
}

static void store_change(struct gate *g, const struct gate_request *request, bool lift,
	bool already, const struct record_hold *record, struct client *client)
{
	struct change *c = malloc(sizeof(*c));
	struct waiter w = {
		.client = client_peer(client)->number,
		.hold = request->hold,
		.lift = lift,
		.already = already,
		.since_ns = clock_mono_ns(),
	};

	if (c != NULL) {
		*c = (struct change){g, w, *record, request->wait, request->now};
		g->held[request->hold].writes++;
		if (record_hold_set(g->daemon->store, record, on_stored, c) == 0)
			return;
		g->held[request->hold].writes--;
	}
	free(c);
	g->held[request->hold].now = g->held[request->hold].lifting = false;
	if (!lift)
		set_held(g, request->hold, &(struct record_hold){.what = record->what});
	client_refuse(client, PROTOCOL_INTERNAL, NULL, "out of memory");
}

static void answer_unchanged(struct gate *g, const struct gate_request *request, bool lift,
	bool already, struct client *client)
{
	struct waiter w = {
		.client = client_peer(client)->number,
		.hold = request->hold,
		.lift = lift,
		.already = already,
		.since_ns = clock_mono_ns(),
	};

	answer_or_wait(g, &w, request->wait);
}

void gate_close(struct gate *g, const struct gate_request *request, struct client *client)
{
	struct held *h = &g->held[request->hold];
	struct record_hold record = {
		.what = names[request->hold].what,
		.since_ns = clock_utc_ns(),
		.uid = client_peer(client)->uid,
	};

	snprintf(
		record.reason, sizeof(record.reason), "%s", request->reason ? request->reason : "");
	if (gate_held(g, request->hold) && !h->lifting) {
		h->now |= request->now;
		if (h->writes > 0) { /* it may come to nothing: this one has its own answer */
			record = h->record;
			store_change(g, request, false, true, &record, client);
			return;
		}
		yield(g, h);
		answer_unchanged(g, request, false, true, client);
		return;
	}
	set_held(g, request->hold, &record); /* from now on, whatever the disk does */
	h->now = request->now; /* what is trained is not thrown away for what may be refused */
	store_change(g, request, false, false, &record, client);
}

void gate_lift(struct gate *g, const struct gate_request *request, struct client *client)
{
	struct held *h = &g->held[request->hold];
	const struct record_hold none = {.what = names[request->hold].what};

	if (!gate_held(g, request->hold)) {
		/* the engines may be away for being idle */
		bool away = request->hold == GATE_RELEASED && engine_pool_away(g->daemon->pool);

		if (away)
			engine_pool_warm(g->daemon->pool);
		answer_unchanged(g, request, true, !away, client);
		return;
	}
	h->lifting = true;
	store_change(g, request, true, false, &none, client);
}

/* ---- the engines ---- */

static void on_idle(evutil_socket_t fd, short what, void *arg)
{
	struct gate *g = arg;

	g->idle_at_ns = clock_utc_ns();
	log_write(LOG_INFO, "engines: idle for %lld s, released until a run needs them",
		(long long)g->idle_s);
	engine_pool_release(g->daemon->pool);
}

/* A run that may start is queued, or one is in progress. */
static bool needed(const struct gate *g)
{
	const struct daemon *d = g->daemon;

	return scheduler_busy(d->scheduler) || (gate_open(g) && queue_head(d->queue) != NULL);
}

static void watch_idle(struct gate *g)
{
	const struct daemon *d = g->daemon;
	struct timeval after = {.tv_sec = (time_t)d->settings->idle_release_s};

	if (after.tv_sec == 0 || needed(g) || !engine_pool_ready(d->pool)) {
		evtimer_del(g->idle);
	} else if (!evtimer_pending(g->idle, NULL) || g->idle_s != after.tv_sec) {
		g->idle_s = after.tv_sec;
		evtimer_add(g->idle, &after);
	}
}

static bool warm_wanted(const struct gate *g)
{
	const struct waiter *w;

	TAILQ_FOREACH(w, &g->waiters, link)
		if (w->lift && w->hold == GATE_RELEASED)
			return true;
	return needed(g);
}

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
	struct gate *g = arg;
	struct daemon *d = g->daemon;

	if (d->stopping)
		return;
	if (gate_held(g, GATE_RELEASED)) {
		/* engines that were ended for what is then refused would have to start again */
		if (!scheduler_busy(d->scheduler) && g->held[GATE_RELEASED].writes == 0)
			engine_pool_release(d->pool);
	} else if (warm_wanted(g)) {
		engine_pool_warm(d->pool);
	}
	watch_idle(g);
	checker_rest(d->checker, engine_pool_away(d->pool));
	serve_waiters(g);
}

void gate_turn(struct gate *g)
{
	event_active(g->turn, 0, 0);
}

void gate_lost(struct gate *g, const char *reason)
{
	char message[600];
	struct waiter *w, *next;

	snprintf(message, sizeof(message),
		"the engines did not get ready: %s; they are started again by themselves, see: "
		"gpt2ctl status",
		reason);
	for (w = TAILQ_FIRST(&g->waiters); w != NULL; w = next) {
		next = TAILQ_NEXT(w, link);
		if (!w->lift)
			continue;
		TAILQ_REMOVE(&g->waiters, w, link);
		refuse(g, w, PROTOCOL_BUSY, message);
		free(w);
	}
}

void gate_stop(struct gate *g)
{
	struct waiter *w;

	while ((w = TAILQ_FIRST(&g->waiters)) != NULL) {
		TAILQ_REMOVE(&g->waiters, w, link);
		refuse(g, w, PROTOCOL_BUSY, stopping);
		free(w);
	}
}

int gate_create(struct daemon *d, struct gate **out)
{
	struct gate *g = calloc(1, sizeof(*g));
	int rc = -ENOMEM;

	if (g == NULL)
		return -ENOMEM;
	g->daemon = d;
	TAILQ_INIT(&g->waiters);
	g->turn = event_new(d->base, -1, 0, on_turn, g);
	g->idle = evtimer_new(d->base, on_idle, g);
	if (!g->turn || !g->idle)
		goto destroy;
	for (int i = 0; i < GATE_HOLDS; i++) {
		g->held[i].record.what = names[i].what;
		rc = record_hold_read(d->store, &g->held[i].record);
		if (rc < 0)
			goto destroy;
	}
	say_why(g);
	*out = g;
	return 0;
destroy:
	gate_destroy(g);
	return rc;
}

void gate_destroy(struct gate *g)
{
	struct waiter *w;

	if (g == NULL)
		return;
	while ((w = TAILQ_FIRST(&g->waiters)) != NULL) {
		TAILQ_REMOVE(&g->waiters, w, link);
		free(w);
	}
	if (g->turn)
		event_free(g->turn);
	if (g->idle)
		event_free(g->idle);
	free(g);
}
