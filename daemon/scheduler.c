#include "daemon/scheduler.h"

#include <errno.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/active.h"
#include "daemon/clock.h"
#include "daemon/daemon.h"
#include "daemon/engine_pool.h"
#include "daemon/follow.h"
#include "daemon/lifecycle.h"
#include "daemon/log.h"
#include "daemon/queue.h"
#include "daemon/record.h"
#include "daemon/settings.h"
#include "proto/protocol.h"
#include "proto/rpc.h"

enum {
	PEER_LOST_MS = 2000, /* from "peer_lost" of one rank to the news of the other */
	BRIEF_MAX = 16,      /* elements of an array in an event */
};

struct scheduler {
	struct daemon *daemon;
	TAILQ_HEAD(active_head, active)
	begun;               /* have sent a segment and not ended; at most the last
			      * one has segments left to send */
	struct active *next; /* made ready ahead; still queued */

	struct active *slot; /* whose segment the engines train; NULL: they are free */
	int64_t slot_segment;
	int64_t heard_ns;    /* of the last message about it */
	int64_t stop_ns;     /* segment.cancel was sent; 0: not */
	double step_ns;      /* of its last step, for the time left */
	int64_t steps;       /* of its segments, as the engine says */
	struct event *watch; /* deadlines, each second */

	char peer_lost[RUN_REASON_BYTES]; /* a rank failed because of another: why */
	struct event *peer_timer;
	char waiting[256];
};

/* ---- ends ---- */

static void record(const struct active *a, int64_t segment, const char *state, const char *reason,
	const char *dir, const char *summary)
{
	struct record_segment r = {a->run->id, segment, state, reason, dir, summary};

	if (record_segment(a->daemon->store, &r) < 0)
		log_write(LOG_ERROR, "run %lld: segment %lld: out of memory", (long long)r.run,
			(long long)segment);
}

static void tell_segment(const struct active *a, int64_t segment, const char *state,
	const char *reason, json_t *summary)
{
	const struct design_segment *s = &a->order[segment];

	follow_event(a->daemon->follow, a->run, EVENT_SEGMENT,
		json_pack("{sI sI sI sI ss ss ss? sO*}", "segment", (json_int_t)segment, "segments",
			(json_int_t)a->run->segments, "block", (json_int_t)s->block, "position",
			(json_int_t)s->position, "arm", a->spec->arms[s->arm].name, "state", state,
			"reason", reason, "summary", summary));
}

static void free_slot(struct scheduler *s)
{
	s->slot = NULL;
	s->stop_ns = 0;
	s->peer_lost[0] = '\0';
	evtimer_del(s->peer_timer);
}

/* The run ends here, whatever its segments still do. */
static void end(struct scheduler *s, struct active *a, enum run_state state, const char *reason)
{
	struct run *run = a->run;
	char why[RUN_REASON_BYTES] = ""; /* reason may lie in a */

	if (reason)
		snprintf(why, sizeof(why), "%s", reason);
	if (s->slot == a)
		free_slot(s);
	TAILQ_REMOVE(&s->begun, a, link);
	active_destroy(a);
	lifecycle_move(s->daemon, run, state, reason ? why : NULL);
	scheduler_wake(s);
	daemon_stop_turn(s->daemon);
}

static void end_failed(struct scheduler *s, struct active *a, const char *reason)
{
	if (a->stopping)
		end(s, a, a->stop_state, a->stop_reason);
	else
		end(s, a, RUN_FAILED, reason);
}

/* ---- stop: ask the engines to let go of the segment, then end ---- */

static void stop(struct scheduler *s, struct active *a, enum run_state state, const char *format,
	...) __attribute__((format(printf, 4, 5)));

static void stop(
	struct scheduler *s, struct active *a, enum run_state state, const char *format, ...)
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
		end(s, a, a->stop_state, a->stop_reason);
		return;
	}
	params = json_pack(
		"{sI sI}", "run", (json_int_t)a->run->id, "segment", (json_int_t)s->slot_segment);
	engine_pool_send(s->daemon->pool, (int)a->run->gpus, SEGMENT_CANCEL, params);
	json_decref(params);
	s->stop_ns = clock_mono_ns();
}

static void on_timeout(evutil_socket_t fd, short what, void *arg)
{
	struct active *a = arg;

	if (a->run->state == RUN_FINISHING)
		return; /* the work is done */
	stop(a->daemon->scheduler, a, RUN_FAILED, "timeout: not done within %lld s",
		(long long)a->run->timeout_s);
}

/* ---- starts ---- */

