#include "daemon/command_hold.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "proto/host/clock.h"
#include "daemon/control/reply.h"
#include "daemon/control/role.h"
#include "daemon/daemon.h"
#include "daemon/engines/engine_pool.h"
#include "daemon/runs/hold.h"
#include "daemon/runs/queue.h"
#include "daemon/runs/scheduler.h"
#include "daemon/store/record.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"

struct hold_request {
	TAILQ_ENTRY(hold_request) link;
	struct daemon *daemon;
	struct reply *reply;
	enum hold hold;
	bool lift;
	bool wait;        /* reply once the request has taken effect */
	bool now;         /* released: interrupt the run in progress */
	bool already;     /* there was nothing to change */
	int64_t since_ns; /* monotonic */
};

/* ---- replies ---- */

static const char stopping[] = "gpt2d is stopping; gpt2d keeps the change";

/* A drain is complete when the last run's end is on disk. */
static const struct run *in_progress(const struct daemon *d, enum hold hold)
{
	const struct run *run = scheduler_running(d->scheduler);

	return run != NULL || hold != HOLD_DRAINED ? run : queue_ending(d->queue);
}

static void reply_done(struct hold_request *r)
{
	const struct daemon *d = r->daemon;
	const struct run *run = in_progress(d, r->hold);

	reply_result(r->reply,
		json_pack("{so so sb so sb sI ss sf}", "drained", hold_json(d->holds, HOLD_DRAINED),
			"released", hold_json(d->holds, HOLD_RELEASED), "already", r->already,
			"running", run ? json_integer(run->id) : json_null(), "stopping",
			scheduler_stop_reason(d->scheduler) != NULL, "queued",
			(json_int_t)queue_length(d->queue), "engine",
			engine_pool_state_name(d->pool), "took_s",
			(double)(clock_mono_ns() - r->since_ns) / 1e9));
	free(r);
}

static void reply_failed(struct hold_request *r, int code, const char *message)
{
	reply_error(r->reply, code, NULL, "%s", message);
	free(r);
}

/* Why the request cannot take effect; NULL: it still can. */
static const char *overridden(const struct hold_request *r)
{
	const bool is_set = hold_is_set(r->daemon->holds, r->hold);

	if (r->lift == !is_set)
		return NULL;
	if (r->lift)
		return "the engines were released again meanwhile: see gpt2ctl status";
	return r->hold == HOLD_DRAINED
		? "gpt2d was resumed meanwhile: runs start again"
		: "the engines were taken again meanwhile: gpt2ctl status shows them";
}

static bool has_taken_effect(const struct hold_request *r)
{
	const struct daemon *d = r->daemon;

	if (r->lift)
		return r->hold == HOLD_DRAINED || engine_pool_ready(d->pool);
	if (r->hold == HOLD_DRAINED)
		return !scheduler_busy(d->scheduler) && in_progress(d, r->hold) == NULL;
	return engine_pool_released(d->pool);
}

void command_hold_reply(struct daemon *d)
{
	struct hold_request *r, *next;
	const char *why;

	for (r = TAILQ_FIRST(&d->hold_requests); r != NULL; r = next) {
		next = TAILQ_NEXT(r, link);
		why = overridden(r);
		if (why == NULL && reply_wanted(r->reply) && !has_taken_effect(r))
			continue;
		TAILQ_REMOVE(&d->hold_requests, r, link);
		if (why != NULL)
			reply_failed(r, PROTOCOL_BUSY, why);
		else
			reply_done(r);
	}
}

void command_hold_engines_lost(struct daemon *d, const char *reason)
{
	struct hold_request *r, *next;
	char message[600];

	snprintf(message, sizeof(message),
		"the engines did not get ready: %s; gpt2d restarts them, see: gpt2ctl status",
		reason);
	for (r = TAILQ_FIRST(&d->hold_requests); r != NULL; r = next) {
		next = TAILQ_NEXT(r, link);
		if (!r->lift)
			continue;
		TAILQ_REMOVE(&d->hold_requests, r, link);
		reply_failed(r, PROTOCOL_BUSY, message);
	}
}

void command_hold_stop(struct daemon *d)
{
	struct hold_request *r;

	while ((r = TAILQ_FIRST(&d->hold_requests)) != NULL) {
		TAILQ_REMOVE(&d->hold_requests, r, link);
		reply_failed(r, PROTOCOL_BUSY, stopping);
	}
}

