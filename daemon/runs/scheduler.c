#include "daemon/runs/scheduler.h"

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
#include "daemon/runs/experiment.h"
#include "daemon/runs/generation.h"
#include "daemon/runs/hold.h"
#include "daemon/runs/lifecycle.h"
#include "daemon/runs/queue.h"
#include "daemon/runs/run_log.h"
#include "daemon/runs/scheduler_private.h"
#include "daemon/store/store.h"
#include "proto/artifact.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"

/* ---- ends ---- */

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
	lifecycle_move(s->options->lifecycle, run, state, reason);
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
		scheduler_free_slot(s);
	if (t->phase != TASK_TRAINS)
		TAILQ_REMOVE(&s->left, t, link);
	else
		TAILQ_REMOVE(&s->begun, t, link);
	attempt_end(t->attempt);
	task_free(t);
	end_run(s, run, state, why[0] ? why : NULL);
	if (state == RUN_INTERRUPTED && requeue)
		lifecycle_move(s->options->lifecycle, run, RUN_QUEUED,
			"room: until its artifacts can be written");
	else if (state == RUN_INTERRUPTED && run->restart)
		lifecycle_move(
			s->options->lifecycle, run, RUN_QUEUED, "restart: asked for in its spec");
}

/* Writes the files of an experiment, in which its run is as it ends. */
static void write_results(struct task *t, enum run_state state, const char *reason,
	void (*done)(void *arg, int rc, const char *hashes))
{
	json_t *pool = engine_pool_json(t->scheduler->options->pool);
	json_t *run = run_json(t->run, t->scheduler->options->state_dir);

	json_object_set_new(run, "state", json_string(run_state_name(state)));
	json_object_set_new(run, "reason", reason ? json_string(reason) : json_null());
	json_object_set_new(run, "ended_at", clock_json(clock_utc_ns()));
	experiment_write(t->experiment, attempt_dir(t->attempt), run,
		json_incref(json_object_get(pool, "ranks")), done, t);
	json_decref(pool);
}

/* The blocks of an experiment that ends early are worth a file, but the run ends without it too. */
static void on_partial_results(void *arg, int rc, const char *hashes)
{
	struct task *t = arg;

	if (rc < 0)
		log_write(LOG_ERROR, "run %lld: %s/" ARTIFACT_EXPERIMENT ": cannot be written: %s",
			(long long)t->run->id, attempt_dir(t->attempt), strerror(-rc));
	end_task(t, t->stop_state, t->stop_reason);
}

void scheduler_end_task(struct task *t, enum run_state state, const char *reason)
{
	const bool requeued = state == RUN_INTERRUPTED && (t->requeue || t->run->restart);
	char why[RUN_REASON_BYTES];

	if (t->experiment == NULL || t->finishing || requeued) {
		end_task(t, state, reason);
		return;
	}
	snprintf(why, sizeof(why), "%s", reason);
	task_set_stop(t, state, why);
	t->finishing = true;
	if (t->scheduler->slot == t)
		scheduler_free_slot(t->scheduler);
	write_results(t, state, why, on_partial_results);
	scheduler_wake(t->scheduler);
}

/* The engines train nothing of it. What is trained is written first: it may end a block. */
static void end_stopped(struct task *t)
{
	if (t->stop_state != RUN_INTERRUPTED || !t->experiment || t->done == t->trained)
		scheduler_end_task(t, t->stop_state, t->stop_reason);
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
	t->replaced = false;
	if (t->phase != TASK_TRAINS)
		return; /* it ends when its directory is checked */
	if (s->slot != t) {
		end_stopped(t);
		return;
	}
	params = json_pack("{sI sI ss ss}", "run", (json_int_t)t->run->id, "segment",
		(json_int_t)s->slot_segment + 1, "state", run_state_name(state), "reason", reason);
	engine_pool_send(s->options->pool, attempt_segment_gpus(t->attempt, s->slot_segment),
		SEGMENT_CANCEL, params);
	json_decref(params);
	s->stop_ns = clock_mono_ns();
}