static void on_changed(struct active *a, const char *failure, void *arg)
{
	struct scheduler *s = arg;
	struct run *run = a->run;

	if (failure == NULL) {
		scheduler_wake(s);
	} else if (a == s->next) {
		s->next = NULL;
		active_destroy(a);
		lifecycle_move(s->daemon, run, RUN_FAILED, failure);
		scheduler_wake(s);
	} else {
		stop(s, a, RUN_FAILED, "%s", failure);
	}
}

/* See to it that the head of the queue is being made ready. */
static void prefetch(struct scheduler *s)
{
	struct run *head = queue_next(s->daemon->queue, NULL);
	int rc;

	if (s->daemon->stopping || s->next != NULL || head == NULL)
		return;
	rc = active_create(s->daemon, head, on_changed, s, &s->next);
	if (rc == -ENAMETOOLONG)
		lifecycle_move(s->daemon, head, RUN_FAILED, "io: its directory's path is too long");
	else if (rc < 0)
		lifecycle_move(s->daemon, head, RUN_FAILED, "no_memory: to make it ready");
}

static void begin(struct scheduler *s, struct active *a)
{
	struct timeval timeout = {.tv_sec = (time_t)a->run->timeout_s};

	TAILQ_INSERT_TAIL(&s->begun, a, link);
	a->started_ns = clock_mono_ns();
	s->steps = 0;
	s->step_ns = 0;
	lifecycle_move(s->daemon, a->run, RUN_STARTING, NULL);
	if (a->run->timeout_s == 0)
		return;
	a->timeout = evtimer_new(s->daemon->base, on_timeout, a);
	if (a->timeout)
		evtimer_add(a->timeout, &timeout);
}

static void send_segment(struct scheduler *s, struct active *a)
{
	char dir[PATH_MAX];
	json_t *params = active_segment_start(a, a->sent);

	if (params == NULL || active_segment_dir(a, a->sent, dir) < 0) {
		json_decref(params);
		stop(s, a, RUN_FAILED, "no_memory: segment %lld cannot be started",
			(long long)a->sent);
		return;
	}
	s->slot = a;
	s->slot_segment = a->sent++;
	s->stop_ns = 0;
	s->heard_ns = clock_mono_ns();
	engine_pool_send(s->daemon->pool, (int)a->run->gpus, SEGMENT_START, params);
	json_decref(params);
	record(a, s->slot_segment, "training", NULL, dir, NULL);
	tell_segment(a, s->slot_segment, "training", NULL, NULL);
	active_look_ahead(a);
}

/* The run that has begun and has segments left to send; NULL when none. */
static struct active *unfinished(const struct scheduler *s)
{
	struct active *a = TAILQ_LAST(&s->begun, active_head);

	return a != NULL && a->sent < a->run->segments ? a : NULL;
}

void scheduler_wake(struct scheduler *s)
{
	struct active *a = unfinished(s);

	prefetch(s);
	if (s->slot != NULL || !engine_pool_ready(s->daemon->pool))
		return;
	if (a == NULL && s->next != NULL && !s->daemon->stopping && active_ready(s->next)) {
		a = s->next;
		s->next = NULL;
		begin(s, a);
		prefetch(s);
	}
	if (a != NULL && active_ready(a))
		send_segment(s, a);
}

/* ---- messages ---- */

struct about {
	struct active *a; /* NULL: not in progress any more */
	int64_t run, segment;
	bool in_slot;
	int rank;
};

static struct about about_what(const struct scheduler *s, int rank, json_t *params)
{
	struct about w = {.rank = rank};
	struct active *a;

	w.run = json_integer_value(json_object_get(params, "run"));
	w.segment = json_integer_value(json_object_get(params, "segment"));
	TAILQ_FOREACH(a, &s->begun, link)
		if (a->run->id == w.run && w.segment >= 0 && w.segment < a->sent)
			w.a = a;
	w.in_slot = w.a != NULL && w.a == s->slot && w.segment == s->slot_segment;
	return w;
}

static void on_started(struct scheduler *s, const struct about *w, json_t *params)
{
	if (w->in_slot && w->a->run->state == RUN_STARTING)
		lifecycle_move(s->daemon, w->a->run, RUN_RUNNING, NULL);
}

/* Seconds until the run is trained, from the last step's time and what its segments have in common.
 */
static json_t *eta_s(const struct scheduler *s, const struct about *w, int64_t step, int64_t steps)
{
	int64_t segments_left = w->a->run->segments - w->segment - 1;
	double steps_left = (double)(steps - step) + (double)segments_left * (double)steps;

	return rpc_real(steps_left * s->step_ns / 1e9);
}

