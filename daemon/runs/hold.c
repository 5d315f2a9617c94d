#include "daemon/runs/hold.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/engines/checker.h"
#include "daemon/config/clock.h"
#include "daemon/control/reply.h"
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
} names[HOLDS] = {
	[HOLD_DRAINED] = {"drained", "gpt2ctl resume lets runs start"},
	[HOLD_RELEASED] = {"released", "gpt2ctl warm takes the engines again"},
};

struct held {
	struct record_hold record; /* since_ns 0: not held */
	bool lifting;              /* its end is being written */
	bool now;                  /* once it is stored, the run in progress gives way */
	int writes;                /* of it, that the store has in hand */
};

struct waiter {
	TAILQ_ENTRY(waiter) link;
	struct reply *reply;
	enum hold hold;
	bool lift;
	bool already;
	int64_t since_ns; /* monotonic */
};

struct holds {
	struct daemon *daemon;
	struct held held[HOLDS];
	TAILQ_HEAD(, waiter) waiters;
	struct event *turn;
	struct event *idle; /* the engines end when it is over */
	int64_t idle_s;     /* what it was set to */
	int64_t idle_at_ns; /* UTC, when it was over last */
	char why[512];
};

/* One request on its way through the store. */
struct change {
	struct holds *holds;
	struct waiter waiter;
	struct record_hold record; /* what it becomes */
	bool wait;
	bool now;
};

/* ---- what is ---- */

bool hold_is_set(const struct holds *holds, enum hold hold)
{
	return holds->held[hold].record.since_ns != 0;
}

bool hold_none(const struct holds *holds)
{
	return !holds->daemon->stopping && !hold_is_set(holds, HOLD_DRAINED) &&
		!hold_is_set(holds, HOLD_RELEASED);
}

json_t *hold_json(const struct holds *holds, enum hold hold)
{
	const struct record_hold *r = &holds->held[hold].record;

	if (r->since_ns == 0)
		return json_null();
	return json_pack("{so sI ss?}", "since", clock_json(r->since_ns), "uid", (json_int_t)r->uid,
		"reason", r->reason[0] ? r->reason : NULL);
}

json_t *hold_idle_json(const struct holds *holds)
{
	if (hold_is_set(holds, HOLD_RELEASED) || !engine_pool_away(holds->daemon->pool))
		return json_null();
	return json_pack("{so sI}", "since", clock_json(holds->idle_at_ns), "after_s",
		(json_int_t)holds->idle_s);
}

static void say_why(struct holds *holds)
{
	char at[CLOCK_TEXT_BYTES];
	const struct record_hold *r;

	holds->why[0] = '\0';
	for (int i = 0; i < HOLDS; i++) {
		r = &holds->held[i].record;
		if (r->since_ns == 0)
			continue;
		clock_text(r->since_ns, at);
		/* the seconds are enough: "2026-01-08 19:50:57Z" */
		snprintf(holds->why, sizeof(holds->why), "%s: since %.10s %.8sZ by uid %u%s%s; %s",
			names[i].what, at, at + 11, (unsigned)r->uid, r->reason[0] ? ": " : "",
			r->reason, names[i].lift);
	}
}

const char *hold_reason(const struct holds *holds)
{
	if (holds->daemon->stopping)
		return "stopping: gpt2d is stopping; the run starts when gpt2d runs again";
	return holds->why[0] ? holds->why : NULL;
}

/* Once it is on disk. */
static void log_held(const struct record_hold *record)
{
	log_write(LOG_INFO, "%s%s%s%s", record->since_ns ? "" : "no longer ", record->what,
		record->reason[0] ? ": " : "", record->reason);
}

static void set_held(struct holds *holds, enum hold hold, const struct record_hold *record)
{
	holds->held[hold].record = *record;
	holds->held[hold].lifting = false;
	say_why(holds);
	if (hold == HOLD_RELEASED && record->since_ns == 0)
		engine_pool_warm(holds->daemon->pool);
	scheduler_wake(holds->daemon->scheduler);
	hold_update(holds);
}

/* ---- answers ---- */

static const char stopping[] = "gpt2d is stopping; what was asked for is kept";

