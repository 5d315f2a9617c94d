#include <errno.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/clock.h"
#include "daemon/daemon.h"
#include "daemon/ending.h"
#include "daemon/engines/engine_pool.h"
#include "daemon/control/follow.h"
#include "daemon/runs/hold.h"
#include "daemon/runs/lifecycle.h"
#include "daemon/config/log.h"
#include "daemon/runs/queue.h"
#include "daemon/store/record.h"
#include "daemon/control/role.h"
#include "daemon/runs/scheduler_private.h"
#include "daemon/config/settings.h"
#include "daemon/runs/marker.h"
#include "daemon/store/store.h"
#include "proto/protocol.h"

enum { BRIEF_MAX = 16 }; /* elements of an array in an event */

/* ---- ends ---- */

/*
 * Without its long arrays (a value for each step), which "show" has: an event has to fit a buffer.
 */
static json_t *in_brief(json_t *summary)
{
	json_t *brief = json_copy(summary), *value;
	const char *key;
	void *next;

	json_object_foreach_safe(brief, next, key, value)
		if (json_array_size(value) > BRIEF_MAX)
			json_object_del(brief, key);
	return brief;
}

static json_t *segment_params(const struct attempt *a, int64_t segment, const char *state,
	const char *reason, json_t *summary)
{
	const struct design_segment *s = &a->order[segment];

	return json_pack("{sI sI sI sI ss ss ss? so*}", "segment", (json_int_t)segment, "segments",
		(json_int_t)a->run->segments, "block", (json_int_t)s->block, "position",
		(json_int_t)s->position, "arm", a->spec->arms[s->arm].name, "state", state,
		"reason", reason, "summary", in_brief(summary));
}

void scheduler_tell(const struct attempt *a, int64_t segment, const char *state, const char *reason)
{
	follow_event(a->daemon->follow, a->run->id, EVENT_SEGMENT,
		segment_params(a, segment, state, reason, NULL));
}

static void unrecorded(struct attempt *a, const struct record_segment *r)
{
	log_write(LOG_ERROR, "run %lld: segment %lld: no memory to write that it is %s",
		(long long)r->run, (long long)r->segment, r->state);
	a->unrecorded = true;
}

void scheduler_record(
	struct attempt *a, int64_t segment, const char *state, const char *reason, const char *dir)
{
	const struct record_segment r = {a->run->id, segment, state, reason, dir, NULL, NULL};

	if (record_segment(a->daemon->store, &r, NULL, NULL) < 0)
		unrecorded(a, &r);
}

struct ending {
	struct daemon *daemon;
	struct run *run; /* its own end is written after that of its segments, and it is there */
	int64_t attempt;
	bool done;
	json_t *params;
};

static void on_recorded(void *arg, int rc)
{
	struct ending *e = arg;

	if (rc == 0 && e->done && e->attempt == e->run->attempt)
		e->run->segments_done++;
	if (rc == 0)
		follow_event(e->daemon->follow, e->run->id, EVENT_SEGMENT, e->params);
	else
		json_decref(e->params);
	free(e);
}

void scheduler_record_end(struct attempt *a, const struct record_segment *r, json_t *summary)
{
	bool whole = summary == NULL || r->summary != NULL;
	struct ending *e = whole ? malloc(sizeof(*e)) : NULL;

	if (e == NULL) {
		unrecorded(a, r);
		return;
	}
	*e = (struct ending){a->daemon, a->run, a->run->attempt, strcmp(r->state, "done") == 0,
		segment_params(a, r->segment, r->state, r->reason, summary)};
	if (record_segment(a->daemon->store, r, on_recorded, e) < 0) {
		unrecorded(a, r);
		json_decref(e->params);
		free(e);
	}
}

void scheduler_free_slot(struct scheduler *s)
{
	s->slot = NULL;
	s->stop_ns = 0;
	s->peer_lost[0] = '\0';
	evtimer_del(s->peer_timer);
}