static void on_step(struct scheduler *s, const struct about *w, json_t *params)
{
	const struct design_segment *d;
	int64_t step = json_integer_value(json_object_get(params, "step"));
	double step_ns = json_number_value(json_object_get(params, "step_time_ns"));
	json_t *loss = json_object_get(params, "loss");
	json_t *tokens = json_object_get(params, "tokens_per_sec");

	if (!w->in_slot)
		return;
	on_started(s, w, params);
	d = &w->a->order[w->segment];
	s->steps = json_integer_value(json_object_get(params, "steps"));
	s->step_ns = s->step_ns > 0 ? 0.9 * s->step_ns + 0.1 * step_ns : step_ns;
	follow_step(s->daemon->follow, w->a->run,
		json_pack("{sI sI sI ss sI sI so so sI so}", "segment", (json_int_t)w->segment,
			"segments", (json_int_t)w->a->run->segments, "block", (json_int_t)d->block,
			"arm", w->a->spec->arms[d->arm].name, "step", (json_int_t)step, "steps",
			(json_int_t)s->steps, "loss", loss ? json_incref(loss) : json_null(),
			"tokens_per_sec", tokens ? json_incref(tokens) : json_null(),
			"step_time_ns", (json_int_t)step_ns, "eta_s", eta_s(s, w, step, s->steps)));
}

static void on_artifact(struct scheduler *s, const struct about *w, json_t *params)
{
	json_t *path = json_object_get(params, "path"), *bytes = json_object_get(params, "bytes");

	if (w->a != NULL && path != NULL && bytes != NULL)
		follow_event(s->daemon->follow, w->a->run, EVENT_ARTIFACT,
			json_pack("{sI sO sO}", "segment", (json_int_t)w->segment, "path", path,
				"bytes", bytes));
}

static void on_trained(struct scheduler *s, const struct about *w, json_t *params)
{
	if (!w->in_slot)
		return;
	on_started(s, w, params);
	free_slot(s);
	w->a->trained++;
	if (w->a->trained == w->a->run->segments) {
		/* too late for a stop: the work is done */
		w->a->stopping = false;
		lifecycle_move(s->daemon, w->a->run, RUN_FINISHING, NULL);
	}
	if (w->a->stopping) {
		record(w->a, w->segment, "trained", NULL, NULL, NULL);
		end(s, w->a, w->a->stop_state, w->a->stop_reason);
		return;
	}
	record(w->a, w->segment, "trained", NULL, NULL, NULL);
	tell_segment(w->a, w->segment, "trained", NULL, NULL);
	scheduler_wake(s);
}

static void on_complete(struct active *a, int rc, void *arg)
{
	struct scheduler *s = arg;
	char reason[128];

	if (rc == 0) {
		engine_pool_worked(s->daemon->pool);
		end(s, a, RUN_DONE, NULL);
		return;
	}
	snprintf(reason, sizeof(reason), "%s: completion marker: %s",
		rc == -ENOSPC ? "enospc" : "io", strerror(-rc));
	end_failed(s, a, reason);
}

/* Without its long arrays (a value for each step), which "show" has: an event has to fit a buffer.
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

static void on_done(struct scheduler *s, const struct about *w, json_t *params)
{
	json_t *summary = json_object_get(params, "summary");
	char *text = summary ? json_dumps(summary, JSON_COMPACT) : NULL;
	struct record_segment r = {w->run, w->segment, "done", NULL, NULL, text};
	struct about now = *w;
	json_t *brief;
	int rc;

	if (w->in_slot) {
		on_trained(s, w, params);
		now = about_what(s, w->rank, params); /* that may have ended the run */
		w = &now;
	}
	if (record_segment(s->daemon->store, &r) < 0)
		log_write(LOG_ERROR, "run %lld: out of memory", (long long)w->run);
	free(text);
	if (w->a == NULL)
		return; /* its run has ended; what is on disk is on disk */
	w->a->done++;
	w->a->run->segments_done++;
	w->a->tokens += json_number_value(json_object_get(summary, "tokens_total"));
	brief = in_brief(summary);
	tell_segment(w->a, w->segment, "done", NULL, brief);
	json_decref(brief);
	if (w->a->done < w->a->run->segments)
		return;
	rc = active_finish(w->a, on_complete);
	if (rc < 0)
		on_complete(w->a, rc, s);
}

static void segment_failed(
	struct scheduler *s, const struct about *w, const char *reason, bool poisoned)
{
	struct active *a = w->a;

