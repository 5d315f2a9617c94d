#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/daemon.h"
#include "daemon/ending.h"
#include "daemon/engines/engine_pool.h"
#include "daemon/runs/lifecycle.h"
#include "daemon/config/log.h"
#include "daemon/runs/scheduler_private.h"
#include "daemon/runs/marker.h"
#include "daemon/runs/run_files.h"
#include "proto/artifact.h"
#include "proto/json_text.h"

static struct attempt *attempt_of_job(struct store_job *job)
{
	return (struct attempt *)(void *)((char *)job - offsetof(struct attempt, settle));
}

/* ---- in the store's thread ---- */

/* Whether it is remembered that the segment in dir is complete. */
static bool keep_found(struct attempt *a, int64_t segment, const char *dir)
{
	char *summary, *artifacts;
	int rc;

	summary = marker_summary(dir, &artifacts);
	rc = json_array_append_new(a->settled,
		json_pack("{sI ss? ss?}", "segment", (json_int_t)segment, "summary", summary,
			"artifacts", artifacts));
	free(summary);
	free(artifacts);
	return rc == 0;
}

static int settle_segment(struct attempt *a, int64_t segment)
{
	char dir[PATH_MAX];
	bool complete;
	int rc = attempt_segment_dir(a, segment, dir);

	if (rc < 0)
		return rc;
	if (a->told[segment] == ATTEMPT_FAILED)
		return marker_remove(dir);
	rc = marker_check(dir, a->run, !a->spec->has_arms, &complete);
	if (complete && !keep_found(a, segment, dir))
		rc = marker_remove(dir);
	return rc;
}

static int settle_work(struct store_job *job, struct sqlite3 *db)
{
	struct attempt *a = attempt_of_job(job);
	int rc = 0, one;

	run_files_sweep(a->dir);
	a->settled = json_array();
	for (int64_t i = 0; i < a->sent; i++) {
		one = a->told[i] == ATTEMPT_DONE ? 0 : settle_segment(a, i);
		if (one < 0)
			rc = one;
	}
	return rc;
}

/* ---- in the loop ---- */

/* The engines did all of it, whatever was to become of the run meanwhile. */
static void move_on(struct attempt *a)
{
	a->stopping = false;
	while (a->run->state < RUN_FINISHING)
		lifecycle_move(a->daemon, a->run, a->run->state + 1, NULL);
}

static void take_found(struct scheduler *s, struct attempt *a)
{
	const int64_t segments = a->run->segments;
	struct record_segment r = {.run = a->run->id, .state = "done"};
	json_t *found = a->settled, *row, *said;
	size_t i, n = json_array_size(found);

	a->settled = NULL; /* the last one may end the run, and a with it */
	if (a->done + (int64_t)n == segments)
		move_on(a);
	json_array_foreach(found, i, row) {
		r.segment = json_integer_value(json_object_get(row, "segment"));
		r.summary = json_string_value(json_object_get(row, "summary"));
		r.artifacts = json_string_value(json_object_get(row, "artifacts"));
		said = json_text_value(r.summary);
		scheduler_record_end(a, &r, said);
		scheduler_segment_done(s, a, r.segment, said);
		json_decref(said);
	}
	json_decref(found);
}

static void on_settled(struct store_job *job, int rc)
{
	struct attempt *a = attempt_of_job(job);
	struct scheduler *s = a->daemon->scheduler;
	bool all = a->done + (int64_t)json_array_size(a->settled) == a->run->segments;

	if (rc < 0)
		log_write(LOG_ERROR,
			"run %lld: a %s of what is not done cannot be removed below %s: %s",
			(long long)a->run->id, ARTIFACT_COMPLETE, a->dir, strerror(-rc));
	take_found(s, a);
	if (all)
		return; /* it has ended, or does when its marker is written */
	if (a->cut >= 0 && a->told[a->cut] == ATTEMPT_UNTOLD)
		scheduler_record(a, a->cut, "failed", a->cut_reason, NULL);
	scheduler_end(s, a, a->stop_state, a->stop_reason);
}

static void settle(struct attempt *a)
{
	if (a->settling)
		return;
	a->settling = true;
	a->settle =
		(struct store_job){.kind = STORE_FILES, .work = settle_work, .done = on_settled};
	store_add(a->daemon->store, &a->settle);
}

void scheduler_leave(struct scheduler *s, struct attempt *a, enum run_state state, int64_t cut,
	const char *reason)
{
	a->left = true;
	a->cut = cut;
	snprintf(a->cut_reason, sizeof(a->cut_reason), "%s", reason);
	if (!a->stopping) {
		a->stopping = true;
		a->stop_state = state;
		snprintf(a->stop_reason, sizeof(a->stop_reason), "%s", reason);
	}
	if (s->slot == a)
		scheduler_free_slot(s);
	TAILQ_REMOVE(&s->begun, a, link);
	TAILQ_INSERT_TAIL(&s->left, a, link);
	if (engine_pool_gone(s->daemon->pool))
		settle(a);
	ending_turn(s->daemon);
}

void scheduler_gone(struct scheduler *s)
{
	struct attempt *a;

	TAILQ_FOREACH(a, &s->left, link)
		settle(a);
}