static void end_run(struct scheduler *s, struct run *run, enum run_state state, const char *reason)
{
	s->ended = run->id;
	lifecycle_move(s->daemon, run, state, reason);
}

void scheduler_end(struct scheduler *s, struct attempt *a, enum run_state state, const char *reason)
{
	struct run *run = a->run;
	char why[RUN_REASON_BYTES] = ""; /* reason may lie in a */

	if (reason)
		snprintf(why, sizeof(why), "%s", reason);
	if (state == RUN_DONE && a->unrecorded) {
		state = RUN_FAILED;
		snprintf(why, sizeof(why),
			"no_memory: what became of its segments could not be written");
		marker_remove(a->dir); /* here: there is no memory to have it done elsewhere */
	}
	if (s->slot == a)
		scheduler_free_slot(s);
	if (a->left)
		TAILQ_REMOVE(&s->left, a, link);
	else
		TAILQ_REMOVE(&s->begun, a, link);
	attempt_end(a);
	end_run(s, run, state, why[0] ? why : NULL);
	if (state == RUN_INTERRUPTED && run->restart)
		lifecycle_move(s->daemon, run, RUN_QUEUED, "restart: asked for in its spec");
	scheduler_wake(s);
	ending_turn(s->daemon);
}

void scheduler_end_failed(struct scheduler *s, struct attempt *a, const char *reason)
{
	if (a->stopping)
		scheduler_end(s, a, a->stop_state, a->stop_reason);
	else
		scheduler_end(s, a, RUN_FAILED, reason);
}

/* ---- stop: ask the engines to let go of the segment, then end ---- */

void scheduler_stop(
	struct scheduler *s, struct attempt *a, enum run_state state, const char *format, ...)
{
	json_t *params;
	va_list args;

	if (a->stopping)
		return; /* the first reason stands */
	a->stopping = true;
	a->stop_state = state;
	va_start(args, format);
	vsnprintf(a->stop_reason, sizeof(a->stop_reason), format, args);
	va_end(args);
	if (s->slot != a) {
		scheduler_end(s, a, a->stop_state, a->stop_reason);
		return;
	}
	params = json_pack(
		"{sI sI}", "run", (json_int_t)a->run->id, "segment", (json_int_t)s->slot_segment);
	engine_pool_send(
		s->daemon->pool, attempt_segment_gpus(a, s->slot_segment), SEGMENT_CANCEL, params);
	json_decref(params);
	s->stop_ns = clock_mono_ns();
}

/* ---- starts ---- */

static void on_changed(struct attempt *a, const char *failure, void *arg)
{
	struct scheduler *s = arg;
	struct run *run = a->run;

	if (failure == NULL) {
		scheduler_wake(s);
	} else if (a == s->next) {
		s->next = NULL;
		attempt_destroy(a);
		end_run(s, run, RUN_FAILED, failure);
		scheduler_wake(s);
	} else {
		scheduler_stop(s, a, RUN_FAILED, "%s", failure);
	}
}

/* See to it that the head of the queue is being made ready. */
static void prefetch(struct scheduler *s)
{
	struct run *head = queue_head(s->daemon->queue);
	int rc;

	if (s->next != NULL && s->next->run != head) { /* one of a higher priority has come */
		attempt_discard(s->next);
		s->next = NULL;
	}
	/* with a disk that takes nothing it would fail, and all others after it */
	while (!s->daemon->stopping && !store_failing(s->daemon->store) && s->next == NULL &&
		(head = queue_head(s->daemon->queue)) != NULL) {
		rc = attempt_create(s->daemon, head, on_changed, s, &s->next);
		if (rc == -ENAMETOOLONG)
			end_run(s, head, RUN_FAILED, "io: its directory's path is too long");
		else if (rc < 0)
			end_run(s, head, RUN_FAILED, "no_memory: to make it ready");
	}
}

static void begin(struct scheduler *s, struct attempt *a)
{
	TAILQ_INSERT_TAIL(&s->begun, a, link);
	a->started_ns = clock_mono_ns();
	s->steps = 0;
	pace_begin(&s->pace, a->started_ns);
	lifecycle_move(s->daemon, a->run, RUN_STARTING, NULL);
}