/* For who drains before maintenance, a run goes on until its end is on disk. */
static const struct run *in_progress(const struct holds *holds, enum hold hold)
{
	const struct run *run = scheduler_running(holds->daemon->scheduler);

	return run != NULL || hold != HOLD_DRAINED ? run : queue_unstored(holds->daemon->queue);
}

static void answer(struct holds *holds, const struct waiter *w)
{
	struct daemon *d = holds->daemon;
	const struct run *run = in_progress(holds, w->hold);
	json_t *result;

	result = json_pack("{so so sb so sb sI ss sf}", "drained", hold_json(holds, HOLD_DRAINED),
		"released", hold_json(holds, HOLD_RELEASED), "already", w->already, "running",
		run ? json_integer(run->id) : json_null(), "stopping",
		scheduler_stopping(d->scheduler), "queued", (json_int_t)queue_length(d->queue),
		"engine", engine_pool_state_name(d->pool), "took_s",
		(double)(clock_mono_ns() - w->since_ns) / 1e9);
	reply_result(w->reply, result);
}

static void refuse(const struct waiter *w, int code, const char *message)
{
	reply_error(w->reply, code, NULL, "%s", message);
}

/* Whether what w waits for has come about, or *why it will not. */
static bool settled(const struct holds *holds, const struct waiter *w, const char **why)
{
	const struct daemon *d = holds->daemon;
	bool held = hold_is_set(holds, w->hold);

	*why = NULL;
	if (w->lift && held)
		*why = "the engines were released again meanwhile: gpt2ctl status says by whom";
	else if (!w->lift && !held)
		*why = w->hold == HOLD_DRAINED ? "gpt2d was resumed meanwhile: runs start again"
					       : "the engines were taken again meanwhile: gpt2ctl "
						 "status shows them";
	if (*why != NULL)
		return true;
	if (w->lift)
		return w->hold == HOLD_DRAINED || engine_pool_ready(d->pool);
	if (w->hold == HOLD_DRAINED)
		return !scheduler_busy(d->scheduler) && in_progress(holds, w->hold) == NULL;
	return engine_pool_released(d->pool);
}

static void serve_waiters(struct holds *holds)
{
	struct waiter *w, *next;
	const char *why;

	for (w = TAILQ_FIRST(&holds->waiters); w != NULL; w = next) {
		next = TAILQ_NEXT(w, link);
		why = NULL;
		if (reply_wanted(w->reply) && !settled(holds, w, &why))
			continue;
		if (why)
			refuse(w, PROTOCOL_BUSY, why);
		else
			answer(holds, w);
		TAILQ_REMOVE(&holds->waiters, w, link);
		free(w);
	}
}

/* Now, or once it has come about. */
static void answer_or_wait(struct holds *holds, const struct waiter *w, bool wait)
{
	struct waiter *kept = wait ? malloc(sizeof(*kept)) : NULL;

	if (!wait) {
		answer(holds, w);
	} else if (holds->daemon->stopping) {
		refuse(w, PROTOCOL_BUSY, stopping);
		free(kept);
	} else if (kept == NULL) {
		refuse(w, PROTOCOL_INTERNAL, "out of memory");
	} else {
		*kept = *w;
		TAILQ_INSERT_TAIL(&holds->waiters, kept, link);
	}
	hold_update(holds);
}

/* ---- changes ---- */

/* The run in progress gives way, where that is wanted; the hold is on disk. */
static void yield(struct holds *holds, struct held *h)
{
	if (h->now && h->record.since_ns != 0)
		scheduler_yield(
			holds->daemon->scheduler, "released: the engines were asked back at once");
	h->now = false;
}

