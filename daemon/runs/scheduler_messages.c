#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/clock.h"
#include "daemon/config/log.h"
#include "daemon/control/follow.h"
#include "daemon/engines/engine_pool.h"
#include "daemon/runs/lifecycle.h"
#include "daemon/runs/run_log.h"
#include "daemon/runs/scheduler_private.h"
#include "daemon/store/record.h"
#include "proto/text.h"
#include "proto/json_text.h"
#include "proto/protocol.h"
#include "proto/rpc.h"

enum {
	PEER_LOST_MS = 2000,  /* from "peer_lost" of one rank to the news of the other */
	ARTIFACTS_MAX = 1000, /* of a segment that are remembered */
	SEGMENT_FILES = 2,    /* to train on and to validate with */
};

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
	w.segment = json_integer_value(json_object_get(params, "segment"));
	TAILQ_FOREACH(t, &s->begun, link)
		if (t->run->id == w.run && w.segment >= 0 && w.segment < t->sent)
			w.t = t;
	w.in_slot = w.t != NULL && w.t == s->slot && w.segment == s->slot_segment;
	return w;
}

/* The first segment that opens a file determines its identity; gpt2d sends it to later ones. */
static void remember_data(struct task *t, json_t *data)
{
	if (!json_is_object(data) || json_object_size(data) > SEGMENT_FILES)
		return;
	if (t->data == NULL)
		t->data = json_object();
	json_object_update_missing(t->data, data);
}

static void on_started(struct scheduler *s, const struct about *w, json_t *params)
{
	if (!w->in_slot)
		return;
	remember_data(w->t, json_object_get(params, "data"));
	if (w->t->run->state != RUN_STARTING)
		return;
	/* engines that work restart without delay, whatever this run does to them */
	engine_pool_worked(s->options.pool);
	lifecycle_move(s->options.lifecycle, w->t->run, RUN_RUNNING, NULL);
}

/* Seconds until the run is trained. */
static json_t *eta_s(const struct scheduler *s, const struct about *w, int64_t step, int64_t steps)
{
	int64_t segments_left = w->t->run->segments - w->segment - 1;

	return rpc_real(pace_left_s(&s->pace, step, steps, segments_left));
}

static void on_step(struct scheduler *s, const struct about *w, json_t *params)
{
	const struct design_segment *d;
	int64_t step = json_integer_value(json_object_get(params, "step"));
	int64_t steps = json_integer_value(json_object_get(params, "steps"));
	double step_ns = json_number_value(json_object_get(params, "step_time_ns"));
	json_t *loss = json_object_get(params, "loss");
	json_t *tokens = json_object_get(params, "tokens_per_sec");

	if (!w->in_slot)
		return;
	if (step < 1 || steps < step || !(step_ns >= 0 && step_ns <= STEP_NS_MAX)) {
		log_write(LOG_WARNING, "rank %d: %s: invalid numbers", w->rank, SEGMENT_STEP);
		return;
	}
	on_started(s, w, params);
	d = attempt_segment(w->t->attempt, w->segment);
	s->steps = steps;
	pace_step(&s->pace, w->segment, step, step_ns, clock_mono_ns());
	follow_step(s->options.follow, w->t->run->id,
		json_pack("{sI sI sI ss sI sI so so sI so}", "segment", (json_int_t)w->segment,
			"segments", (json_int_t)w->t->run->segments, "block", (json_int_t)d->block,
			"arm", attempt_arm(w->t->attempt, w->segment), "step", (json_int_t)step,
			"steps", (json_int_t)s->steps, "loss",
			loss ? json_incref(loss) : json_null(), "tokens_per_sec",
			tokens ? json_incref(tokens) : json_null(), "step_time_ns",
			(json_int_t)step_ns, "eta_s", eta_s(s, w, step, s->steps)));
}

/* What the engine wrote, until the segment's end is stored with it. */
static void remember_artifact(struct task *t, int64_t segment, json_t *path, json_t *bytes)
{
	char key[24];
	json_t *rows;

	snprintf(key, sizeof(key), "%lld", (long long)segment);
	if (t->artifacts == NULL)
		t->artifacts = json_object();
	rows = json_object_get(t->artifacts, key);
	if (rows == NULL) {
		rows = json_array();
		json_object_set_new(t->artifacts, key, rows);
	}
	if (json_array_size(rows) < ARTIFACTS_MAX)
		json_array_append_new(rows, json_pack("{sO sO}", "path", path, "bytes", bytes));
}

/* Forgets the remembered artifacts of a segment. Their JSON, which the caller frees, or NULL. */
static char *take_artifacts(struct task *t, int64_t segment)
{
	char key[24], *text = NULL;
	json_t *rows;

	snprintf(key, sizeof(key), "%lld", (long long)segment);
	rows = t ? json_object_get(t->artifacts, key) : NULL;
	if (rows == NULL)
		return NULL;
	text = json_text_write(rows, JSON_COMPACT, NULL);
	json_object_del(t->artifacts, key);
	return text;
}

