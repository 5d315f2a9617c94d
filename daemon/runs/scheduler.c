#include "daemon/runs/scheduler.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/clock.h"
#include "daemon/config/log.h"
#include "daemon/config/settings.h"
#include "daemon/control/role.h"
#include "daemon/engines/engine_pool.h"
#include "daemon/runs/hold.h"
#include "daemon/runs/lifecycle.h"
#include "daemon/runs/queue.h"
#include "daemon/runs/run_log.h"
#include "daemon/runs/task.h"
#include "daemon/store/store.h"
#include "proto/artifact.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"
#include "proto/text.h"

enum { PEER_LOST_MS = 2000 }; /* from "peer_lost" of one rank to the news of the other */

TAILQ_HEAD(task_head, task);

struct scheduler {
	struct scheduler_options options;
	/* have sent a segment and not ended; at most the last one has segments left to send */
	struct task_head begun;
	struct task_head left; /* see leave() */
	struct attempt *next;  /* prepared ahead; its run is still queued */
	int64_t ended;         /* the run that ended last; 0: none has */

	struct task *slot; /* whose segment the engines train; NULL: they are free */
	int64_t slot_segment;
	bool slot_begun;  /* the engines have reported something about it */
	int64_t heard_ns; /* the last message about it */
	int64_t stop_ns;  /* segment.cancel was sent; 0: not */

	struct event *watch; /* deadlines, each second */
	struct clock_watch awake;
	struct event *wake; /* scheduler_wake */
	struct event *idle; /* the engines end when it is over */
	int64_t idle_s;     /* what it was set to */
	int64_t idle_at_ns; /* UTC, when it was over last */

	char peer_lost[RUN_REASON_BYTES]; /* a rank failed because of another: why */
	struct event *peer_timer;
};

/* ---- ends ---- */

static void free_slot(struct scheduler *s)
{
	s->slot = NULL;
	s->stop_ns = 0;
	s->peer_lost[0] = '\0';
	evtimer_del(s->peer_timer);
}

static void end_run(struct scheduler *s, struct run *run, enum run_state state, const char *reason)
{
	s->ended = run->id;
	lifecycle_move(s->options.lifecycle, run, state, reason);
	scheduler_wake(s);
}

static void end_task(struct task *t, enum run_state state, const char *reason)
{
	struct scheduler *s = t->scheduler;
	struct run *run = t->run;
	const bool requeue = t->requeue;
	char why[RUN_REASON_BYTES] = ""; /* reason may be t's own */

	if (reason)
		snprintf(why, sizeof(why), "%s", reason);
	if (s->slot == t)
		free_slot(s);
	if (t->left)
		TAILQ_REMOVE(&s->left, t, link);
	else
		TAILQ_REMOVE(&s->begun, t, link);
	attempt_end(t->attempt, task_first_unwritten(t));
	task_free(t);
	end_run(s, run, state, why[0] ? why : NULL);
	if (state == RUN_INTERRUPTED && requeue)
		lifecycle_move(s->options.lifecycle, run, RUN_QUEUED,
			"room: until its artifacts can be written");
	else if (state == RUN_INTERRUPTED && run->restart)
		lifecycle_move(
			s->options.lifecycle, run, RUN_QUEUED, "restart: asked for in its spec");
}

__attribute__((format(printf, 3, 4))) static void stop_task(
	struct task *t, enum run_state state, const char *format, ...)
{
	struct scheduler *s = t->scheduler;
	char reason[RUN_REASON_BYTES];
	json_t *params;
	va_list args;

	if (t->stopping)
		return; /* the first reason counts */
	va_start(args, format);
	vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	task_set_stop(t, state, reason);
	if (s->slot != t) {
		end_task(t, t->stop_state, t->stop_reason);
		return;
	}
	params = json_pack("{sI sI}", "run", (json_int_t)t->run->id, "segment",
		(json_int_t)s->slot_segment + 1);
	engine_pool_send(s->options.pool, attempt_segment_gpus(t->attempt, s->slot_segment),
		SEGMENT_CANCEL, params);
	json_decref(params);
	s->stop_ns = clock_mono_ns();
}