static void send_segment(struct scheduler *s, struct attempt *a)
{
	char dir[PATH_MAX], why[300];
	json_t *params;

	/* the settings may be others than those it was submitted with */
	if (attempt_segment_reads(a, a->sent) && !role_may_read(s->daemon->settings, a->run->uid)) {
		role_say_unreadable(a->run->uid, why, sizeof(why));
		scheduler_stop(s, a, RUN_FAILED, "spec_refused: data.train: %s", why);
		return;
	}
	params = attempt_segment_start(a, a->sent);
	if (params == NULL || attempt_segment_dir(a, a->sent, dir) < 0) {
		json_decref(params);
		scheduler_stop(s, a, RUN_FAILED, "no_memory: segment %lld cannot be started",
			(long long)a->sent);
		return;
	}
	if (a->sent == 0 && !a->sent_again) { /* it may have waited for the store */
		a->started_ns = clock_mono_ns();
		pace_begin(&s->pace, a->started_ns);
	}
	s->slot = a;
	s->slot_segment = a->sent++;
	s->slot_begun = false;
	s->stop_ns = 0;
	s->heard_ns = clock_mono_ns();
	engine_pool_send(
		s->daemon->pool, attempt_segment_gpus(a, s->slot_segment), SEGMENT_START, params);
	json_decref(params);
	scheduler_record(a, s->slot_segment, "training", NULL, dir);
	scheduler_tell(a, s->slot_segment, "training", NULL);
	attempt_look_ahead(a);
}

/* The run that has begun and has segments left to send; NULL when none. */
static struct attempt *unfinished(const struct scheduler *s)
{
	struct attempt *a = TAILQ_LAST(&s->begun, attempt_head);

	return a != NULL && a->sent < a->run->segments ? a : NULL;
}

/* Of the run before, and with it all that was written earlier: whether it fails is known then. */
static bool end_stored(const struct scheduler *s)
{
	const struct run *run = queue_find(s->daemon->queue, s->ended);

	return run == NULL || lifecycle_stored(run);
}

void scheduler_wake(struct scheduler *s)
{
	struct attempt *a = unfinished(s);

	prefetch(s);
	hold_update(s->daemon->holds);
	if (s->slot != NULL || !engine_pool_ready(s->daemon->pool))
		return;
	if (a == NULL && store_failing(s->daemon->store))
		return;
	if (a == NULL && s->next != NULL && hold_none(s->daemon->holds) && attempt_ready(s->next) &&
		end_stored(s)) {
		a = s->next;
		s->next = NULL;
		begin(s, a);
		prefetch(s);
	}
	/* nothing is trained that the next start would find queued */
	if (a != NULL && attempt_ready(a) && (a->sent > 0 || lifecycle_stored(a->run)))
		send_segment(s, a);
}

/*
 * Engines may end just as they are given a segment, through no fault of its run: the next ones get
 * it, once, when nothing of it was begun and nothing else of the run is in hand.
 */
static bool send_again(struct scheduler *s, struct attempt *a, const char *reason)
{
	bool untouched = s->slot == a && !s->slot_begun && a->done == a->trained;

	if (!untouched || a->stopping || a->sent_again ||
		strncmp(reason, "engine_lost: ", strlen("engine_lost: ")) != 0)
		return false;
	log_write(LOG_WARNING, "run %lld: segment %lld was not begun: it goes to the next engines",
		(long long)a->run->id, (long long)s->slot_segment);
	a->sent_again = true;
	a->sent--;
	scheduler_tell(a, s->slot_segment, "waiting", reason);
	scheduler_free_slot(s);
	return true;
}

void scheduler_lost(struct scheduler *s, const char *reason)
{
	struct attempt *a, *next;
	bool in_hand;

	for (a = TAILQ_FIRST(&s->begun); a != NULL; a = next) {
		next = TAILQ_NEXT(a, link);
		in_hand = a->done < a->sent && a->done < a->run->segments;
		if (!in_hand || send_again(s, a, reason))
			continue; /* it goes on with the next engines */
		scheduler_leave(s, a, RUN_FAILED, s->slot == a ? s->slot_segment : -1, reason);
	}
}