static void on_stored(void *arg, int rc)
{
	struct change *c = arg;
	struct holds *holds = c->holds;
	struct held *h = &holds->held[c->waiter.hold];
	const struct record_hold none = {.what = h->record.what};
	char why[FAILURE_TEXT_BYTES], message[FAILURE_TEXT_BYTES + 80];

	h->writes--;
	if (rc < 0) {
		failure_text(holds->daemon->store, rc, why);
		snprintf(message, sizeof(message),
			"%s: nothing is changed, it could not be stored: %s", h->record.what, why);
		h->lifting = false;
		if (!c->waiter.lift && hold_is_set(holds, c->waiter.hold)) {
			h->now = false;
			set_held(holds, c->waiter.hold, &none);
		}
		refuse(&c->waiter, PROTOCOL_STORE, message);
	} else {
		if (c->waiter.lift && h->lifting) { /* else it is held anew */
			set_held(holds, c->waiter.hold, &none);
			log_held(&none);
		}
		if (!c->waiter.lift &&
			!hold_is_set(holds, c->waiter.hold)) { /* one before it failed */
			set_held(holds, c->waiter.hold, &c->record);
			h->now = c->now;
			log_held(&c->record);
		} else if (!c->waiter.lift && !c->waiter.already) {
			log_held(&c->record);
		}
		if (!c->waiter.lift)
			yield(holds, h);
		answer_or_wait(holds, &c->waiter, c->wait);
	}
	free(c);
}

static void store_change(struct holds *holds, const struct hold_request *request, bool lift,
	bool already, const struct record_hold *record, struct reply *reply)
{
	struct change *c = malloc(sizeof(*c));
	struct waiter w = {
		.reply = reply,
		.hold = request->hold,
		.lift = lift,
		.already = already,
		.since_ns = clock_mono_ns(),
	};

	if (c != NULL) {
		*c = (struct change){holds, w, *record, request->wait, request->now};
		holds->held[request->hold].writes++;
		if (record_hold_set(holds->daemon->store, record, on_stored, c) == 0)
			return;
		holds->held[request->hold].writes--;
	}
	free(c);
	holds->held[request->hold].now = holds->held[request->hold].lifting = false;
	if (!lift)
		set_held(holds, request->hold, &(struct record_hold){.what = record->what});
	reply_error(reply, PROTOCOL_INTERNAL, NULL, "out of memory");
}

static void answer_unchanged(struct holds *holds, const struct hold_request *request, bool lift,
	bool already, struct reply *reply)
{
	struct waiter w = {
		.reply = reply,
		.hold = request->hold,
		.lift = lift,
		.already = already,
		.since_ns = clock_mono_ns(),
	};

	answer_or_wait(holds, &w, request->wait);
}

void hold_place(struct holds *holds, const struct hold_request *request, struct reply *reply)
{
	struct held *h = &holds->held[request->hold];
	struct record_hold record = {
		.what = names[request->hold].what,
		.since_ns = clock_utc_ns(),
		.uid = reply_peer(reply)->uid,
	};

	snprintf(
		record.reason, sizeof(record.reason), "%s", request->reason ? request->reason : "");
	if (hold_is_set(holds, request->hold) && !h->lifting) {
		h->now |= request->now;
		if (h->writes > 0) { /* it may come to nothing: this one has its own answer */
			record = h->record;
			store_change(holds, request, false, true, &record, reply);
			return;
		}
		yield(holds, h);
		answer_unchanged(holds, request, false, true, reply);
		return;
	}
	set_held(holds, request->hold, &record); /* from now on, whatever the disk does */
	h->now = request->now; /* what is trained is not thrown away for what may be refused */
	store_change(holds, request, false, false, &record, reply);
}

void hold_lift(struct holds *holds, const struct hold_request *request, struct reply *reply)
{
	struct held *h = &holds->held[request->hold];
	const struct record_hold none = {.what = names[request->hold].what};

	if (!hold_is_set(holds, request->hold)) {
		/* idle_release ended the engines, or they wait for their next try */
		struct engine_pool *pool = holds->daemon->pool;
		bool warms = request->hold == HOLD_RELEASED;
		bool away = warms && engine_pool_away(pool);

		if (away)
			engine_pool_warm(pool);
		else if (warms)
			away = engine_pool_retry(pool);
		answer_unchanged(holds, request, true, !away, reply);
		return;
	}
	h->lifting = true;
	store_change(holds, request, true, false, &none, reply);
}

/* ---- the engines ---- */

