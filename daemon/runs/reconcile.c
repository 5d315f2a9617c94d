#include "daemon/runs/reconcile.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/host/clock.h"
#include "daemon/config/log.h"
#include "proto/state_files.h"
#include "daemon/runs/queue.h"
#include "daemon/runs/run_files.h"
#include "daemon/runs/trash.h"
#include "daemon/store/record.h"
#include "daemon/store/store.h"
#include "proto/artifact.h"

enum { ENDED_CHECKED = 16 }; /* runs that ended without being done, the newest */

/* The code of the reason of runs that were in progress when gpt2d died. */
#define DAEMON_RESTART "daemon_restart"

static void log_marker_kept(const char *dir, int rc)
{
	log_write(LOG_ERROR,
		"%s/" ARTIFACT_COMPLETE
		": not done, but gpt2d cannot remove its completion marker: %s",
		dir, strerror(-rc));
}

/* ---- unfinished removals ---- */

static int remove_row(int64_t id, void *arg)
{
	const struct reconcile_options *o = arg;
	struct run was;
	int rc = record_ended_now(o->store, id, &was);

	if (rc == -ENOENT)
		return 0; /* the row is deleted, only files are left */
	if (rc == 0)
		rc = trash_move(o->state_dir, &was);
	if (rc == 0)
		rc = record_delete_now(o->store, id);
	/* on a full disk, removed files free space for the database */
	if (rc < 0 && trash_empty(o->state_dir, &was) == 0)
		rc = record_delete_now(o->store, id);
	if (rc == 0)
		log_write(LOG_INFO, "run %lld: its removal is finished", (long long)id);
	return rc;
}

/* ---- ids ---- */

/* The ID in ID-NAME; 0 for another name. */
static int64_t id_of(const char *name)
{
	char *end;
	long long id;

	if (name[0] < '1' || name[0] > '9')
		return 0;
	errno = 0;
	id = strtoll(name, &end, 10);
	return *end == '-' && errno == 0 ? id : 0;
}

/*
 * A database that was restored from an older copy knows fewer runs than there are folders. New runs
 * get IDs above those of all folders, so that no run writes into the folder of another.
 */
static int reserve_ids(const struct reconcile_options *o)
{
	char path[PATH_MAX], name[NAME_MAX + 1] = "";
	const struct dirent *entry;
	int64_t known, last, n = 0;
	DIR *runs;
	int rc = record_last_id(o->store, &known);

	snprintf(path, sizeof(path), "%s/" STATE_RUNS, o->state_dir);
	runs = rc == 0 ? opendir(path) : NULL;
	if (runs == NULL)
		return rc < 0 ? rc : errno == ENOENT ? 0 : -errno;
	last = known;
	while ((entry = readdir(runs)) != NULL) {
		n += id_of(entry->d_name) > known;
		if (id_of(entry->d_name) > last) {
			last = id_of(entry->d_name);
			snprintf(name, sizeof(name), "%s", entry->d_name);
		}
	}
	closedir(runs);
	if (n == 0)
		return 0;
	log_write(LOG_WARNING,
		"%s: %lld folder%s (the last is %s) of runs that " STATE_DATABASE
		" does not know: gpt2d keeps them, the next run is %lld",
		path, (long long)n, n == 1 ? "" : "s", name, (long long)last + 1);
	return record_set_last_id(o->store, last);
}

/* ---- segments ---- */

/* The folder of a segment of this attempt; a single run has only its own folder. False: none. */
static bool find_segment(const struct run *run, const char *own, const struct record_unreported *u,
	char dir[PATH_MAX])
{
	if (run_segment_dir(own, u->segment, u->arm, dir, PATH_MAX) == 0 && access(dir, F_OK) == 0)
		return true;
	if (run->segments > 1)
		return false;
	strcpy(dir, own);
	return access(dir, F_OK) == 0;
}

/*
 * Segments whose end gpt2d did not receive are done if their folders are complete. unbegun: also
 * segments whose start the store does not have yet.
 */
static int check_segments(
	const struct reconcile_options *o, const struct run *run, const char *own, bool unbegun)
{
	struct record_unreported u = {.segment = -1};
	char dir[PATH_MAX], *summary, *artifacts;
	bool complete;
	int rc, kept;

	while ((rc = record_unreported(o->store, run->id, u.segment, unbegun, &u)) == 0) {
		if (!find_segment(run, own, &u, dir))
			continue;
		kept = run_files_check_marker(dir, run, strcmp(dir, own) == 0, &complete);
		if (kept < 0)
			log_marker_kept(dir, kept);
		if (complete) {
			summary = run_files_summary(dir, &artifacts);
			rc = record_recovered(
				o->store, run->id, u.segment, dir, summary, artifacts);
			free(summary);
			free(artifacts);
		} else if (u.dir[0] == '\0' && strcmp(dir, own) != 0) {
			rc = record_begun(o->store, run->id, u.segment, dir);
		}
		if (rc < 0)
			return rc;
	}
	return rc == -ENOENT ? 0 : rc;
}

