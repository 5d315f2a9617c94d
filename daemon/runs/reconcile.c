#include "daemon/runs/reconcile.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/runs/absent.h"
#include "daemon/config/clock.h"
#include "daemon/daemon.h"
#include "daemon/config/log.h"
#include "daemon/runs/queue.h"
#include "daemon/store/record.h"
#include "daemon/store/record_row.h"
#include "daemon/runs/run_ids.h"
#include "daemon/runs/settle.h"
#include "proto/state_files.h"
#include "daemon/runs/sweep.h"
#include "daemon/runs/unmark.h"
#include "proto/artifact.h"

enum {
	BROKEN_AT_ONCE = 16,
	BROKEN_SWEPT = BROKEN_AT_ONCE, /* only the very last ones can have files left */
};

static int take(struct run *run, void *arg)
{
	struct daemon *d = arg;

	queue_add(d->queue, run);
	return 0;
}

static int move(struct daemon *d, struct run *run, enum run_state to, const char *reason)
{
	enum run_state from = run->state;
	int rc = run_transition(run, to, reason, clock_utc_ns());

	if (rc == 0)
		rc = record_transition_now(d->store, run);
	if (rc == 0)
		log_write(LOG_INFO, "run %lld: was %s, is %s%s%s", (long long)run->id,
			run_state_name(from), run_state_name(to), reason ? ": " : "",
			reason ? reason : "");
	return rc;
}

/* What engines that were killed were writing, in this attempt and in the one before. */
static void sweep_attempts(const struct daemon *d, const struct run *run)
{
	struct run attempt = *run;
	char dir[PATH_MAX];

	for (; attempt.attempt > 0 && attempt.attempt > run->attempt - 2; attempt.attempt--)
		if (run_dir(&attempt, d->state_dir, dir, sizeof(dir)) == 0)
			sweep_run_dir(dir);
}

static void say_kept(const char *dir, int rc)
{
	log_write(LOG_ERROR, "%s/%s: of what is not done, but cannot be removed: %s", dir,
		ARTIFACT_COMPLETE, strerror(-rc));
}

/* Where a segment is, as far as is known; a single run has none but its own folder. */
static int segment_dir(const struct daemon *d, const struct run *run, const char *own,
	const struct record_unreported *u, char dir[PATH_MAX])
{
	int rc;

	if (u->dir[0] != '\0')
		return run_dir_now(run->id, d->state_dir, u->dir, dir, PATH_MAX);
	rc = run_segment_dir(own, u->segment, u->arm, dir, PATH_MAX);
	if (rc == 0 && access(dir, F_OK) < 0)
		strcpy(dir, own);
	return rc;
}

/* Which segments are looked at, of those that are not done. */
enum settle {
	SETTLE_BEGUN,   /* by what is stored */
	SETTLE_FOLDERS, /* or have a folder: the store may not have come to all that was so */
	SETTLE_ALL,     /* or not: as in a database that was put back from before the run's end */
};

/* One whose folder does not say that it is done; row: what is stored of it. */
static int settle_begun(struct daemon *d, const struct run *run, const char *own, const char *dir,
	const struct record_unreported *row)
{
	if (row->dir[0] != '\0' || strcmp(dir, own) == 0)
		return 0;
	return record_begun(d->store, run->id, row->segment, dir);
}

/*
 * The segments of which the engine did not come to speak: done, with what it would have said, where
 * their folder says so.
 */
static int settle_segments(
	struct daemon *d, const struct run *run, const char *own, enum settle which)
{
	struct record_unreported u = {.segment = -1};
	char dir[PATH_MAX], *summary, *artifacts;
	bool complete;
	int rc, kept;

	while ((rc = record_unreported(
			d->store, run->id, u.segment, which != SETTLE_BEGUN, &u)) == 0 &&
		(rc = segment_dir(d, run, own, &u, dir)) == 0) {
		/* they begin in their order, and empty folders have gone */
		if (which == SETTLE_FOLDERS && u.dir[0] == '\0' && strcmp(dir, own) == 0)
			break;
		kept = settle_folder(dir, run, strcmp(dir, own) == 0, &complete);
		if (kept < 0)
			say_kept(dir, kept);
		if (complete) {
			settle_summary(dir, &summary, &artifacts);
			rc = record_recovered(
				d->store, run->id, u.segment, dir, summary, artifacts);
			free(summary);
			free(artifacts);
		} else {
			rc = settle_begun(d, run, own, dir, &u);
		}
		if (rc < 0)
			break;
	}
	return rc == -ENOENT ? 0 : rc;
}