void scheduler_fail_task(struct task *t, const char *reason)
{
	struct scheduler *s = t->scheduler;

	if (t->stopping && s->slot != t) {
		end_stopped(t);
	} else if (hold_is_room_reason(reason)) {
		hold_place_room(s->options->holds, t->run, reason);
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
		scheduler_end_task(t, RUN_DONE, NULL);
		return;
	}
	snprintf(reason, sizeof(reason), "%s: completion marker: %s", artifact_failure_code(rc),
		strerror(-rc));
	scheduler_fail_task(t, reason);
}

static void complete(struct task *t, int64_t segments, const char *hashes)
{
	struct attempt_completion c = {
		.started_ns = t->started_ns, .segments = segments, .tokens = t->tokens};

	snprintf(c.hashes, sizeof(c.hashes), "%s", hashes);
	attempt_complete(t->attempt, &c, on_complete, t);
}

void scheduler_segment_done(struct task *t, int64_t segment, json_t *summary)
{
	t->reports[segment] = ATTEMPT_DONE;
	t->done++;
	t->tokens += json_number_value(json_object_get(summary, "tokens_total"));
	if (t->experiment == NULL)
		complete(t, 1, "");
	else if (t->stopping && t->phase == TASK_TRAINS && t->scheduler->slot != t &&
		t->done == t->trained)
		scheduler_end_task(t, t->stop_state, t->stop_reason);
}

/* ---- runs whose engines end before the run is done ---- */

/* The engines completed the run, even if gpt2d wanted to end it meanwhile. */
static void move_to_finishing(struct task *t)
{
	t->stopping = false;
	while (t->run->state < RUN_FINISHING)
		lifecycle_move(t->scheduler->options->lifecycle, t->run, t->run->state + 1, NULL);
}

/* ---- experiments ---- */

static void on_results(void *arg, int rc, const char *hashes)
{
	struct task *t = arg;
	const char *failure = experiment_failure(t->experiment);
	char reason[128];

	if (rc < 0) {
		snprintf(reason, sizeof(reason), "%s: results of the experiment: %s",
			artifact_failure_code(rc), strerror(-rc));
		t->stopping = false;
		scheduler_fail_task(t, reason);
	} else if (failure != NULL) {
		scheduler_end_task(t, RUN_FAILED, failure);
	} else {
		complete(t, experiment_done(t->experiment), hashes);
	}
}

/* No block is left to run: writes the files of the experiment, its marker last. */
static void finish_experiment(struct task *t)
{
	const char *failure = experiment_failure(t->experiment);

	t->stopping = false; /* too late: the work is done */
	t->finishing = true;
	if (failure == NULL)
		move_to_finishing(t);
	write_results(t, failure ? RUN_FAILED : RUN_DONE, failure, on_results);
}

/* A block was compared, or more segments are stored. */
static void on_experiment(void *arg)
{
	struct task *t = arg;
	struct scheduler *s = t->scheduler;

	if (t->finishing)
		return;
	if (experiment_next(t->experiment) == EXPERIMENT_OVER)
		finish_experiment(t);
	else if (t->phase == TASK_INSPECTED && !experiment_deciding(t->experiment))
		scheduler_end_task(t, t->stop_state, t->stop_reason);
	scheduler_wake(s);
}

/*
 * The next engines continue with the next block. Segments that are not written by now end with
 * their block, which is void.
 */
static void continue_experiment(struct task *t)
{
	struct scheduler *s = t->scheduler;
	const char *failed, *reason;

	t->phase = TASK_TRAINS;
	t->stopping = false;
	TAILQ_REMOVE(&s->left, t, link);
	TAILQ_INSERT_TAIL(&s->begun, t, link);
	experiment_lose(t->experiment, t->cut, t->cut_reason);
	for (int64_t i = t->first; i < t->sent; i++) {
		if (!experiment_is_open(t->experiment, i))
			continue;
		failed = experiment_arm_failed(t->experiment, i);
		reason = i == t->cut && failed ? failed : t->cut_reason;
		t->reports[i] = ATTEMPT_FAILED;
		task_record_end(t, i, "failed", reason, NULL, NULL);
	}
	t->trained = t->done = t->sent;
	scheduler_wake(s);
}