	record(a, w->segment, "failed", reason, NULL, NULL);
	tell_segment(a, w->segment, "failed", reason, NULL);
	if (poisoned) { /* ends the run as well */
		engine_pool_restart(s->daemon->pool, reason);
		return;
	}
	if (w->in_slot)
		free_slot(s);
	if (s->slot == a) /* an earlier segment's artifacts; the next one is being trained */
		stop(s, a, RUN_FAILED, "%s", reason);
	else
		end_failed(s, a, reason);
}

static void on_failed(struct scheduler *s, const struct about *w, json_t *params)
{
	static const struct timeval grace = {PEER_LOST_MS / 1000, PEER_LOST_MS % 1000 * 1000};
	const char *code = json_string_value(json_object_get(params, "reason"));
	const char *message = json_string_value(json_object_get(params, "message"));
	bool poisoned = json_is_true(json_object_get(params, "poisoned"));
	char reason[RUN_REASON_BYTES];

	if (w->a == NULL)
		return;
	snprintf(reason, sizeof(reason), "%s: rank %d: %s", code ? code : "engine", w->rank,
		message ? message : "no message");
	if (code == NULL || strcmp(code, "peer_lost") != 0 || !w->in_slot) {
		segment_failed(s, w, reason, poisoned);
		return;
	}
	/* what happened to the peer is about to be known, and says more */
	if (s->peer_lost[0] != '\0')
		return;
	snprintf(s->peer_lost, sizeof(s->peer_lost), "%s", reason);
	evtimer_add(s->peer_timer, &grace);
}

static void on_peer_timer(evutil_socket_t fd, short what, void *arg)
{
	struct scheduler *s = arg;
	char reason[RUN_REASON_BYTES];

	snprintf(reason, sizeof(reason), "%s", s->peer_lost);
	engine_pool_restart(s->daemon->pool, reason);
}

static void on_cancelled(struct scheduler *s, const struct about *w, json_t *params)
{
	struct active *a = w->a;

	if (!w->in_slot || !a->stopping)
		return;
	record(a, w->segment, "cancelled", a->stop_reason, NULL, NULL);
	tell_segment(a, w->segment, "cancelled", a->stop_reason, NULL);
	end(s, a, a->stop_state, a->stop_reason);
}

static void on_log(struct scheduler *s, int rank, json_t *params)
{
	const char *level = json_string_value(json_object_get(params, "level"));
	const char *text = json_string_value(json_object_get(params, "message"));

	if (text == NULL)
		return;
	log_write(log_level_of(level ? level : ""), "rank %d: %s", rank, text);
	if (s->slot != NULL && log_level_of(level ? level : "") > LOG_DEBUG)
		follow_event(s->daemon->follow, s->slot->run, EVENT_LOG,
			json_pack("{si ss ss}", "rank", rank, "level", level ? level : "info",
				"message", text));
}

struct handler {
	const char *method;
	bool rank0_only;
	void (*handle)(struct scheduler *s, const struct about *w, json_t *params);
};

static const struct handler handlers[] = {
	{SEGMENT_STEP, true, on_step},
	{SEGMENT_STARTED, true, on_started},
	{SEGMENT_ARTIFACT, true, on_artifact},
	{SEGMENT_TRAINED, true, on_trained},
	{SEGMENT_DONE, true, on_done},
	{SEGMENT_FAILED, false, on_failed},
	{SEGMENT_CANCELLED, true, on_cancelled},
};

void scheduler_message(struct scheduler *s, int rank, const char *method, json_t *params)
{
	struct about w;

	if (strcmp(method, ENGINE_LOG) == 0) {
		on_log(s, rank, params);
		return;
	}
	for (size_t i = 0; i < sizeof(handlers) / sizeof(handlers[0]); i++) {
		if (strcmp(method, handlers[i].method) != 0)
			continue;
		w = about_what(s, rank, params);
		if (w.in_slot)
			s->heard_ns = clock_mono_ns();
		if (rank == 0 || !handlers[i].rank0_only)
			handlers[i].handle(s, &w, params);
		return;
	}
	log_write(LOG_WARNING, "rank %d: %.64s: unknown message", rank, method);
}

void scheduler_lost(struct scheduler *s, const char *reason)
{
	struct active *a, *next;
	bool in_hand;

	for (a = TAILQ_FIRST(&s->begun); a != NULL; a = next) {
		next = TAILQ_NEXT(a, link);
		in_hand = a->done < a->sent && a->done < a->run->segments;
		if (!in_hand)
			continue; /* between two segments: it goes on with the next engines */
		if (s->slot == a)
			record(a, s->slot_segment, "failed", reason, NULL, NULL);
		end_failed(s, a, reason);
	}
}