/* A run whose marker stays is done, and so are all of its segments. */
static int settle_run(struct daemon *d, const struct run *run, bool *complete)
{
	char dir[PATH_MAX];
	int kept;

	*complete = false;
	if (run_dir(run, d->state_dir, dir, sizeof(dir)) < 0)
		return 0;
	kept = settle_folder(dir, run, true, complete);
	if (kept < 0)
		say_kept(dir, kept);
	return settle_segments(d, run, dir, *complete ? SETTLE_ALL : SETTLE_FOLDERS);
}

/* Of segments of a run that is trained anew, in another folder. */
static int unmark_segments(struct daemon *d, const struct run *run, const char *own)
{
	struct record_unreported u = {.segment = -1};
	char dir[PATH_MAX], marker[PATH_MAX];
	int rc, kept, removed = 0;

	while ((rc = record_unreported(d->store, run->id, u.segment, true, &u)) == 0 &&
		(rc = run_segment_dir(own, u.segment, u.arm, dir, sizeof(dir))) == 0) {
		if (snprintf(marker, sizeof(marker), "%s/" ARTIFACT_COMPLETE, dir) >= PATH_MAX ||
			access(marker, F_OK) < 0)
			continue;
		kept = settle_remove(dir);
		removed += kept == 0;
		if (kept < 0)
			say_kept(dir, kept);
	}
	if (removed > 0)
		log_write(LOG_WARNING,
			"%s: %d segments were whole, of a run that " STATE_DATABASE
			" has as queued: without their markers, as it is trained anew",
			own, removed);
	return rc == -ENOENT ? 0 : rc;
}

/*
 * What is stored of a queued run may be older than its folders, the next attempt's among them: a
 * database was put back, or could not be written while it was trained. Where one says that it is
 * done, it has begun there.
 */
static int settle_queued(struct daemon *d, struct run *run)
{
	struct run attempt = *run;
	char dir[PATH_MAX];
	bool complete;
	int rc = 0, kept;

	while (rc == 0 && run_dir(&attempt, d->state_dir, dir, sizeof(dir)) == 0 &&
		access(dir, F_OK) == 0) {
		kept = settle_folder(dir, run, true, &complete);
		if (complete) {
			run->attempt = attempt.attempt;
			return move(d, run, RUN_STARTING,
				"daemon_restart: its folder says that it is done");
		}
		if (kept < 0)
			say_kept(dir, kept);
		rc = unmark_segments(d, run, dir);
		attempt.attempt++;
	}
	return rc;
}

/*
 * gpt2d may have gone away between the end of a run and the end of its engines, which may have
 * written all of a segment since: that is done, the others end as the run has.
 */
static int settle_ended(struct daemon *d, const struct run *run)
{
	char dir[PATH_MAX];
	int rc = run_dir(run, d->state_dir, dir, sizeof(dir));

	if (rc < 0)
		return 0;
	rc = settle_segments(d, run, dir, SETTLE_BEGUN);
	return rc < 0 ? rc : record_end_unreported(d->store, run);
}

struct broken {
	struct run *run[BROKEN_AT_ONCE];
	int n;
};

static int take_broken(struct run *run, void *arg)
{
	struct broken *b = arg;

	b->run[b->n++] = run;
	return 0;
}

static int settle_broken(struct daemon *d)
{
	struct broken b = {.n = 0};
	int rc = record_each_broken(d->store, BROKEN_SWEPT, take_broken, &b);

	for (int i = 0; i < b.n; i++) {
		sweep_attempts(d, b.run[i]);
		if (rc == 0)
			rc = settle_ended(d, b.run[i]);
		free(b.run[i]);
	}
	return rc;
}

/*
 * gpt2d did not always settle what it had left of runs that had ended: rows of such a time are read
 * as if they had been, once, since none of them is trained then.
 */
static int settle_old(struct daemon *d)
{
	struct broken b;
	int64_t after = 0;
	int rc;

	do {
		b.n = 0;
		rc = record_each_unsettled(d->store, after, BROKEN_AT_ONCE, take_broken, &b);
		for (int i = 0; i < b.n; i++) {
			after = b.run[i]->id;
			log_write(LOG_INFO, "run %lld: %s, had segments left as trained",
				(long long)after, run_state_name(b.run[i]->state));
			if (rc == 0)
				rc = settle_ended(d, b.run[i]);
			free(b.run[i]);
		}
	} while (rc == 0 && b.n == BROKEN_AT_ONCE);
	if (rc != -EBADMSG)
		return rc;
	log_write(LOG_WARNING, "runs that have ended cannot all be read: segments of theirs may be "
			       "told as trained for good");
	return 0;
}

/* A row of each was removed while they were elsewhere, or with a backup that was restored. */
static void say_strays(const struct daemon *d, const struct run_ids *ids)
{
	if (ids->strays > 0)
		log_write(LOG_WARNING,
			"%s/" STATE_RUNS ": %lld folder%s (the last is %s) of runs that "
			STATE_DATABASE " does not know any more: no verb shows or removes them;"
			" move them away, or remove them",
			d->state_dir, (long long)ids->strays, ids->strays == 1 ? "" : "s",
			ids->stray_name);
}

