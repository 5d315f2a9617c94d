#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/runs/cancel.h"
#include "daemon/config/clock.h"
#include "daemon/daemon.h"
#include "daemon/engines/engine_pool.h"
#include "daemon/control/follow.h"
#include "daemon/runs/lifecycle.h"
#include "daemon/config/log.h"
#include "daemon/store/record.h"
#include "daemon/runs/run_log.h"
#include "daemon/runs/scheduler_private.h"
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

struct about {
	struct attempt *a; /* NULL: not in progress any more */
	int64_t run, segment;
	bool in_slot;
	int rank;
};

static struct about about_what(const struct scheduler *s, int rank, json_t *params)
{
	struct about w = {.rank = rank};
	struct attempt *a;

	w.run = json_integer_value(json_object_get(params, "run"));
	w.segment = json_integer_value(json_object_get(params, "segment"));
	TAILQ_FOREACH(a, &s->begun, link)
		if (a->run->id == w.run && w.segment >= 0 && w.segment < a->sent)
			w.a = a;
	w.in_slot = w.a != NULL && w.a == s->slot && w.segment == s->slot_segment;
	return w;
}

/* The first segment that opens a file says which one it is; all later ones get told. */
static void keep_data(struct attempt *a, json_t *data)
{
	if (!json_is_object(data) || json_object_size(data) > SEGMENT_FILES)
		return;
	if (a->data == NULL)
		a->data = json_object();
	json_object_update_missing(a->data, data);
}

static void on_started(struct scheduler *s, const struct about *w, json_t *params)
{
	if (!w->in_slot)
		return;
	keep_data(w->a, json_object_get(params, "data"));
	if (w->a->run->state != RUN_STARTING)
		return;
	/* engines that get to work are no reason to wait, whatever this run does to them */
	engine_pool_worked(s->daemon->pool);
	lifecycle_move(s->daemon, w->a->run, RUN_RUNNING, NULL);
}

/* Seconds until the run is trained. */
static json_t *eta_s(const struct scheduler *s, const struct about *w, int64_t step, int64_t steps)
{
	int64_t segments_left = w->a->run->segments - w->segment - 1;

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
		log_write(
			LOG_WARNING, "rank %d: %s: numbers that cannot be", w->rank, SEGMENT_STEP);
		return;
	}
	on_started(s, w, params);
	d = &w->a->order[w->segment];
	s->steps = steps;
	pace_step(&s->pace, w->segment, step, step_ns, clock_mono_ns());
	follow_step(s->daemon->follow, w->a->run->id,
		json_pack("{sI sI sI ss sI sI so so sI so}", "segment", (json_int_t)w->segment,
			"segments", (json_int_t)w->a->run->segments, "block", (json_int_t)d->block,
			"arm", w->a->spec->arms[d->arm].name, "step", (json_int_t)step, "steps",
			(json_int_t)s->steps, "loss", loss ? json_incref(loss) : json_null(),
			"tokens_per_sec", tokens ? json_incref(tokens) : json_null(),
			"step_time_ns", (json_int_t)step_ns, "eta_s", eta_s(s, w, step, s->steps)));
}

/* What the engine wrote, until the segment's end is stored with it. */
static void remember_artifact(struct attempt *a, int64_t segment, json_t *path, json_t *bytes)
{
	char key[24];
	json_t *rows;

	snprintf(key, sizeof(key), "%lld", (long long)segment);
	if (a->artifacts == NULL)
		a->artifacts = json_object();
	rows = json_object_get(a->artifacts, key);
	if (rows == NULL) {
		rows = json_array();
		json_object_set_new(a->artifacts, key, rows);
	}
	if (json_array_size(rows) < ARTIFACTS_MAX)
		json_array_append_new(rows, json_pack("{sO sO}", "path", path, "bytes", bytes));
}

/* They as JSON, and no longer remembered; NULL: none. The caller frees it. */
static char *take_artifacts(struct attempt *a, int64_t segment)
{
	char key[24], *text = NULL;
	json_t *rows;

	snprintf(key, sizeof(key), "%lld", (long long)segment);
	rows = a ? json_object_get(a->artifacts, key) : NULL;
	if (rows == NULL)
		return NULL;
	text = json_text_write(rows, JSON_COMPACT, NULL);
	json_object_del(a->artifacts, key);
	return text;
}