void command_hold_drop(struct daemon *d)
{
	struct hold_request *r;

	while ((r = TAILQ_FIRST(&d->hold_requests)) != NULL) {
		TAILQ_REMOVE(&d->hold_requests, r, link);
		reply_drop(r->reply);
		free(r);
	}
}

/* ---- requests ---- */

/* Takes the engines; false: they are running or starting already. */
static bool warm(struct daemon *d)
{
	/* idle_release ended the engines, or they wait for their next try */
	if (!engine_pool_away(d->pool))
		return engine_pool_retry(d->pool);
	engine_pool_warm(d->pool);
	return true;
}

static void on_changed(void *arg, int rc, bool already)
{
	struct hold_request *r = arg;
	struct daemon *d = r->daemon;
	char why[FAILURE_TEXT_BYTES], message[FAILURE_TEXT_BYTES + 80];

	if (rc < 0) {
		store_failure_text(d->store, rc, why);
		snprintf(message, sizeof(message),
			"%s: nothing is changed: gpt2d could not store it: %s",
			r->hold == HOLD_DRAINED ? "drained" : "released", why);
		reply_failed(r, PROTOCOL_STORE, message);
		return;
	}
	r->already = already;
	if (r->now && hold_is_set(d->holds, HOLD_RELEASED))
		scheduler_yield(d->scheduler, "released: a request restarted the engines at once");
	if (r->lift && r->hold == HOLD_RELEASED && !hold_is_set(d->holds, HOLD_RELEASED)) {
		r->already &= !warm(d);
	}
	if (!r->wait) {
		reply_done(r);
	} else if (d->stopping) {
		reply_failed(r, PROTOCOL_BUSY, stopping);
	} else {
		TAILQ_INSERT_TAIL(&d->hold_requests, r, link);
		scheduler_wake(d->scheduler);
	}
}

static struct hold_request *request_of(
	struct daemon *d, struct reply *reply, json_t *params, enum hold hold, bool lift)
{
	struct hold_request *r = memory_zeroed(1, sizeof(*r));

	*r = (struct hold_request){
		.daemon = d,
		.reply = reply,
		.hold = hold,
		.lift = lift,
		.now = json_is_true(json_object_get(params, "now")),
		.wait = json_is_true(json_object_get(params, "wait")),
		.since_ns = clock_mono_ns(),
	};
	return r;
}

static void place(
	struct daemon *d, struct reply *reply, json_t *params, enum hold hold, const char *verb)
{
	const char *reason = json_string_value(json_object_get(params, "reason"));
	const size_t max = sizeof(((struct record_hold *)0)->reason) - 1;

	if (reason != NULL && strlen(reason) > max)
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL,
			"%s: reason: %zu bytes, at most %zu are allowed", verb, strlen(reason),
			max);
	else
		hold_place(d->holds, hold, reply_peer(reply)->uid, reason, on_changed,
			request_of(d, reply, params, hold, false));
}

void command_drain(struct daemon *d, struct reply *reply, json_t *params)
{
	place(d, reply, params, HOLD_DRAINED, METHOD_DRAIN);
}

void command_resume(struct daemon *d, struct reply *reply, json_t *params)
{
	hold_lift(d->holds, HOLD_DRAINED, on_changed,
		request_of(d, reply, params, HOLD_DRAINED, true));
}

void command_release(struct daemon *d, struct reply *reply, json_t *params)
{
	const struct run *run = scheduler_running(d->scheduler);

	if (json_is_true(json_object_get(params, "now")) && run != NULL &&
		!role_may_change(reply_peer(reply), run->uid))
		reply_error(reply, PROTOCOL_NOT_ALLOWED, NULL,
			"release: now: would interrupt run %lld of uid %u; ask that user or an "
			"admin, or release without now, which lets the run end",
			(long long)run->id, (unsigned)run->uid);
	else
		place(d, reply, params, HOLD_RELEASED, METHOD_RELEASE);
}

void command_warm(struct daemon *d, struct reply *reply, json_t *params)
{
	hold_lift(d->holds, HOLD_RELEASED, on_changed,
		request_of(d, reply, params, HOLD_RELEASED, true));
}