static void on_idle(evutil_socket_t fd, short what, void *arg)
{
	struct holds *holds = arg;

	holds->idle_at_ns = clock_utc_ns();
	log_write(LOG_INFO, "engines: idle for %lld s, released until a run needs them",
		(long long)holds->idle_s);
	engine_pool_release(holds->daemon->pool);
}

/* A run that may start is queued, or one is in progress. */
static bool needed(const struct holds *holds)
{
	const struct daemon *d = holds->daemon;

	return scheduler_busy(d->scheduler) || (hold_none(holds) && queue_head(d->queue) != NULL);
}

static void watch_idle(struct holds *holds)
{
	const struct daemon *d = holds->daemon;
	struct timeval after = {.tv_sec = (time_t)d->settings->idle_release_s};

	if (after.tv_sec == 0 || needed(holds) || !engine_pool_ready(d->pool)) {
		evtimer_del(holds->idle);
	} else if (!evtimer_pending(holds->idle, NULL) || holds->idle_s != after.tv_sec) {
		holds->idle_s = after.tv_sec;
		evtimer_add(holds->idle, &after);
	}
}

static bool warm_wanted(const struct holds *holds)
{
	const struct waiter *w;

	TAILQ_FOREACH(w, &holds->waiters, link)
		if (w->lift && w->hold == HOLD_RELEASED)
			return true;
	return needed(holds);
}

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
	struct holds *holds = arg;
	struct daemon *d = holds->daemon;

	if (d->stopping)
		return;
	if (hold_is_set(holds, HOLD_RELEASED)) {
		/* engines that were ended for what is then refused would have to start again */
		if (!scheduler_busy(d->scheduler) && holds->held[HOLD_RELEASED].writes == 0)
			engine_pool_release(d->pool);
	} else if (warm_wanted(holds)) {
		engine_pool_warm(d->pool);
	}
	watch_idle(holds);
	checker_rest(d->checker, engine_pool_away(d->pool));
	serve_waiters(holds);
}

void hold_update(struct holds *holds)
{
	event_active(holds->turn, 0, 0);
}

void hold_engines_lost(struct holds *holds, const char *reason)
{
	char message[600];
	struct waiter *w, *next;

	snprintf(message, sizeof(message),
		"the engines did not get ready: %s; they are started again by themselves, see: "
		"gpt2ctl status",
		reason);
	for (w = TAILQ_FIRST(&holds->waiters); w != NULL; w = next) {
		next = TAILQ_NEXT(w, link);
		if (!w->lift)
			continue;
		TAILQ_REMOVE(&holds->waiters, w, link);
		refuse(w, PROTOCOL_BUSY, message);
		free(w);
	}
}

void hold_shut_down(struct holds *holds)
{
	struct waiter *w;

	while ((w = TAILQ_FIRST(&holds->waiters)) != NULL) {
		TAILQ_REMOVE(&holds->waiters, w, link);
		refuse(w, PROTOCOL_BUSY, stopping);
		free(w);
	}
}

int hold_create(struct daemon *d, struct holds **out)
{
	struct holds *holds = calloc(1, sizeof(*holds));
	int rc = -ENOMEM;

	if (holds == NULL)
		return -ENOMEM;
	holds->daemon = d;
	TAILQ_INIT(&holds->waiters);
	holds->turn = event_new(d->base, -1, 0, on_turn, holds);
	holds->idle = evtimer_new(d->base, on_idle, holds);
	if (!holds->turn || !holds->idle)
		goto destroy;
	for (int i = 0; i < HOLDS; i++) {
		holds->held[i].record.what = names[i].what;
		rc = record_hold_read(d->store, &holds->held[i].record);
		if (rc < 0)
			goto destroy;
	}
	say_why(holds);
	*out = holds;
	return 0;
destroy:
	hold_destroy(holds);
	return rc;
}

void hold_destroy(struct holds *holds)
{
	struct waiter *w;

	if (holds == NULL)
		return;
	while ((w = TAILQ_FIRST(&holds->waiters)) != NULL) {
		TAILQ_REMOVE(&holds->waiters, w, link);
		reply_drop(w->reply);
		free(w);
	}
	if (holds->turn)
		event_free(holds->turn);
	if (holds->idle)
		event_free(holds->idle);
	free(holds);
}