static void on_inspected(void *arg, int rc, json_t *found)
{
	struct task *t = arg;
	const bool all =
		!t->experiment && t->done + (int64_t)json_array_size(found) == t->run->segments;
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
		scheduler_segment_done(t, segment, summary); /* the last one may free t */
		json_decref(summary);
	}
	json_decref(found);
	if (all || t->finishing)
		return; /* it ends when its marker is written */
	if (t->replaced) {
		continue_experiment(t);
		return;
	}
	t->phase = TASK_INSPECTED;
	if (t->experiment != NULL && experiment_deciding(t->experiment))
		return; /* it may have ended */
	if (t->cut >= 0 && t->reports[t->cut] == ATTEMPT_OPEN)
		task_record(t, t->cut, "failed", t->cut_reason, NULL);
	scheduler_end_task(t, t->stop_state, t->stop_reason);
}

static void inspect(struct task *t)
{
	if (t->phase != TASK_LEFT)
		return;
	t->phase = TASK_INSPECTING;
	attempt_inspect(t->attempt, t->sent, t->reports, on_inspected, t);
}

/*
 * The engines of a run end before the run is done. Once all processes have ended, the run's
 * directory decides: the run is done if that is complete; else it ends in state, or as an earlier
 * stop requires. cut is the segment in training that has failed for reason; -1: none.
 */