static void fail_task(struct task *t, const char *reason)
{
	struct scheduler *s = t->scheduler;

	if (t->stopping && s->slot != t) {
		end_task(t, t->stop_state, t->stop_reason);
	} else if (hold_is_room_reason(reason)) {
		hold_place_room(s->options.holds, t->run, reason);
		t->requeue = true;
		stop_task(t, RUN_INTERRUPTED, "%s", reason);
	} else {
		stop_task(t, RUN_FAILED, "%s", reason);
	}
}

static void on_complete(void *arg, int rc)
{
	struct task *t = arg;
	char reason[128];

	if (rc == 0) {
		end_task(t, RUN_DONE, NULL);
		return;
	}
	snprintf(reason, sizeof(reason), "%s: completion marker: %s", artifact_failure_code(rc),
		strerror(-rc));
	fail_task(t, reason);
}

static void segment_done(struct task *t, int64_t segment, json_t *summary)
{
	t->reports[segment] = ATTEMPT_DONE;
	t->done++;
	t->tokens += json_number_value(json_object_get(summary, "tokens_total"));
	if (t->done == t->run->segments)
		attempt_complete(t->attempt, t->started_ns, t->tokens, on_complete, t);
}

/* ---- runs whose engines end before they are done ---- */

/* The engines completed all of it, whatever gpt2d wanted to do with the run meanwhile. */
static void move_to_finishing(struct task *t)
{
	t->stopping = false;
	while (t->run->state < RUN_FINISHING)
		lifecycle_move(t->scheduler->options.lifecycle, t->run, t->run->state + 1, NULL);
}

static void on_inspected(void *arg, int rc, json_t *found)
{
	struct task *t = arg;
	const bool all = t->done + (int64_t)json_array_size(found) == t->run->segments;
	json_t *row, *summary;
	int64_t segment;
	size_t i;

	if (rc < 0)
		log_write(LOG_ERROR,
			"run %lld: a %s below %s cannot be removed, though its segment is not done:"
			" %s",
			(long long)t->run->id, ARTIFACT_COMPLETE, attempt_dir(t->attempt),
			strerror(-rc));
	if (all)
		move_to_finishing(t);
	json_array_foreach(found, i, row) {
		segment = json_integer_value(json_object_get(row, "segment"));
		summary = json_loads(
			json_string_value(json_object_get(row, "summary")), JSON_DECODE_ANY, NULL);
		task_record_end(t, segment, "done", NULL, summary,
			json_string_value(json_object_get(row, "artifacts")));
		segment_done(t, segment, summary); /* the last one may free t */
		json_decref(summary);
	}
	json_decref(found);
	if (all)
		return; /* it ends when its marker is written */
	if (t->cut >= 0 && t->reports[t->cut] == ATTEMPT_OPEN)
		task_record(t, t->cut, "failed", t->cut_reason, NULL);
	end_task(t, t->stop_state, t->stop_reason);
}

static void inspect(struct task *t)
{
	if (t->inspecting)
		return;
	t->inspecting = true;
	attempt_inspect(t->attempt, t->sent, t->reports, on_inspected, t);
}

/*
 * The engines of a run are ending before it is done. Once no process is left the run ends as its
 * directory says: done when that is complete; else in state, or as an earlier stop wants it. cut is
 * the segment that was being trained and has failed for reason; -1: none.
 */
static void leave(struct task *t, enum run_state state, int64_t cut, const char *reason)
{
	struct scheduler *s = t->scheduler;

	t->left = true;
	t->cut = cut;
	snprintf(t->cut_reason, sizeof(t->cut_reason), "%s", reason);
	if (!t->stopping)
		task_set_stop(t, state, reason);
	if (s->slot == t)
		free_slot(s);
	TAILQ_REMOVE(&s->begun, t, link);
	TAILQ_INSERT_TAIL(&s->left, t, link);
	if (engine_pool_gone(s->options.pool))
		inspect(t);
	scheduler_wake(s);
}

void scheduler_gone(struct scheduler *s)
{
	struct task *t;

	TAILQ_FOREACH(t, &s->left, link)
		inspect(t);
}

/*
 * Engines may end just as they are given a segment, through no fault of its run: the next ones get
 * it, once, when nobody had begun it and nothing else of the run is in progress.
 */