static void on_artifact(struct scheduler *s, const struct about *w, json_t *params)
{
	json_t *path = json_object_get(params, "path"), *bytes = json_object_get(params, "bytes");

	if (w->a == NULL || !json_is_string(path) || !json_is_integer(bytes))
		return;
	remember_artifact(w->a, w->segment, path, bytes);
	follow_event(s->daemon->follow, w->a->run->id, EVENT_ARTIFACT,
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
	if (w->a->done == w->a->trained)
		w->a->written_ns = clock_mono_ns();
	w->a->trained++;
	if (w->a->trained == w->a->run->segments && !w->a->lacking) {
		/* too late for a stop: the work is done */
		w->a->stopping = false;
		lifecycle_move(s->daemon, w->a->run, RUN_FINISHING, NULL);
		cancel_settled(s->daemon, w->a->run, true);
	}
	if (w->a->stopping) {
		scheduler_record(w->a, w->segment, "trained", NULL, NULL);
		scheduler_end(s, w->a, w->a->stop_state, w->a->stop_reason);
		return;
	}
	scheduler_record(w->a, w->segment, "trained", NULL, NULL);
	scheduler_tell(w->a, w->segment, "trained", NULL);
	scheduler_wake(s);
}

static void on_complete(struct attempt *a, int rc, void *arg)
{
	struct scheduler *s = arg;
	char reason[128];

	if (rc == 0) {
		scheduler_end(s, a, RUN_DONE, NULL);
		return;
	}
	snprintf(reason, sizeof(reason), "%s: completion marker: %s",
		rc == -ENOSPC ? "enospc" : "io", strerror(-rc));
	scheduler_end_failed(s, a, reason);
}

void scheduler_segment_done(
	struct scheduler *s, struct attempt *a, int64_t segment, json_t *summary)
{
	int rc;

	a->told[segment] = ATTEMPT_DONE;
	a->done++;
	a->tokens += json_number_value(json_object_get(summary, "tokens_total"));
	if (a->done < a->run->segments)
		return;
	rc = attempt_finish(a, on_complete);
	if (rc < 0)
		on_complete(a, rc, s);
}

static void on_done(struct scheduler *s, const struct about *w, json_t *params)
{
	json_t *summary = json_object_get(params, "summary");
	char *text = summary ? json_text_write(summary, JSON_COMPACT, NULL) : NULL;
	char *artifacts = take_artifacts(w->a, w->segment);
	struct record_segment r = {w->run, w->segment, "done", NULL, NULL, text, artifacts};
	struct about now = *w;

	if (w->in_slot) {
		on_trained(s, w, params);
		now = about_what(s, w->rank, params); /* that may have ended the run */
		w = &now;
	}
	if (w->a != NULL) {
		scheduler_record_end(w->a, &r, summary);
		scheduler_segment_done(s, w->a, w->segment, summary);
	} else if ((summary != NULL && text == NULL) ||
		record_segment(s->daemon->store, &r, NULL, NULL) < 0) {
		log_write(LOG_ERROR, "run %lld: segment %lld: no memory to write that it is done",
			(long long)w->run, (long long)w->segment);
	} /* its run has ended; what is on disk is on disk */
	free(text);
	free(artifacts);
}

static void segment_failed(
	struct scheduler *s, const struct about *w, const char *reason, bool poisoned)
{
	struct attempt *a = w->a;
	char *artifacts = take_artifacts(a, w->segment);
	struct record_segment r = {w->run, w->segment, "failed", reason, NULL, NULL, artifacts};

	a->lacking = true;
	a->told[w->segment] = ATTEMPT_FAILED;
	scheduler_record_end(a, &r, NULL);
	free(artifacts);
	if (a->spec->has_arms)
		run_log_write(s->daemon, a->run, -1, LOG_ERROR, "segment %lld (%s): %s",
			(long long)w->segment + 1, a->spec->arms[a->order[w->segment].arm].name,
			reason);
	if (poisoned) { /* ends the run as well */
		engine_pool_restart(s->daemon->pool, reason);
		return;
	}
	if (w->in_slot)
		scheduler_free_slot(s);
	if (s->slot == a) /* an earlier segment's artifacts; the next one is being trained */
		scheduler_stop(s, a, RUN_FAILED, "%s", reason);
	else
		scheduler_end_failed(s, a, reason);
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
	text_clean(reason);
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

void scheduler_peer_timer(evutil_socket_t fd, short what, void *arg)
{
	struct scheduler *s = arg;
	char reason[RUN_REASON_BYTES];

	snprintf(reason, sizeof(reason), "%s", s->peer_lost);
	engine_pool_restart(s->daemon->pool, reason);
}

static void on_cancelled(struct scheduler *s, const struct about *w, json_t *params)
{
	struct attempt *a = w->a;
	struct record_segment r = {w->run, w->segment, "cancelled"};

	if (!w->in_slot || !a->stopping)
		return;
	a->told[w->segment] = ATTEMPT_CANCELLED;
	r.reason = a->stop_reason;
	scheduler_record_end(a, &r, NULL);
	scheduler_end(s, a, a->stop_state, a->stop_reason);
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
		run_log_write(s->daemon, run, rank, log_level_of(level ? level : ""), "%s", text);
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
		if (w.in_slot) {
			s->heard_ns = clock_mono_ns();
			s->slot_begun = true;
		} else if (w.a != NULL) {
			w.a->written_ns = clock_mono_ns();
		}
		if (rank == 0 || !handlers[i].rank0_only)
			handlers[i].handle(s, &w, params);
		return;
	}
	log_write(LOG_WARNING, "rank %d: %.64s: unknown message", rank, method);
}
