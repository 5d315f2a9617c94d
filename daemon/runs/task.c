#include "daemon/runs/task.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/host/clock.h"
#include "daemon/control/follow.h"
#include "daemon/runs/experiment.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"
#include "proto/rpc.h"

enum {
	ARTIFACTS_MAX = 1000, /* maximum of remembered artifacts of a segment */
	SEGMENT_FILES = 2,    /* for training and for validation */
	BRIEF_MAX = 16,       /* elements of an array in an event */
};

struct task *task_create(
	struct scheduler *scheduler, struct store *store, struct follow *follow, struct attempt *a)
{
	struct task *t = memory_zeroed(1, sizeof(*t));

	t->scheduler = scheduler;
	t->store = store;
	t->follow = follow;
	t->attempt = a;
	t->run = attempt_run(a);
	t->reports = memory_zeroed((size_t)attempt_segments_most(a), sizeof(*t->reports));
	t->experiment = attempt_experiment(a);
	if (t->experiment != NULL)
		t->first = experiment_begun(t->experiment);
	t->sent = t->trained = t->done = t->first;
	memset(t->reports, ATTEMPT_DONE, (size_t)t->first);
	t->started_ns = clock_mono_ns();
	pace_begin(&t->pace, t->started_ns);
	return t;
}

void task_free(struct task *t)
{
	json_decref(t->artifacts);
	json_decref(t->data);
	free(t->reports);
	free(t);
}

void task_set_stop(struct task *t, enum run_state state, const char *reason)
{
	t->stopping = true;
	t->stop_state = state;
	snprintf(t->stop_reason, sizeof(t->stop_reason), "%s", reason);
}

/*
 * Without the long arrays (a value for each step), which "show" has, because an event must fit into
 * a buffer.
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

static json_t *segment_params(const struct task *t, int64_t segment, const char *state,
	const char *reason, json_t *summary)
{
	const struct design_segment *s = attempt_segment(t->attempt, segment);

	return json_pack("{sI sI sI sI ss ss ss? so*}", "segment", (json_int_t)segment + 1,
		"segments", (json_int_t)t->run->segments, "block", (json_int_t)s->block + 1,
		"position", (json_int_t)s->position + 1, "arm", attempt_arm(t->attempt, segment),
		"state", state, "reason", reason, "summary", in_brief(summary));
}

void task_report(const struct task *t, int64_t segment, const char *state, const char *reason)
{
	follow_event(t->follow, t->run->id, EVENT_SEGMENT,
		segment_params(t, segment, state, reason, NULL));
}

void task_record(
	struct task *t, int64_t segment, const char *state, const char *reason, const char *dir)
{
	const struct record_segment r = {t->run->id, segment, state, reason, dir, NULL, NULL};

	record_segment(t->store, &r, NULL, NULL);
	if (t->experiment != NULL)
		experiment_report(t->experiment, segment, state, reason, dir, NULL);
}

struct segment_end {
	struct follow *follow;
	struct run *run; /* valid: its own end is written after that of its segments */
	int64_t attempt;
	bool done;
	json_t *params;
};

static void on_recorded(void *arg, int rc)
{
	struct segment_end *e = arg;

	if (rc == 0 && e->done && e->attempt == e->run->attempt)
		e->run->segments_done++;
	if (rc == 0)
		follow_event(e->follow, e->run->id, EVENT_SEGMENT, e->params);
	else
		json_decref(e->params);
	free(e);
}

/*
 * Removes the remembered artifacts of a segment. Returns their JSON, which the caller frees, or
 * NULL.
 */
static char *take_artifacts(struct task *t, int64_t segment)
{
	char key[24], *text = NULL;
	json_t *rows;

	snprintf(key, sizeof(key), "%lld", (long long)segment);
	rows = json_object_get(t->artifacts, key);
	if (rows == NULL)
		return NULL;
	text = json_dumps(rows, JSON_COMPACT);
	json_object_del(t->artifacts, key);
	return text;
}

void task_record_end(struct task *t, int64_t segment, const char *state, const char *reason,
	json_t *summary, const char *artifacts)
{
	char *text = summary ? json_dumps(summary, JSON_COMPACT) : NULL;
	char *remembered = take_artifacts(t, segment);
	const struct record_segment r = {
		t->run->id, segment, state, reason, NULL, text, artifacts ? artifacts : remembered};
	struct segment_end *e = memory_zeroed(1, sizeof(*e));

	*e = (struct segment_end){t->follow, t->run, t->run->attempt, strcmp(state, "done") == 0,
		segment_params(t, segment, state, reason, summary)};
	record_segment(t->store, &r, on_recorded, e);
	free(text);
	free(remembered);
	if (t->experiment != NULL)
		experiment_report(t->experiment, segment, state, reason, NULL, summary);
}

void task_report_step(struct task *t, int64_t segment, int64_t step, int64_t steps, double step_ns,
	json_t *params)
{
	const struct design_segment *d = attempt_segment(t->attempt, segment);
	json_t *loss = json_object_get(params, "loss");
	json_t *tokens = json_object_get(params, "tokens_per_sec");
	double left_s;

	pace_step(&t->pace, segment, step, step_ns, clock_mono_ns());
	left_s = pace_left_s(&t->pace, step, steps, t->run->segments - segment - 1);
	follow_step(t->follow, t->run->id,
		json_pack("{sI sI sI ss sI sI so so sI so}", "segment", (json_int_t)segment + 1,
			"segments", (json_int_t)t->run->segments, "block", (json_int_t)d->block + 1,
			"arm", attempt_arm(t->attempt, segment), "step", (json_int_t)step, "steps",
			(json_int_t)steps, "loss", loss ? json_incref(loss) : json_null(),
			"tokens_per_sec", tokens ? json_incref(tokens) : json_null(),
			"step_time_ns", (json_int_t)step_ns, "eta_s", rpc_real(left_s)));
}

void task_remember_data(struct task *t, json_t *data)
{
	if (!json_is_object(data) || json_object_size(data) > SEGMENT_FILES)
		return;
	if (t->data == NULL)
		t->data = json_object();
	json_object_update_missing(t->data, data);
}

void task_remember_artifact(struct task *t, int64_t segment, json_t *path, json_t *bytes)
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
	follow_event(t->follow, t->run->id, EVENT_ARTIFACT,
		json_pack("{sI sO sO}", "segment", (json_int_t)segment + 1, "path", path, "bytes",
			bytes));
}