static bool send_again(struct task *t, const char *reason)
{
	struct scheduler *s = t->scheduler;
	bool untouched = s->slot == t && !s->slot_begun && t->done == t->trained;

	if (!untouched || t->stopping || t->sent_again ||
		strncmp(reason, "engine_lost: ", strlen("engine_lost: ")) != 0)
		return false;
	log_write(LOG_WARNING, "run %lld: segment %lld was not begun: the next engines get it",
		(long long)t->run->id, (long long)s->slot_segment + 1);
	t->sent_again = true;
	t->sent--;
	task_report(t, s->slot_segment, "waiting", reason);
	free_slot(s);
	return true;
}

void scheduler_lost(struct scheduler *s, const char *reason)
{
	struct task *t, *next;
	bool in_hand;

	for (t = TAILQ_FIRST(&s->begun); t != NULL; t = next) {
		next = TAILQ_NEXT(t, link);
		in_hand = t->done < t->sent && t->done < t->run->segments;
		if (in_hand && !send_again(t, reason))
			leave(t, RUN_FAILED, s->slot == t ? s->slot_segment : -1, reason);
	}
}

/* ---- starts ---- */

static struct task *find_in(const struct task_head *tasks, const struct run *run)
{
	struct task *t;

	TAILQ_FOREACH(t, tasks, link)
		if (t->run == run)
			break;
	return t;
}

static struct task *task_of(const struct scheduler *s, const struct run *run)
{
	struct task *t = find_in(&s->begun, run);

	return t != NULL ? t : find_in(&s->left, run);
}

static void discard_next(struct scheduler *s)
{
	if (s->next != NULL)
		attempt_discard(s->next);
	s->next = NULL;
}

static void on_attempt(void *arg, struct attempt *a, int rc, const char *failure)
{
	struct scheduler *s = arg;
	struct run *run = attempt_run(a);
	struct task *t;

	if (failure == NULL) {
		scheduler_wake(s);
	} else if (a != s->next) {
		t = task_of(s, run);
		assert(t != NULL); /* an attempt that is not the next one belongs to a task */
		fail_task(t, failure);
	} else {
		discard_next(s);
		if (hold_is_room_reason(failure))
			hold_place_room(s->options.holds, run, failure);
		else
			end_run(s, run, RUN_FAILED, failure);
	}
}

/* Has the head of the queue prepared. */
static void prefetch(struct scheduler *s)
{
	const struct attempt_options options = {
		.store = s->options.store,
		.settings = s->options.settings,
		.state_dir = s->options.state_dir,
		.changed = on_attempt,
		.arg = s,
	};
	struct run *head = queue_head(s->options.queue);

	if (s->next != NULL && attempt_run(s->next) != head) /* one of a higher priority came */
		discard_next(s);
	/* where the disk takes no writes, this run would fail, and all others after it */
	if (hold_is_set(s->options.holds, HOLD_STOPPING) ||
		hold_is_set(s->options.holds, HOLD_ROOM) || store_failing(s->options.store))
		return;
	while (s->next == NULL && (head = queue_head(s->options.queue)) != NULL)
		if (attempt_create(&options, head, &s->next) < 0)
			end_run(s, head, RUN_FAILED, "io: its directory's path is too long");
}

static struct task *begin(struct scheduler *s)
{
	struct task *t = task_create(s, s->options.store, s->options.follow, s->next);

	s->next = NULL;
	TAILQ_INSERT_TAIL(&s->begun, t, link);
	lifecycle_move(s->options.lifecycle, t->run, RUN_STARTING, NULL);
	return t;
}

