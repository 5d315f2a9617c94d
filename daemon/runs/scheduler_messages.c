/* Handles the messages of the engines for the scheduler. */
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/log.h"
#include "daemon/engines/engine_pool.h"
#include "daemon/runs/attempt.h"
#include "daemon/runs/experiment.h"
#include "daemon/runs/hold.h"
#include "daemon/runs/lifecycle.h"
#include "daemon/runs/run_log.h"
#include "daemon/runs/scheduler.h"
#include "daemon/runs/scheduler_private.h"
#include "proto/protocol.h"
#include "proto/text.h"

enum { PEER_LOST_MS = 2000 }; /* from "peer_lost" of one rank to the report of the other */

#define STEP_NS_MAX 1e18 /* 31 years; fits an int64_t */

/* The task and segment of a message. */
struct about {
	struct task *t; /* NULL: not in progress any more, or only its results are written */
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
		if (t->run->id == w.run && w.segment >= 0 && w.segment < t->sent && !t->finishing)
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
	/* engines that work restart without delay, even if this run ends them */
	engine_pool_worked(s->options->pool);
	lifecycle_move(s->options->lifecycle, w->t->run, RUN_RUNNING, NULL);
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
	scheduler_free_slot(s);
	pace_trained(&w->t->pace, clock_mono_ns());
	if (w->t->done == w->t->trained)
		w->t->written_ns = clock_mono_ns();
	w->t->trained++;
	task_record(w->t, w->segment, "trained", NULL, NULL);
	if (!w->t->experiment && !w->t->failed) {
		/* too late for a stop: the work is done */
		w->t->stopping = false;
		lifecycle_move(s->options->lifecycle, w->t->run, RUN_FINISHING, NULL);
	}
	if (w->t->stopping && !(w->t->experiment && w->t->stop_state == RUN_INTERRUPTED)) {
		scheduler_end_task(w->t, w->t->stop_state, w->t->stop_reason);
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
		scheduler_segment_done(now.t, now.segment, summary);
		return;
	}
	text = summary ? json_dumps(summary, JSON_COMPACT) : NULL;
	r.summary = text; /* its run has ended, but the segment is complete on disk */
	record_segment(s->options->store, &r, NULL, NULL);
	free(text);
}

/* An experiment continues without the arm whose training fails. A full disk fails any arm. */
static bool fails_arm_only(const struct about *w, const char *reason)
{
	const struct task *t = w->t;

	return t->experiment != NULL && w->in_slot && !t->stopping && !hold_is_room_reason(reason);
}

static void arm_failed(struct scheduler *s, const struct about *w, const char *reason)
{
	struct task *t = w->t;

	scheduler_free_slot(s);
	t->trained++;
	t->done++;
	task_record_end(t, w->segment, "failed",
		experiment_fail_arm(t->experiment, w->segment, reason), NULL, NULL);
	scheduler_wake(s);
}

static void segment_failed(
	struct scheduler *s, const struct about *w, const char *reason, bool poisoned)
{
	struct task *t = w->t;

	if (t->reports[w->segment] == ATTEMPT_FAILED) { /* another rank has reported it */
		if (poisoned)
			engine_pool_restart(s->options->pool, reason);
		return;
	}
	t->reports[w->segment] = ATTEMPT_FAILED;
	attempt_unmark(t->attempt, w->segment);
	if (attempt_spec(t->attempt)->has_arms)
		run_log_write(s->options->run_log, t->run, -1, LOG_ERROR, "segment %lld (%s): %s",
			(long long)w->segment + 1, attempt_arm(t->attempt, w->segment), reason);
	if (!poisoned && fails_arm_only(w, reason)) {
		arm_failed(s, w, reason);
		return;
	}
	t->failed = true;
	if (t->experiment != NULL && !w->in_slot)
		t->done++; /* it was trained, and cannot be written */
	task_record_end(t, w->segment, "failed", reason, NULL, NULL);
	if (poisoned) { /* also ends the run */
		engine_pool_restart(s->options->pool, reason);
		return;
	}
	if (w->in_slot) /* else these are an earlier segment's artifacts */
		scheduler_free_slot(s);
	scheduler_fail_task(t, reason);
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
	/* the peer's own failure will be known soon, and explains more */
	if (s->peer_lost[0] != '\0')
		return;
	snprintf(s->peer_lost, sizeof(s->peer_lost), "%s", reason);
	evtimer_add(s->peer_timer, &grace);
}

static void on_cancelled(struct scheduler *s, const struct about *w, json_t *params)
{
	struct task *t = w->t;

	if (!w->in_slot || !t->stopping)
		return;
	t->reports[w->segment] = ATTEMPT_CANCELLED;
	task_record_end(t, w->segment, "cancelled", t->stop_reason, NULL, NULL);
	scheduler_end_task(t, t->stop_state, t->stop_reason);
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
		run_log_take(s->options->run_log, scheduler_running(s), rank, params);
		return;
	}
	for (size_t i = 0; i < sizeof(handlers) / sizeof(handlers[0]); i++) {
		if (strcmp(method, handlers[i].method) != 0)
			continue;
		if (s->slot != NULL && s->slot->experiment != NULL)
			experiment_check_standstill(s->slot->experiment);
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