/*
 * Folders of runs that this database never had keep their ids to themselves; of those that it has
 * no more it is said that they are there.
 */
static int pass_over_strangers(const struct daemon *d)
{
	struct run_ids_rows rows = {0};
	struct run_ids ids;
	int64_t known;
	int rc = record_last_id(d->store, &known);

	if (rc == 0)
		rc = record_ids(d->store, &rows.id, &rows.n);
	/* a damaged page among them may be of no run that is needed: who asks for it is told */
	if (rc == 0 || rc == -EBADMSG)
		rc = run_ids_look(d->state_dir, known, rc == 0 ? &rows : NULL, &ids);
	free(rows.id);
	if (rc < 0)
		return rc;
	say_strays(d, &ids);
	if (ids.beyond == 0)
		return 0;
	rc = record_set_last_id(d->store, ids.last);
	if (rc == 0)
		log_write(LOG_WARNING,
			"%s/" STATE_RUNS ": %lld folder%s (the last is %s) of runs that "
			STATE_DATABASE " does not know: left as they are, the next run is %lld",
			d->state_dir, (long long)ids.beyond, ids.beyond == 1 ? "" : "s", ids.name,
			(long long)ids.last + 1);
	return rc;
}

/* As where runs is on a disk that is not mounted: then they are not forgotten by themselves. */
static int look_for_folders(struct daemon *d)
{
	struct absent a;
	int rc = absent_look(store_db(d->store), d->state_dir, &a);

	/* a row that cannot be read is told where it is asked for, the start does not wait */
	if (rc == -EBADMSG) {
		d->runs_away = true;
		log_write(LOG_WARNING,
			"runs that are done cannot all be read: retain_runs and retain_days wait");
		return 0;
	}
	if (rc < 0)
		return rc;
	d->runs_away = a.away;
	if (a.absent > 0)
		log_write(LOG_WARNING,
			"of the last %d runs that are done %d have no folder (the last is %s)%s",
			a.looked_at, a.absent, a.last,
			a.away ? ": is a disk not mounted? retain_runs and retain_days wait"
				 " until gpt2d is started again and finds one of them"
			       : "");
	return 0;
}

struct outcome {
	struct daemon *daemon;
	int rc;
};

static void settle(struct run *run, void *arg)
{
	struct outcome *o = arg;
	struct daemon *d = o->daemon;
	char reason[128];
	bool complete;

	if (o->rc < 0)
		return;
	sweep_attempts(d, run);
	if (run->state == RUN_QUEUED)
		o->rc = settle_queued(d, run);
	if (o->rc < 0 || run->state == RUN_QUEUED)
		return;
	snprintf(reason, sizeof(reason), "daemon_restart: gpt2d went away while the run was %s",
		run_state_name(run->state));
	o->rc = settle_run(d, run, &complete);
	while (o->rc == 0 && complete && run->state != RUN_DONE)
		o->rc = move(d, run, run->state + 1, NULL);
	if (o->rc == 0 && !complete)
		o->rc = move(d, run, RUN_INTERRUPTED, reason);
	if (o->rc == 0 && !complete)
		o->rc = record_end_unreported(d->store, run);
	if (o->rc == 0 && !complete && run->restart)
		o->rc = move(d, run, RUN_QUEUED, "restart: asked for in its spec");
	if (run->state == RUN_QUEUED)
		return;
	queue_remove(d->queue, run);
	free(run);
}

int reconcile_runs(struct daemon *d, char *error, size_t error_bytes)
{
	struct outcome o = {d, 0};
	char fault[RECORD_ROW_FAULT_BYTES] = "";

	o.rc = pass_over_strangers(d);
	if (o.rc == 0)
		o.rc = look_for_folders(d);
	if (o.rc == 0)
		o.rc = settle_broken(d);
	if (o.rc == 0)
		o.rc = settle_old(d);
	if (o.rc == 0)
		o.rc = unmark_ended(store_db(d->store), d->state_dir);
	if (o.rc == 0)
		o.rc = record_each_open(d->store, take, d);
	if (o.rc == 0)
		queue_each(d->queue, settle, &o);
	if (o.rc == 0)
		o.rc = record_counts(d->store, d->counts);
	if (o.rc == -EBADMSG && record_row_check(store_db(d->store), fault) == -EBADMSG)
		snprintf(error, error_bytes,
			"%s/" STATE_DATABASE ": %s; " STORE_DAMAGED_SECTION " says what to do",
			d->state_dir, fault[0] ? fault : "the database is damaged");
	else if (o.rc < 0)
		snprintf(error, error_bytes, "%s/" STATE_DATABASE ": %s", d->state_dir,
			store_error_text(o.rc));
	return o.rc;
}