static void send_segment(struct scheduler *s, struct task *t)
{
	char dir[PATH_MAX], why[300];
	json_t *params;

	/* the settings may have changed since the run was submitted */
	if (attempt_segment_reads(t->attempt, t->sent) &&
		!role_may_read(s->options.settings, t->run->uid)) {
		role_say_unreadable(t->run->uid, why, sizeof(why));
		stop_task(t, RUN_FAILED, "spec_refused: data.train: %s", why);
		return;
	}
	if (attempt_segment_dir(t->attempt, t->sent, dir) < 0) {
		stop_task(t, RUN_FAILED, "artifacts: its directory's path is too long");
		return;
	}
	params = attempt_segment_start(t->attempt, t->sent, t->data);
	if (t->sent == 0 && !t->sent_again) { /* it may have waited for the store */
		t->started_ns = clock_mono_ns();
		pace_begin(&t->pace, t->started_ns);
	}
	s->slot = t;
	s->slot_segment = t->sent++;
	s->slot_begun = false;
	s->stop_ns = 0;
	s->heard_ns = clock_mono_ns();
	engine_pool_send(s->options.pool, attempt_segment_gpus(t->attempt, s->slot_segment),
		SEGMENT_START, params);
	json_decref(params);
	task_record(t, s->slot_segment, "training", NULL, dir);
	task_report(t, s->slot_segment, "training", NULL);
	attempt_look_ahead(t->attempt, t->sent);
}

/* The run that has begun and has segments left to send; NULL when none. */
static struct task *unfinished(const struct scheduler *s)
{
	struct task *t = TAILQ_LAST(&s->begun, task_head);

	return t != NULL && t->sent < t->run->segments ? t : NULL;
}

/* The end of the run before, and all that was written earlier, is durable. */
static bool end_stored(const struct scheduler *s)
{
	const struct run *run = queue_find(s->options.queue, s->ended);

	return run == NULL || lifecycle_stored(run);
}

static void send_next(struct scheduler *s)
{
	struct task *t = unfinished(s);

	prefetch(s);
	if (s->slot != NULL || !engine_pool_ready(s->options.pool))
		return;
	if (t == NULL && store_failing(s->options.store))
		return;
	if (t == NULL && s->next != NULL && hold_none(s->options.holds) &&
		attempt_ready(s->next, 0) && end_stored(s)) {
		t = begin(s);
		prefetch(s);
	}
	/* a run that the next start of gpt2d would find queued is not trained */
	if (t != NULL && attempt_ready(t->attempt, t->sent) &&
		(t->sent > 0 || lifecycle_stored(t->run)))
		send_segment(s, t);
}

/* ---- the engines that are needed ---- */

/* A run that may start is queued, or one is in progress. */
static bool needs_engines(const struct scheduler *s)
{
	return scheduler_busy(s) ||
		(hold_none(s->options.holds) && queue_head(s->options.queue) != NULL);
}

static void on_idle(evutil_socket_t fd, short what, void *arg)
{
	struct scheduler *s = arg;

	s->idle_at_ns = clock_utc_ns();
	log_write(LOG_INFO, "engines: idle for %lld s, released until a run needs them",
		(long long)s->idle_s);
	engine_pool_release(s->options.pool);
	scheduler_wake(s);
}

static void watch_idle(struct scheduler *s)
{
	struct timeval after = {.tv_sec = (time_t)s->options.settings->idle_release_s};

	if (after.tv_sec == 0 || needs_engines(s) || !engine_pool_ready(s->options.pool)) {
		evtimer_del(s->idle);
	} else if (!evtimer_pending(s->idle, NULL) || s->idle_s != after.tv_sec) {
		s->idle_s = after.tv_sec;
		evtimer_add(s->idle, &after);
	}
}

static void take_or_release_engines(struct scheduler *s)
{
	const struct holds *holds = s->options.holds;

	if (hold_is_set(holds, HOLD_STOPPING))
		return;
	if (!hold_is_set(holds, HOLD_RELEASED) && needs_engines(s))
		engine_pool_warm(s->options.pool);
	/* not before the hold is stored: if that is refused, the engines would have to restart */
	else if (hold_is_stored(holds, HOLD_RELEASED) && !scheduler_busy(s))
		engine_pool_release(s->options.pool);
	watch_idle(s);
}

json_t *scheduler_idle_json(const struct scheduler *s)
{
	if (hold_is_set(s->options.holds, HOLD_RELEASED) || !engine_pool_away(s->options.pool))
		return json_null();
	return json_pack(
		"{so sI}", "since", clock_json(s->idle_at_ns), "after_s", (json_int_t)s->idle_s);
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
	struct scheduler *s = arg;

	send_next(s);
	take_or_release_engines(s);
	s->options.changed(s->options.arg);
}

void scheduler_wake(struct scheduler *s)
{
	event_active(s->wake, 0, 0);
}

/* ---- deadlines ---- */