static void leave(struct task *t, enum run_state state, int64_t cut, const char *reason)
{
	struct scheduler *s = t->scheduler;

	t->phase = TASK_LEFT;
	t->cut = cut;
	snprintf(t->cut_reason, sizeof(t->cut_reason), "%s", reason);
	t->replaced = t->experiment && state == RUN_FAILED && !t->stopping && !t->failed;
	if (!t->stopping && !t->replaced)
		task_set_stop(t, state, reason);
	if (s->slot == t)
		scheduler_free_slot(s);
	TAILQ_REMOVE(&s->begun, t, link);
	TAILQ_INSERT_TAIL(&s->left, t, link);
	if (engine_pool_gone(s->options->pool))
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
 * Engines may end just when they get a segment, which is not a fault of the run: the next ones get
 * the segment, once, if the engines had not started it and nothing else of the run is in progress.
 */
static bool send_again(struct task *t, const char *reason)
{
	struct scheduler *s = t->scheduler;
	bool untouched = s->slot == t && !s->slot_begun && t->done == t->trained;

	/* within a started block the engines must stay the same */
	if (t->experiment && !experiment_at_block(t->experiment, s->slot_segment))
		return false;
	if (!untouched || t->stopping || t->sent_again ||
		strncmp(reason, "engine_lost: ", strlen("engine_lost: ")) != 0)
		return false;
	log_write(LOG_WARNING, "run %lld: segment %lld had not started: the next engines train it",
		(long long)t->run->id, (long long)s->slot_segment + 1);
	t->sent_again = true;
	t->sent--;
	task_report(t, s->slot_segment, "waiting", reason);
	if (t->experiment)
		experiment_report(t->experiment, s->slot_segment, "waiting", NULL, NULL, NULL);
	scheduler_free_slot(s);
	return true;
}

void scheduler_lost(struct scheduler *s, const char *reason)
{
	struct task *t, *next;
	bool in_hand;

	for (t = TAILQ_FIRST(&s->begun); t != NULL; t = next) {
		next = TAILQ_NEXT(t, link);
		in_hand = !t->finishing && (t->done < t->sent || t->experiment);
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

static void on_attempt(void *arg, struct attempt *a, const char *failure)
{
	struct scheduler *s = arg;
	struct run *run = attempt_run(a);

	if (failure == NULL) {
		scheduler_wake(s);
	} else {
		discard_next(s);
		if (hold_is_room_reason(failure))
			hold_place_room(s->options->holds, run, failure);
		else
			end_run(s, run, RUN_FAILED, failure);
	}
}

/* Prepares the head of the queue. */
static void prefetch(struct scheduler *s)
{
	const struct attempt_options options = {
		.store = s->options->store,
		.settings = s->options->settings,
		.state_dir = s->options->state_dir,
		.changed = on_attempt,
		.arg = s,
	};
	struct run *head = queue_head(s->options->queue);

	if (s->next != NULL && attempt_run(s->next) != head) /* a run with a higher priority came */
		discard_next(s);
	/* if the disk refuses writes, this run and all later ones would fail */
	if (hold_is_set(s->options->holds, HOLD_STOPPING) ||
		hold_is_set(s->options->holds, HOLD_ROOM) || store_failing(s->options->store))
		return;
	/* not while its end and its segments are being written */
	while (s->next == NULL && (head = queue_head(s->options->queue)) != NULL &&
		lifecycle_stored(head))
		if (attempt_create(&options, head, &s->next) < 0)
			end_run(s, head, RUN_FAILED, "io: its directory's path is too long");
}

static struct task *begin(struct scheduler *s)
{
	struct task *t = task_create(s, s->options->store, s->options->follow, s->next);

	s->next = NULL;
	TAILQ_INSERT_TAIL(&s->begun, t, link);
	lifecycle_move(s->options->lifecycle, t->run, RUN_STARTING, NULL);
	if (t->experiment != NULL)
		experiment_begin(t->experiment,
			&(struct experiment_options){
				.base = s->options->base,
				.store = s->options->store,
				.worker = s->options->worker,
				.follow = s->options->follow,
				.run_log = s->options->run_log,
				.changed = on_experiment,
				.arg = t,
			});
	return t;
}

static void send_segment(struct scheduler *s, struct task *t)
{
	char dir[PATH_MAX], why[300];
	json_t *params;

	/* the settings may have changed since the run was submitted */
	if (attempt_segment_reads(t->attempt, t->sent) &&
		!role_may_read(s->options->settings, t->run->uid)) {
		role_say_unreadable(t->run->uid, why, sizeof(why));
		stop_task(t, RUN_FAILED, "spec_refused: data.train: %s", why);
		return;
	}
	if (attempt_segment_dir(t->attempt, t->sent, dir) < 0) {
		stop_task(t, RUN_FAILED, "artifacts: its directory's path is too long");
		return;
	}
	params = attempt_segment_start(t->attempt, t->sent, t->data);
	if (t->sent == t->first && !t->sent_again) { /* it may have waited for the store */
		t->started_ns = clock_mono_ns();
		pace_begin(&t->pace, t->started_ns);
	}
	s->slot = t;
	s->slot_segment = t->sent++;
	s->slot_begun = false;
	s->stop_ns = 0;
	s->heard_ns = clock_mono_ns();
	engine_pool_send(s->options->pool, attempt_segment_gpus(t->attempt, s->slot_segment),
		SEGMENT_START, params);
	json_decref(params);
	task_record(t, s->slot_segment, "training", NULL, dir);
	task_report(t, s->slot_segment, "training", NULL);
}

/* The started run that has, or may have, segments left to send; NULL if none. */
static struct task *unfinished(const struct scheduler *s)
{
	struct task *t;

	TAILQ_FOREACH(t, &s->left, link)
		if (t->replaced)
			return t;
	t = TAILQ_LAST(&s->begun, task_head);
	if (t != NULL && t->experiment != NULL)
		return t->finishing ? NULL : t;
	return t != NULL && t->sent < t->run->segments ? t : NULL;
}

/* Whether its next segment can be sent. Segments that it skips before are not written. */
static bool find_next(struct task *t)
{
	int64_t next = t->sent;

	if (t->phase != TASK_TRAINS || t->stopping)
		return false;
	if (t->experiment != NULL)
		next = experiment_next(t->experiment);
	for (; t->sent < next; t->sent++) {
		t->reports[t->sent] = ATTEMPT_CANCELLED;
		t->trained++;
		t->done++;
	}
	return next >= 0;
}

/* Whether the end of the previous run, and all earlier writes, are durable. */
static bool end_stored(const struct scheduler *s)
{
	const struct run *run = queue_find(s->options->queue, s->ended);

	return run == NULL || lifecycle_stored(run);
}

static int64_t running_id(const struct scheduler *s)
{
	const struct run *run = scheduler_running(s);

	return run ? run->id : 0;
}

static void send_next(struct scheduler *s)
{
	struct task *t = unfinished(s);

	prefetch(s);
	if (generation_start(s->options->generation, running_id(s)))
		return;
	if (s->slot != NULL || !engine_pool_ready(s->options->pool))
		return;
	if (t == NULL && store_failing(s->options->store))
		return;
	if (t == NULL && s->next != NULL && hold_none(s->options->holds) &&
		attempt_ready(s->next) && end_stored(s)) {
		t = begin(s);
		prefetch(s);
	}
	/* the next start of gpt2d must not find a trained run queued */
	if (t != NULL && find_next(t) && (t->sent > t->first || lifecycle_stored(t->run)))
		send_segment(s, t);
}

/* ---- the engines that are needed ---- */

/* Whether a run that may start is queued, or one is in progress. */
static bool needs_engines(const struct scheduler *s)
{
	return scheduler_busy(s) || generation_waits(s->options->generation) ||
		generation_runs(s->options->generation) ||
		(hold_none(s->options->holds) && queue_head(s->options->queue) != NULL);
}

static void on_idle(evutil_socket_t fd, short what, void *arg)
{
	struct scheduler *s = arg;

	s->idle_at_ns = clock_utc_ns();
	log_write(LOG_INFO, "engines: idle for %lld s, released until a run needs them",
		(long long)s->idle_s);
	engine_pool_release(s->options->pool);
	scheduler_wake(s);
}

static void watch_idle(struct scheduler *s)
{
	struct timeval after = {.tv_sec = (time_t)s->options->settings->idle_release_s};

	if (after.tv_sec == 0 || needs_engines(s) || !engine_pool_ready(s->options->pool)) {
		evtimer_del(s->idle);
	} else if (!evtimer_pending(s->idle, NULL) || s->idle_s != after.tv_sec) {
		s->idle_s = after.tv_sec;
		evtimer_add(s->idle, &after);
	}
}

static void take_or_release_engines(struct scheduler *s)
{
	const struct holds *holds = s->options->holds;

	if (hold_is_set(holds, HOLD_STOPPING))
		return;
	if (!hold_is_set(holds, HOLD_RELEASED) && needs_engines(s))
		engine_pool_warm(s->options->pool);
	/* not before the hold is stored: if that is refused, the engines would have to restart */
	else if (hold_is_stored(holds, HOLD_RELEASED) && !scheduler_busy(s) &&
		!generation_runs(s->options->generation))
		engine_pool_release(s->options->pool);
	watch_idle(s);
}

json_t *scheduler_idle_json(const struct scheduler *s)
{
	const struct holds *holds = s->options->holds;

	if (hold_is_set(holds, HOLD_RELEASED) || hold_is_set(holds, HOLD_MEMBER) ||
		!engine_pool_away(s->options->pool))
		return json_null();
	return json_pack(
		"{so sI}", "since", clock_json(s->idle_at_ns), "after_s", (json_int_t)s->idle_s);
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
	struct scheduler *s = arg;

	send_next(s);
	take_or_release_engines(s);
	s->options->changed(s->options->arg);
}

void scheduler_wake(struct scheduler *s)
{
	event_active(s->wake, 0, 0);
}

/* ---- deadlines ---- */

/*
 * Ends runs that took longer than their spec allows. A trained run may finish, and the time in
 * which a start waits for the store does not count.
 */
static void end_late(struct scheduler *s, int64_t now)
{
	struct task *t, *next;

	for (t = TAILQ_FIRST(&s->begun); t != NULL; t = next) {
		next = TAILQ_NEXT(t, link);
		if (t->run->timeout_s > 0 && t->run->state != RUN_FINISHING &&
			(t->sent > t->first || t->sent_again) &&
			now - t->started_ns >= t->run->timeout_s * CLOCK_S_NS)
			stop_task(t, RUN_FAILED, "timeout: not done within %lld s",
				(long long)t->run->timeout_s);
	}
}

/* Whether the engines have exceeded a time limit; reason says which. */
static bool engines_hang(const struct scheduler *s, char *reason, size_t reason_bytes)
{
	const struct settings *settings = s->options->settings;
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
			"disk_hung: segment %lld is trained, but wrote nothing for %lld s"
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

	engine_pool_hear(s->options->pool);
	now = clock_mono_ns();
	clock_watch_update(&s->awake, now);
	generation_watch(s->options->generation);
	end_late(s, now);
	if (engines_hang(s, reason, sizeof(reason)))
		engine_pool_restart(s->options->pool, reason);
}

/* ---- requests ---- */

static void on_peer_timer(evutil_socket_t fd, short what, void *arg)
{
	struct scheduler *s = arg;
	char reason[RUN_REASON_BYTES];

	snprintf(reason, sizeof(reason), "%s", s->peer_lost);
	engine_pool_restart(s->options->pool, reason);
}

struct scheduler *scheduler_create(const struct scheduler_options *options)
{
	static const struct timeval second = {1, 0};
	struct scheduler *s = memory_zeroed(1, sizeof(*s));

	s->options = memory_zeroed(1, sizeof(*s->options));
	*s->options = *options;
	TAILQ_INIT(&s->begun);
	TAILQ_INIT(&s->left);
	s->wake = event_new(options->base, -1, 0, on_wake, s);
	s->watch = event_new(options->base, -1, EV_PERSIST, on_watch, s);
	s->idle = evtimer_new(options->base, on_idle, s);
	s->peer_timer = evtimer_new(options->base, on_peer_timer, s);
	clock_watch_update(&s->awake, clock_mono_ns());
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
		attempt_end(t->attempt);
		task_free(t);
	}
	if (s->next)
		attempt_end(s->next);
	event_free(s->wake);
	event_free(s->watch);
	event_free(s->idle);
	event_free(s->peer_timer);
	free(s->options);
	free(s);
}

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

/* Whether it is an experiment that would continue with the next engines. */
static void stop_replaced(struct scheduler *s, const char *reason)
{
	struct task *t;

	TAILQ_FOREACH(t, &s->left, link)
		if (t->replaced)
			stop_task(t, RUN_INTERRUPTED, "%s", reason);
}

void scheduler_interrupt(struct scheduler *s, bool all, const char *reason)
{
	struct task *t, *next;

	discard_next(s);
	stop_replaced(s, reason);
	for (t = TAILQ_FIRST(&s->begun); t != NULL; t = next) {
		next = TAILQ_NEXT(t, link);
		if (t->finishing || (t->run->state == RUN_FINISHING && !all))
			continue; /* gpt2d itself writes the marker of an experiment */
		leave(t, RUN_INTERRUPTED, -1, reason);
	}
}

void scheduler_yield(struct scheduler *s, const char *reason)
{
	struct task *t, *next;

	stop_replaced(s, reason);
	for (t = TAILQ_FIRST(&s->begun); t != NULL; t = next) {
		next = TAILQ_NEXT(t, link);
		if (t->run->state != RUN_FINISHING && !t->finishing)
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