/* ---- deadlines ---- */

/* Its start is not stored yet, so that nothing of it was given to the engines. */
static bool waits_for_store(const struct attempt *a)
{
	return a->sent == 0 && !a->sent_again;
}

/* Runs that took longer than their spec allows; one whose work is done is let finish. */
static void end_late(struct scheduler *s, int64_t now)
{
	struct attempt *a, *next;

	for (a = TAILQ_FIRST(&s->begun); a != NULL; a = next) {
		next = TAILQ_NEXT(a, link);
		if (a->run->timeout_s > 0 && a->run->state != RUN_FINISHING &&
			!waits_for_store(a) &&
			now - a->started_ns >= a->run->timeout_s * CLOCK_S_NS)
			scheduler_stop(s, a, RUN_FAILED, "timeout: not done within %lld s",
				(long long)a->run->timeout_s);
	}
}

/* Whether the engines have had all the time they get; reason says for what. */
static bool engines_hang(const struct scheduler *s, char *reason, size_t reason_bytes)
{
	const struct settings *settings = s->daemon->settings;
	int64_t patience_ns = settings->progress_timeout_s * CLOCK_S_NS;
	const struct attempt *a;

	if (s->slot != NULL && s->stop_ns != 0 &&
		clock_watch_since(&s->awake, s->stop_ns) >
			settings->cancel_timeout_s * CLOCK_S_NS) {
		snprintf(reason, reason_bytes, "engine_hung: did not stop within %lld s",
			(long long)settings->cancel_timeout_s);
		return true;
	}
	TAILQ_FOREACH(a, &s->begun, link) {
		if (a->done == a->trained ||
			clock_watch_since(&s->awake, a->written_ns) <= patience_ns)
			continue;
		snprintf(reason, reason_bytes,
			"disk_hung: segment %lld is trained, nothing of it was written for %lld s"
			" below %.250s",
			(long long)a->done, (long long)settings->progress_timeout_s, a->dir);
		return true;
	}
	if (s->slot == NULL || clock_watch_since(&s->awake, s->heard_ns) <= patience_ns)
		return false;
	snprintf(reason, reason_bytes, "engine_hung: no progress for %lld s",
		(long long)settings->progress_timeout_s);
	return true;
}

static void on_watch(evutil_socket_t fd, short what, void *arg)
{
	struct scheduler *s = arg;
	char reason[RUN_REASON_BYTES];
	int64_t now;

	engine_pool_hear(s->daemon->pool);
	now = clock_mono_ns();
	clock_watch_look(&s->awake, now);
	lifecycle_retry(s->daemon);
	if (s->next != NULL)
		attempt_retry(s->next);
	end_late(s, now);
	if (engines_hang(s, reason, sizeof(reason)))
		engine_pool_restart(s->daemon->pool, reason);
}

/* ---- from outside ---- */

int scheduler_create(struct daemon *d, struct scheduler **out)
{
	static const struct timeval second = {1, 0};
	struct scheduler *s = calloc(1, sizeof(*s));

	if (s == NULL)
		return -ENOMEM;
	s->daemon = d;
	TAILQ_INIT(&s->begun);
	TAILQ_INIT(&s->left);
	s->watch = event_new(d->base, -1, EV_PERSIST, on_watch, s);
	s->peer_timer = evtimer_new(d->base, scheduler_peer_timer, s);
	if (!s->watch || !s->peer_timer) {
		scheduler_destroy(s);
		return -ENOMEM;
	}
	clock_watch_look(&s->awake, clock_mono_ns());
	event_add(s->watch, &second);
	*out = s;
	return 0;
}