/* Runs that took longer than their spec allows. One that is trained may finish, and the time in
 * which a start waits for the store does not count. */
static void end_late(struct scheduler *s, int64_t now)
{
	struct task *t, *next;

	for (t = TAILQ_FIRST(&s->begun); t != NULL; t = next) {
		next = TAILQ_NEXT(t, link);
		if (t->run->timeout_s > 0 && t->run->state != RUN_FINISHING &&
			(t->sent > 0 || t->sent_again) &&
			now - t->started_ns >= t->run->timeout_s * CLOCK_S_NS)
			stop_task(t, RUN_FAILED, "timeout: not done within %lld s",
				(long long)t->run->timeout_s);
	}
}

/* Whether the engines have had all the time they get; reason says for what. */
static bool engines_hang(const struct scheduler *s, char *reason, size_t reason_bytes)
{
	const struct settings *settings = s->options.settings;
	int64_t patience_ns = settings->progress_timeout_s * CLOCK_S_NS;
	const struct task *t;

	if (s->slot != NULL && s->stop_ns != 0 &&
		clock_watch_since(&s->awake, s->stop_ns) >
			settings->cancel_timeout_s * CLOCK_S_NS) {
		snprintf(reason, reason_bytes, "engine_hung: did not stop within %lld s",
			(long long)settings->cancel_timeout_s);
		return true;
	}
	TAILQ_FOREACH(t, &s->begun, link) {
		if (t->done == t->trained ||
			clock_watch_since(&s->awake, t->written_ns) <= patience_ns)
			continue;
		snprintf(reason, reason_bytes,
			"disk_hung: segment %lld is trained, nothing of it was written for %lld s"
			" below %.250s",
			(long long)t->done + 1, (long long)settings->progress_timeout_s,
			attempt_dir(t->attempt));
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

	engine_pool_hear(s->options.pool);
	now = clock_mono_ns();
	clock_watch_look(&s->awake, now);
	end_late(s, now);
	if (engines_hang(s, reason, sizeof(reason)))
		engine_pool_restart(s->options.pool, reason);
}

/* ---- messages of the engines ---- */

#define STEP_NS_MAX 1e18 /* 31 years; fits an int64_t */

/* What a message is about. */
struct about {
	struct task *t; /* NULL: not in progress any more */
	int64_t run, segment;
	bool in_slot;
	int rank;
};

static struct about about_of(const struct scheduler *s, int rank, json_t *params)
{
	struct about w = {.rank = rank};
	struct task *t;

	w.run = json_integer_value(json_object_get(params, "run"));
	w.segment = json_integer_value(json_object_get(params, "segment")) - 1;
	TAILQ_FOREACH(t, &s->begun, link)
		if (t->run->id == w.run && w.segment >= 0 && w.segment < t->sent)
			w.t = t;
	w.in_slot = w.t != NULL && w.t == s->slot && w.segment == s->slot_segment;
	return w;
}

static void on_started(struct scheduler *s, const struct about *w, json_t *params)
{
	if (!w->in_slot)
		return;
	task_remember_data(w->t, json_object_get(params, "data"));
	if (w->t->run->state != RUN_STARTING)
		return;
	/* engines that work restart without delay, whatever this run does to them */
	engine_pool_worked(s->options.pool);
	lifecycle_move(s->options.lifecycle, w->t->run, RUN_RUNNING, NULL);
}

static void on_step(struct scheduler *s, const struct about *w, json_t *params)
{
	int64_t step = json_integer_value(json_object_get(params, "step"));
	int64_t steps = json_integer_value(json_object_get(params, "steps"));
	double step_ns = json_number_value(json_object_get(params, "step_time_ns"));

	if (!w->in_slot)
		return;
	if (step < 1 || steps < step || !(step_ns >= 0 && step_ns <= STEP_NS_MAX)) {
		log_write(LOG_WARNING, "rank %d: %s: invalid numbers", w->rank, SEGMENT_STEP);
		return;
	}
	on_started(s, w, params);
	task_report_step(w->t, w->segment, step, steps, step_ns, params);
}

static void on_artifact(struct scheduler *s, const struct about *w, json_t *params)
{
	json_t *path = json_object_get(params, "path"), *bytes = json_object_get(params, "bytes");

	if (w->t == NULL || !json_is_string(path) || !json_is_integer(bytes))
		return;
	task_remember_artifact(w->t, w->segment, path, bytes);
}

static void on_trained(struct scheduler *s, const struct about *w, json_t *params)
{
	if (!w->in_slot)
		return;
	on_started(s, w, params);
	free_slot(s);
	pace_trained(&w->t->pace, clock_mono_ns());
	if (w->t->done == w->t->trained)
		w->t->written_ns = clock_mono_ns();
	w->t->trained++;
	task_record(w->t, w->segment, "trained", NULL, NULL);
	if (w->t->trained == w->t->run->segments && !w->t->failed) {
		/* too late for a stop: the work is done */
		w->t->stopping = false;
		lifecycle_move(s->options.lifecycle, w->t->run, RUN_FINISHING, NULL);
	}
	if (w->t->stopping) {
		end_task(w->t, w->t->stop_state, w->t->stop_reason);
		return;
	}
	task_report(w->t, w->segment, "trained", NULL);
	scheduler_wake(s);
}

static void on_done(struct scheduler *s, const struct about *w, json_t *params)
{
	json_t *summary = json_object_get(params, "summary");
	struct record_segment r = {w->run, w->segment, "done", NULL, NULL, NULL, NULL};
	struct about now = *w;
	char *text;

	if (w->in_slot) {
		on_trained(s, w, params);
		now = about_of(s, w->rank, params); /* that may have ended the run */
	}
	if (now.t != NULL) {
		task_record_end(now.t, now.segment, "done", NULL, summary, NULL);
		segment_done(now.t, now.segment, summary);
		return;
	}
	text = summary ? json_dumps(summary, JSON_COMPACT) : NULL;
	r.summary = text; /* its run has ended, but the segment is complete on disk */
	record_segment(s->options.store, &r, NULL, NULL);
	free(text);
}

static void segment_failed(
	struct scheduler *s, const struct about *w, const char *reason, bool poisoned)
{
	struct task *t = w->t;

	t->failed = true;
	t->reports[w->segment] = ATTEMPT_FAILED;
	attempt_unmark(t->attempt, w->segment);
	task_record_end(t, w->segment, "failed", reason, NULL, NULL);
	if (attempt_spec(t->attempt)->has_arms)
		run_log_write(s->options.run_log, t->run, -1, LOG_ERROR, "segment %lld (%s): %s",
			(long long)w->segment + 1, attempt_arm(t->attempt, w->segment), reason);
	if (poisoned) { /* ends the run as well */
		engine_pool_restart(s->options.pool, reason);
		return;
	}
	if (w->in_slot) /* else these are an earlier segment's artifacts */
		free_slot(s);
	fail_task(t, reason);
}

static void on_failed(struct scheduler *s, const struct about *w, json_t *params)
{
	static const struct timeval grace = {PEER_LOST_MS / 1000, PEER_LOST_MS % 1000 * 1000};
	const char *code = json_string_value(json_object_get(params, "reason"));
	const char *message = json_string_value(json_object_get(params, "message"));
	bool poisoned = json_is_true(json_object_get(params, "poisoned"));
	char reason[RUN_REASON_BYTES];

	if (w->t == NULL)
		return;
	snprintf(reason, sizeof(reason), "%s: rank %d: %s", code ? code : "engine", w->rank,
		message ? message : "no message");
	text_clean(reason);
	if (code == NULL || strcmp(code, "peer_lost") != 0 || !w->in_slot) {
		segment_failed(s, w, reason, poisoned);
		return;
	}
	/* the peer's own failure is about to be known, and explains more */
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
	engine_pool_restart(s->options.pool, reason);
}

static void on_cancelled(struct scheduler *s, const struct about *w, json_t *params)
{
	struct task *t = w->t;

	if (!w->in_slot || !t->stopping)
		return;
	t->reports[w->segment] = ATTEMPT_CANCELLED;
	task_record_end(t, w->segment, "cancelled", t->stop_reason, NULL, NULL);
	end_task(t, t->stop_state, t->stop_reason);
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
		run_log_take(s->options.run_log, scheduler_running(s), rank, params);
		return;
	}
	for (size_t i = 0; i < sizeof(handlers) / sizeof(handlers[0]); i++) {
		if (strcmp(method, handlers[i].method) != 0)
			continue;
		w = about_of(s, rank, params);
		if (w.in_slot) {
			s->heard_ns = clock_mono_ns();
			s->slot_begun = true;
		} else if (w.t != NULL) {
			w.t->written_ns = clock_mono_ns();
		}
		if (rank == 0 || !handlers[i].rank0_only)
			handlers[i].handle(s, &w, params);
		return;
	}
	log_write(LOG_WARNING, "rank %d: %.64s: unknown message", rank, method);
}