/* ---- deadlines ---- */

static void on_watch(evutil_socket_t fd, short what, void *arg)
{
	struct scheduler *s = arg;
	const struct settings *settings = s->daemon->settings;
	int64_t now = clock_mono_ns();
	char reason[128];

	if (s->slot == NULL)
		return;
	if (s->stop_ns != 0 && now - s->stop_ns > settings->cancel_timeout_s * CLOCK_S_NS) {
		snprintf(reason, sizeof(reason), "engine_hung: did not stop within %lld s",
			(long long)settings->cancel_timeout_s);
		engine_pool_restart(s->daemon->pool, reason);
	} else if (now - s->heard_ns > settings->progress_timeout_s * CLOCK_S_NS) {
		snprintf(reason, sizeof(reason), "engine_hung: no progress for %lld s",
			(long long)settings->progress_timeout_s);
		engine_pool_restart(s->daemon->pool, reason);
	}
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
	s->watch = event_new(d->base, -1, EV_PERSIST, on_watch, s);
	s->peer_timer = evtimer_new(d->base, on_peer_timer, s);
	if (!s->watch || !s->peer_timer) {
		scheduler_destroy(s);
		return -ENOMEM;
	}
	event_add(s->watch, &second);
	*out = s;
	return 0;
}

void scheduler_destroy(struct scheduler *s)
{
	struct active *a;

	if (s == NULL)
		return;
	while ((a = TAILQ_FIRST(&s->begun)) != NULL) {
		TAILQ_REMOVE(&s->begun, a, link);
		active_destroy(a);
	}
	if (s->next)
		active_destroy(s->next);
	if (s->watch)
		event_free(s->watch);
	if (s->peer_timer)
		event_free(s->peer_timer);
	free(s);
}

static struct active *active_of(const struct scheduler *s, const struct run *run)
{
	struct active *a;

	TAILQ_FOREACH(a, &s->begun, link)
		if (a->run == run)
			return a;
	return NULL;
}

int scheduler_cancel(struct scheduler *s, struct run *run)
{
	struct active *a = active_of(s, run);

	if (run_state_ended(run->state) || run->state == RUN_FINISHING || (a && a->stopping))
		return -EALREADY;
	if (a != NULL) {
		stop(s, a, RUN_CANCELLED, "cancelled: asked for");
		return 0;
	}
	if (s->next != NULL && s->next->run == run) {
		active_discard(s->next);
		s->next = NULL;
	}
	lifecycle_move(s->daemon, run, RUN_CANCELLED, "cancelled: asked for");
	scheduler_wake(s);
	return 0;
}

void scheduler_interrupt(struct scheduler *s, bool all)
{
	struct active *a, *next;
	struct run *run;

	if (s->next != NULL) {
		active_discard(s->next);
		s->next = NULL;
	}
	for (a = TAILQ_FIRST(&s->begun); a != NULL; a = next) {
		next = TAILQ_NEXT(a, link);
		run = a->run;
		if (run->state == RUN_FINISHING && !all)
			continue;
		if (s->slot == a)
			free_slot(s);
		TAILQ_REMOVE(&s->begun, a, link);
		active_destroy(a);
		lifecycle_move(s->daemon, run, RUN_INTERRUPTED, "daemon_stop: gpt2d was stopped");
		if (run->restart)
			lifecycle_move(
				s->daemon, run, RUN_QUEUED, "restart: asked for in its spec");
	}
}

bool scheduler_busy(const struct scheduler *s)
{
	return !TAILQ_EMPTY(&s->begun);
}

struct run *scheduler_running(const struct scheduler *s)
{
	struct active *a = TAILQ_LAST(&s->begun, active_head);

	return s->slot ? s->slot->run : a ? a->run : NULL;
}

const char *scheduler_waiting(struct scheduler *s)
{
	struct run *running = scheduler_running(s);
	struct daemon *d = s->daemon;

	if (queue_next(d->queue, NULL) == NULL)
		return NULL;
	if (d->stopping)
		return "gpt2d is stopping";
	if (running != NULL)
		snprintf(s->waiting, sizeof(s->waiting), "run %lld is %s", (long long)running->id,
			run_state_name(running->state));
	else if (!engine_pool_ready(d->pool))
		snprintf(s->waiting, sizeof(s->waiting), "engines are %s%s%.200s",
			engine_pool_state_name(d->pool), engine_pool_reason(d->pool)[0] ? ": " : "",
			engine_pool_reason(d->pool));
	else if (store_failing(d->store))
		return "the state directory cannot be written";
	else
		return "it is being made ready";
	return s->waiting;
}