void scheduler_destroy(struct scheduler *s)
{
	struct attempt *a;

	if (s == NULL)
		return;
	TAILQ_CONCAT(&s->begun, &s->left, link);
	while ((a = TAILQ_FIRST(&s->begun)) != NULL) {
		TAILQ_REMOVE(&s->begun, a, link);
		attempt_destroy(a);
	}
	if (s->next)
		attempt_destroy(s->next);
	if (s->watch)
		event_free(s->watch);
	if (s->peer_timer)
		event_free(s->peer_timer);
	free(s);
}

static struct attempt *attempt_of(const struct scheduler *s, const struct run *run)
{
	struct attempt *a;

	TAILQ_FOREACH(a, &s->begun, link)
		if (a->run == run)
			return a;
	TAILQ_FOREACH(a, &s->left, link)
		if (a->run == run)
			return a;
	return NULL;
}

const char scheduler_stopped[] = "daemon_stop: gpt2d was stopped";

static const char asked_for[] = "cancelled: asked for";

int scheduler_cancel(struct scheduler *s, struct run *run)
{
	struct attempt *a = attempt_of(s, run);

	if (a != NULL && a->stopping && a->stop_state == RUN_INTERRUPTED &&
		run->state != RUN_FINISHING) {
		/* it gives way, and might be queued again */
		a->stop_state = RUN_CANCELLED;
		snprintf(a->stop_reason, sizeof(a->stop_reason), "%s", asked_for);
		return 0;
	}
	if (run_state_ended(run->state) || run->state == RUN_FINISHING || (a && a->stopping))
		return -EALREADY;
	if (a != NULL) {
		scheduler_stop(s, a, RUN_CANCELLED, "%s", asked_for);
		return 0;
	}
	if (s->next != NULL && s->next->run == run) {
		attempt_discard(s->next);
		s->next = NULL;
	}
	end_run(s, run, RUN_CANCELLED, asked_for);
	scheduler_wake(s);
	return 0;
}

void scheduler_interrupt(struct scheduler *s, bool all)
{
	struct attempt *a, *next;

	if (s->next != NULL) {
		attempt_discard(s->next);
		s->next = NULL;
	}
	for (a = TAILQ_FIRST(&s->begun); a != NULL; a = next) {
		next = TAILQ_NEXT(a, link);
		if (a->done == a->run->segments || (a->run->state == RUN_FINISHING && !all))
			continue; /* an experiment's marker is gpt2d's own to write */
		scheduler_leave(s, a, RUN_INTERRUPTED, -1, scheduler_stopped);
	}
}

void scheduler_yield(struct scheduler *s, const char *reason)
{
	struct attempt *a, *next;

	for (a = TAILQ_FIRST(&s->begun); a != NULL; a = next) {
		next = TAILQ_NEXT(a, link);
		if (a->run->state != RUN_FINISHING)
			scheduler_stop(s, a, RUN_INTERRUPTED, "%s", reason);
	}
}

bool scheduler_in_hand(const struct scheduler *s)
{
	return !TAILQ_EMPTY(&s->begun);
}

bool scheduler_busy(const struct scheduler *s)
{
	return scheduler_in_hand(s) || !TAILQ_EMPTY(&s->left);
}

static const struct attempt *running(const struct scheduler *s)
{
	if (s->slot != NULL)
		return s->slot;
	return TAILQ_LAST(scheduler_in_hand(s) ? &s->begun : &s->left, attempt_head);
}

struct run *scheduler_running(const struct scheduler *s)
{
	const struct attempt *a = running(s);

	return a ? a->run : NULL;
}

const struct store_failure *scheduler_lack(const struct scheduler *s, const struct run *run)
{
	const struct attempt *next = s->next;

	return next != NULL && next->run == run && next->lack.rc < 0 ? &next->lack : NULL;
}

bool scheduler_stopping(const struct scheduler *s)
{
	const struct attempt *a = running(s);

	return a != NULL && a->stopping;
}

const char *scheduler_stop_reason(const struct scheduler *s)
{
	const struct attempt *a = running(s);

	return a != NULL && a->stopping ? a->stop_reason : NULL;
}