/* ---- from outside ---- */

struct scheduler *scheduler_create(const struct scheduler_options *options)
{
	static const struct timeval second = {1, 0};
	struct scheduler *s = memory_zeroed(1, sizeof(*s));

	s->options = *options;
	TAILQ_INIT(&s->begun);
	TAILQ_INIT(&s->left);
	s->wake = event_new(options->base, -1, 0, on_wake, s);
	s->watch = event_new(options->base, -1, EV_PERSIST, on_watch, s);
	s->idle = evtimer_new(options->base, on_idle, s);
	s->peer_timer = evtimer_new(options->base, on_peer_timer, s);
	clock_watch_look(&s->awake, clock_mono_ns());
	event_add(s->watch, &second);
	return s;
}

void scheduler_destroy(struct scheduler *s)
{
	struct task *t;

	if (s == NULL)
		return;
	TAILQ_CONCAT(&s->begun, &s->left, link);
	while ((t = TAILQ_FIRST(&s->begun)) != NULL) {
		TAILQ_REMOVE(&s->begun, t, link);
		attempt_destroy(t->attempt);
		task_free(t);
	}
	if (s->next)
		attempt_destroy(s->next);
	event_free(s->wake);
	event_free(s->watch);
	event_free(s->idle);
	event_free(s->peer_timer);
	free(s);
}