static void on_artifact(struct scheduler *s, const struct about *w, json_t *params)
{
	json_t *path = json_object_get(params, "path"), *bytes = json_object_get(params, "bytes");

	if (w->t == NULL || !json_is_string(path) || !json_is_integer(bytes))
		return;
	remember_artifact(w->t, w->segment, path, bytes);
	follow_event(s->options.follow, w->t->run->id, EVENT_ARTIFACT,
		json_pack("{sI sO sO}", "segment", (json_int_t)w->segment, "path", path, "bytes",
			bytes));
}

static void on_trained(struct scheduler *s, const struct about *w, json_t *params)
{
	if (!w->in_slot)
		return;
	on_started(s, w, params);
	scheduler_free_slot(s);
	pace_trained(&s->pace, clock_mono_ns());
	if (w->t->done == w->t->trained)
		w->t->written_ns = clock_mono_ns();
	w->t->trained++;
	scheduler_record(w->t, w->segment, "trained", NULL, NULL);
	if (w->t->trained == w->t->run->segments && !w->t->failed) {
		/* too late for a stop: the work is done */
		w->t->stopping = false;
		lifecycle_move(s->options.lifecycle, w->t->run, RUN_FINISHING, NULL);
	}
	if (w->t->stopping) {
		scheduler_end(w->t, w->t->stop_state, w->t->stop_reason);
		return;
	}
	scheduler_report(w->t, w->segment, "trained", NULL);
	scheduler_wake(s);
}

static void on_done(struct scheduler *s, const struct about *w, json_t *params)
{
	json_t *summary = json_object_get(params, "summary");
	char *text = summary ? json_text_write(summary, JSON_COMPACT, NULL) : NULL;
	char *artifacts = take_artifacts(w->t, w->segment);
	struct record_segment r = {w->run, w->segment, "done", NULL, NULL, text, artifacts};
	struct about now = *w;

	if (w->in_slot) {
		on_trained(s, w, params);
		now = about_of(s, w->rank, params); /* that may have ended the run */
		w = &now;
	}
	if (w->t != NULL) {
		scheduler_record_end(w->t, &r, summary);
		scheduler_segment_done(w->t, w->segment, summary);
	} else { /* its run has ended, but the segment is complete on disk */
		record_segment(s->options.store, &r, NULL, NULL);
	}
	free(text);
	free(artifacts);
}

static void segment_failed(
	struct scheduler *s, const struct about *w, const char *reason, bool poisoned)
{
	struct task *t = w->t;
	char *artifacts = take_artifacts(t, w->segment);
	struct record_segment r = {w->run, w->segment, "failed", reason, NULL, NULL, artifacts};

	t->failed = true;
	t->reports[w->segment] = ATTEMPT_FAILED;
	scheduler_record_end(t, &r, NULL);
	free(artifacts);
	if (attempt_spec(t->attempt)->has_arms)
		run_log_write(s->options.run_log, t->run, -1, LOG_ERROR, "segment %lld (%s): %s",
			(long long)w->segment + 1, attempt_arm(t->attempt, w->segment), reason);
	if (poisoned) { /* ends the run as well */
		engine_pool_restart(s->options.pool, reason);
		return;
	}
	if (w->in_slot) /* else these are an earlier segment's artifacts */
		scheduler_free_slot(s);
	scheduler_fail(t, reason);
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

void scheduler_peer_timer(evutil_socket_t fd, short what, void *arg)
{
	struct scheduler *s = arg;
	char reason[RUN_REASON_BYTES];

	snprintf(reason, sizeof(reason), "%s", s->peer_lost);
	engine_pool_restart(s->options.pool, reason);
}

static void on_cancelled(struct scheduler *s, const struct about *w, json_t *params)
{
	struct task *t = w->t;
	struct record_segment r = {w->run, w->segment, "cancelled"};

	if (!w->in_slot || !t->stopping)
		return;
	t->reports[w->segment] = ATTEMPT_CANCELLED;
	r.reason = t->stop_reason;
	scheduler_record_end(t, &r, NULL);
	scheduler_end(t, t->stop_state, t->stop_reason);
}

static void on_log(struct scheduler *s, int rank, json_t *params)
{
	struct run *run = scheduler_running(s);
	const char *level = json_string_value(json_object_get(params, "level"));
	const char *text = json_string_value(json_object_get(params, "message"));

	if (text == NULL)
		return;
	log_write_engine(log_level_of(level ? level : ""), "rank %d: %s", rank, text);
	if (run != NULL && log_level_of(level ? level : "") > LOG_DEBUG)
		run_log_write(s->options.run_log, run, rank, log_level_of(level ? level : ""), "%s",
			text);
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