/* ---- runs that had ended, but not as done ---- */

/* Removes unfinished files of killed engines, in this attempt and in the one before. */
static void sweep_attempts(const struct reconcile_options *o, const struct run *run)
{
	struct run attempt = *run;
	char dir[PATH_MAX];

	for (; attempt.attempt > 0 && attempt.attempt > run->attempt - 2; attempt.attempt--)
		if (run_dir(&attempt, o->state_dir, dir, sizeof(dir)) == 0)
			run_files_sweep(dir);
}

/* A run may have ended before the files of its trained segments were written. */
static int check_ended_runs(const struct reconcile_options *o)
{
	struct record_runs ended = {0};
	char dir[PATH_MAX];
	int rc = record_broken_runs(o->store, ENDED_CHECKED, &ended);

	for (size_t i = 0; i < ended.n; i++) {
		struct run *run = ended.run[i];

		sweep_attempts(o, run);
		if (rc == 0 && run_dir(run, o->state_dir, dir, sizeof(dir)) == 0) {
			rc = check_segments(o, run, dir, false);
			if (rc == 0)
				rc = record_end_unreported(o->store, run);
		}
		free(run);
	}
	free(ended.run);
	return rc;
}

/* ---- open runs ---- */

static int move(
	const struct reconcile_options *o, struct run *run, enum run_state to, const char *reason)
{
	enum run_state from = run->state;
	int rc = run_transition(run, to, reason, clock_utc_ns());

	if (rc == 0)
		rc = record_transition_now(o->store, run);
	if (rc == 0)
		log_write(LOG_INFO, "run %lld: was %s, is %s%s%s", (long long)run->id,
			run_state_name(from), run_state_name(to), reason ? ": " : "",
			reason ? reason : "");
	return rc;
}

enum { DEATHS_MAX = 3 };

/*
 * Counts the deaths of gpt2d during a run, this one included. A run that makes gpt2d die each time
 * must not block the queue. An orderly stop has another reason and does not count.
 */
static int count_deaths(const struct reconcile_options *o, const struct run *run, int64_t *n)
{
	int rc =
		record_count_transitions(o->store, run->id, RUN_INTERRUPTED, DAEMON_RESTART ":", n);

	*n += 1;
	return rc;
}

/* A run that had started. */
static int check_open_run(const struct reconcile_options *o, struct run *run)
{
	char reason[128], dir[PATH_MAX];
	int64_t deaths = 0;
	bool complete;
	int kept, rc = run_dir(run, o->state_dir, dir, sizeof(dir));

	if (rc < 0)
		return rc;
	snprintf(reason, sizeof(reason), DAEMON_RESTART ": gpt2d ended while the run was %s",
		run_state_name(run->state));
	kept = run_files_check_marker(dir, run, true, &complete);
	if (kept < 0)
		log_marker_kept(dir, kept);
	rc = check_segments(o, run, dir, true);
	while (rc == 0 && complete && run->state != RUN_DONE)
		rc = move(o, run, run->state + 1, NULL);
	if (rc < 0 || complete)
		return rc;
	if (run->restart)
		rc = count_deaths(o, run, &deaths);
	if (rc == 0 && deaths >= DEATHS_MAX) {
		snprintf(reason, sizeof(reason),
			DAEMON_RESTART ": gpt2d died %lld times during the run", (long long)deaths);
		rc = move(o, run, RUN_FAILED, reason);
	} else if (rc == 0) {
		rc = move(o, run, RUN_INTERRUPTED, reason);
	}
	if (rc == 0)
		rc = record_end_unreported(o->store, run);
	if (rc == 0 && run->restart && run->state == RUN_INTERRUPTED)
		rc = move(o, run, RUN_QUEUED, "restart: asked for in its spec");
	return rc;
}

static int check_open_runs(const struct reconcile_options *o)
{
	struct record_runs open = {0};
	int rc = record_open_runs(o->store, &open);

	for (size_t i = 0; i < open.n; i++) {
		struct run *run = open.run[i];

		sweep_attempts(o, run);
		if (rc == 0 && run->state != RUN_QUEUED)
			rc = check_open_run(o, run);
		if (rc == 0 && run->state == RUN_QUEUED)
			queue_add(o->queue, run);
		else
			free(run);
	}
	free(open.run);
	return rc;
}

int reconcile_runs(const struct reconcile_options *o, char *error, size_t error_bytes)
{
	int rc = trash_each(o->state_dir, remove_row, (void *)o);

	if (rc < 0) {
		snprintf(error, error_bytes, "%s/" STATE_TRASH ": %s", o->state_dir,
			store_error_text(rc));
		return rc;
	}
	rc = reserve_ids(o);
	if (rc == 0)
		rc = check_ended_runs(o);
	if (rc == 0)
		rc = check_open_runs(o);
	if (rc == 0)
		rc = record_counts(o->store, o->counts);
	if (rc < 0)
		snprintf(error, error_bytes, "%s/" STATE_DATABASE ": %s", o->state_dir,
			store_error_text(rc));
	return rc;
}