const char scheduler_stopped[] = "daemon_stop: gpt2d was stopped";

static const char asked_for[] = "cancelled: asked for";

int scheduler_cancel(struct scheduler *s, struct run *run)
{
	struct task *t = task_of(s, run);

	if (t != NULL && t->stopping && t->stop_state == RUN_INTERRUPTED &&
		run->state != RUN_FINISHING) {
		/* the run yields, and might be queued again */
		task_set_stop(t, RUN_CANCELLED, asked_for);
		return 0;
	}
	if (run_state_ended(run->state) || run->state == RUN_FINISHING || (t && t->stopping))
		return -EALREADY;
	if (t != NULL) {
		stop_task(t, RUN_CANCELLED, "%s", asked_for);
		return 0;
	}
	if (s->next != NULL && attempt_run(s->next) == run)
		discard_next(s);
	end_run(s, run, RUN_CANCELLED, asked_for);
	return 0;
}

void scheduler_interrupt(struct scheduler *s, bool all)
{
	struct task *t, *next;

	discard_next(s);
	for (t = TAILQ_FIRST(&s->begun); t != NULL; t = next) {
		next = TAILQ_NEXT(t, link);
		if (t->done == t->run->segments || (t->run->state == RUN_FINISHING && !all))
			continue; /* gpt2d itself writes the marker of an experiment */
		leave(t, RUN_INTERRUPTED, -1, scheduler_stopped);
	}
}

void scheduler_yield(struct scheduler *s, const char *reason)
{
	struct task *t, *next;

	for (t = TAILQ_FIRST(&s->begun); t != NULL; t = next) {
		next = TAILQ_NEXT(t, link);
		if (t->run->state != RUN_FINISHING)
			stop_task(t, RUN_INTERRUPTED, "%s", reason);
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

static const struct task *running(const struct scheduler *s)
{
	if (s->slot != NULL)
		return s->slot;
	return TAILQ_LAST(scheduler_in_hand(s) ? &s->begun : &s->left, task_head);
}

struct run *scheduler_running(const struct scheduler *s)
{
	const struct task *t = running(s);

	return t ? t->run : NULL;
}

const char *scheduler_stop_reason(const struct scheduler *s)
{
	const struct task *t = running(s);

	return t != NULL && t->stopping ? t->stop_reason : NULL;
}
