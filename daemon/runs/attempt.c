#include "daemon/runs/attempt.h"

#include <errno.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/config/clock.h"
#include "daemon/daemon.h"
#include "daemon/store/failure.h"
#include "proto/host/filesystem.h"
#include "daemon/config/log.h"
#include "daemon/store/record.h"
#include "daemon/runs/run_files.h"
#include "daemon/config/settings.h"
#include "daemon/runs/marker.h"
#include "proto/state_files.h"
#include "proto/artifact.h"
#include "proto/host/memory.h"
#include "proto/spec/spec_json.h"

enum {
	DIRS_AHEAD = 32, /* segment directories made before they are needed */
	DIR_MODE = 0750,
};

static void on_job(void *arg, int rc);

static void release(struct attempt *a)
{
	spec_free(a->spec);
	free(a->spec_text);
	json_decref(a->artifacts);
	json_decref(a->data);
	json_decref(a->settled);
	free(a->told);
	free(a->order);
	free(a);
}

void attempt_destroy(struct attempt *a)
{
	if (a->working)
		a->doomed = true;
	else
		release(a);
}

static void failed(struct attempt *a, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void failed(struct attempt *a, const char *format, ...)
{
	char failure[RUN_REASON_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(failure, sizeof(failure), format, args);
	va_end(args);
	a->changed(a, failure, a->arg);
}

/* ---- directories, in the store's thread: reads place, dir, spec, order, dirs, dirs_wanted ---- */

int attempt_segment_dir(const struct attempt *a, int64_t segment, char *out)
{
	if (a->spec->has_arms)
		return run_segment_dir(
			a->dir, segment, a->spec->arms[a->order[segment].arm].name, out, PATH_MAX);
	strcpy(out, a->dir);
	return 0;
}

static int segments_dir(const struct attempt *a, char *out)
{
	int n = snprintf(out, PATH_MAX, "%s/segments", a->dir);

	return n >= 0 && n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int make_dir(const char *path)
{
	return mkdir(path, DIR_MODE) < 0 && errno != EEXIST ? -errno : 0;
}

/* Whether something was written there that making ready does not write. */
static bool holds_artifacts(const char *dir)
{
	struct run_files files;
	bool held = false;

	if (run_files_list(dir, NULL, &files) < 0)
		return true;
	for (size_t i = 0; i < files.n; i++)
		held |= strcmp(files.file[i].path, ARTIFACT_SPEC) != 0;
	run_files_finish(&files);
	return held;
}

/* The parent of the runs' directories: it may have been removed under gpt2d. */
static int make_runs_dir(const char *state_dir, const char *runs)
{
	if (mkdir(runs, DIR_MODE) < 0)
		return errno == EEXIST ? 0 : -errno;
	return filesystem_sync(state_dir);
}

/*
 * A directory that is there was made ready before gpt2d went away, or has artifacts: of this run
 * from a time that a restored database knows nothing of. Those stay, and this is its next attempt.
 * Its name is durable before anything is trained: to sync what is in a directory promises nothing
 * of its own name, and who made one that is there may have been killed before the sync.
 */
static int make_own_dir(struct attempt *a)
{
	char runs[PATH_MAX];
	int rc;

	if (snprintf(runs, sizeof(runs), "%s/" STATE_RUNS, a->daemon->state_dir) >= PATH_MAX)
		return -ENAMETOOLONG;
	rc = make_runs_dir(a->daemon->state_dir, runs);
	while (rc == 0 && mkdir(a->dir, DIR_MODE) < 0) {
		if (errno != EEXIST)
			return -errno;
		if (!holds_artifacts(a->dir))
			break;
		a->place.attempt++;
		rc = run_dir(&a->place, a->daemon->state_dir, a->dir, sizeof(a->dir));
	}
	return rc < 0 ? rc : filesystem_sync(runs);
}

static int make_run_dir(struct attempt *a)
{
	char path[PATH_MAX];
	int rc = make_own_dir(a);

	if (rc < 0 || !a->spec->has_arms)
		return rc;
	rc = segments_dir(a, path);
	if (rc == 0)
		rc = make_dir(path);
	if (rc < 0)
		return rc;
	return artifact_write(a->dir, ARTIFACT_SPEC, a->spec_text, strlen(a->spec_text));
}

/* As many as are wanted, and one sync for all of their names. */
static int make_segment_dirs(const struct attempt *a)
{
	char path[PATH_MAX];
	int rc = 0;

	for (int64_t i = a->dirs; i < a->dirs_wanted && rc == 0; i++) {
		rc = attempt_segment_dir(a, i, path);
		if (rc == 0)
			rc = make_dir(path);
	}
	if (rc == 0)
		rc = segments_dir(a, path);
	return rc < 0 ? rc : filesystem_sync(path);
}

static int make_dirs(struct attempt *a)
{
	int rc = a->dirs == 0 ? make_run_dir(a) : 0;

	return rc == 0 && a->spec->has_arms ? make_segment_dirs(a) : rc;
}

static int dirs_work(void *arg)
{
	struct attempt *a = arg;
	char path[PATH_MAX];
	const bool gone = !a->prepared && store_gone(a->daemon->store);
	int rc = gone ? -ESTALE : make_dirs(a);

	a->found.rc = 0;
	if (gone) {
		failure_describe(store_path(a->daemon->store), rc, &a->found);
	} else if (failure_is_full(rc) && !a->prepared) {
		failure_describe(dirname(strcpy(path, a->dir)), rc, &a->found);
		strcpy(a->found.path, a->dir);
	}
	return rc;
}

static int discard_work(void *arg)
{
	struct attempt *a = arg;
	char path[PATH_MAX];

	for (int64_t i = 0; a->spec && a->spec->has_arms && i < a->dirs; i++)
		if (attempt_segment_dir(a, i, path) == 0)
			rmdir(path);
	if (segments_dir(a, path) == 0)
		rmdir(path);
	if (snprintf(path, sizeof(path), "%s/%s", a->dir, ARTIFACT_SPEC) < PATH_MAX)
		unlink(path);
	rmdir(a->dir);
	return 0;
}

/* The first segment that nothing was written of and nothing is any more. */
static int64_t first_unwritten(const struct attempt *a)
{
	const bool cancelled = a->sent > 0 && a->told[a->sent - 1] == ATTEMPT_CANCELLED;

	return cancelled ? a->sent - 1 : a->sent;
}

static int trim_work(void *arg)
{
	const struct attempt *a = arg;
	char path[PATH_MAX];

	for (int64_t i = first_unwritten(a); i < a->dirs; i++)
		if (attempt_segment_dir(a, i, path) == 0)
			rmdir(path);
	return 0;
}

static int start_job(struct attempt *a, int (*work)(void *arg))
{
	int rc = record_files(a->daemon->store, work, on_job, a);

	a->working = rc == 0;
	return rc;
}

static void want_dirs(struct attempt *a)
{
	int64_t wanted = a->sent + DIRS_AHEAD;
	int rc;

	if (wanted > a->run->segments)
		wanted = a->run->segments;
	if (a->working || (a->prepared && a->dirs >= wanted))
		return;
	a->dirs_wanted = wanted;
	rc = start_job(a, dirs_work);
	if (rc < 0)
		failed(a, "no_memory: %s", a->dir);
}

static void say_room(const struct attempt *a)
{
	char why[FAILURE_TEXT_BYTES];

	if (a->found.rc < 0)
		log_write(LOG_WARNING, "run %lld waits: %s; tried again every second",
			(long long)a->run->id, failure_room(&a->found, why));
	else
		log_write(
			LOG_INFO, "run %lld: %s can be made again", (long long)a->run->id, a->dir);
}

static void on_job(void *arg, int rc)
{
	struct attempt *a = arg;

	a->working = false;
	if (a->discarded && a->dirs_wanted > 0) {
		a->dirs = a->dirs_wanted;
		a->dirs_wanted = 0;
		if (start_job(a, discard_work) == 0)
			return;
	}
	if (a->doomed) {
		release(a);
		return;
	}
	if (a->lack.rc != a->found.rc)
		say_room(a);
	a->lack = a->found;
	if (a->lack.rc < 0)
		return; /* until attempt_retry */
	if (rc < 0) {
		failed(a, "%s: %s: %s", rc == -ENOSPC ? "enospc" : "io", a->dir, strerror(-rc));
		return;
	}
	if (a->run->attempt != a->place.attempt)
		log_write(LOG_WARNING,
			"run %lld: its folder has artifacts already, which are left as they are:"
			" it goes to %s",
			(long long)a->run->id, a->dir);
	a->run->attempt = a->place.attempt;
	a->prepared = true;
	a->dirs = a->dirs_wanted;
	a->changed(a, NULL, a->arg);
}

void attempt_retry(struct attempt *a)
{
	if (a->lack.rc < 0)
		want_dirs(a);
}

void attempt_end(struct attempt *a)
{
	a->doomed = true;
	if (a->working)
		return;
	if (a->spec == NULL || !a->spec->has_arms || first_unwritten(a) >= a->dirs ||
		start_job(a, trim_work) < 0)
		release(a);
}

void attempt_discard(struct attempt *a)
{
	a->discarded = true;
	a->doomed = true;
	if (a->working)
		return;
	a->dirs_wanted = 0;
	if (!a->prepared || start_job(a, discard_work) < 0)
		release(a);
}

/* ---- spec ---- */

static int read_spec(struct attempt *a, const char *canonical)
{
	struct spec_options options = {.world = (int)a->daemon->settings->ranks};
	struct spec_errors *errors = calloc(1, sizeof(*errors));
	int rc;

	if (errors == NULL) {
		failed(a, "no_memory: to read its spec");
		return -ENOMEM;
	}
	rc = spec_parse(canonical, strlen(canonical), &options, &a->spec, errors);
	if (rc < 0)
		failed(a, "spec: %s: %s", errors->n > 0 ? errors->error[0].key : "",
			errors->n > 0 ? errors->error[0].message : strerror(-rc));
	free(errors);
	if (rc < 0)
		return rc;
	a->order = calloc(spec_segments(a->spec), sizeof(*a->order));
	a->told = calloc(spec_segments(a->spec), sizeof(*a->told));
	if (!a->order || !a->told) {
		failed(a, "no_memory: for the order of its segments");
		return -ENOMEM;
	}
	if ((int64_t)spec_segments(a->spec) != a->run->segments) {
		failed(a, "spec: %zu segments, %lld were stored", spec_segments(a->spec),
			(long long)a->run->segments);
		return -EINVAL;
	}
	spec_order(a->spec, a->order);
	return 0;
}

static void on_spec(void *arg, int rc, const char *canonical)
{
	struct attempt *a = arg;

	a->working = false;
	if (a->doomed) {
		release(a);
		return;
	}
	if (rc < 0)
		failed(a, "store: the spec cannot be read: %s", store_error_text(rc));
	else if (read_spec(a, canonical) == 0) {
		a->spec_text = memory_text(canonical);
		want_dirs(a);
	}
}

int attempt_create(struct daemon *d, struct run *run,
	void (*changed)(struct attempt *a, const char *failure, void *arg), void *arg,
	struct attempt **out)
{
	struct attempt *a = calloc(1, sizeof(*a));
	int rc;

	if (a == NULL)
		return -ENOMEM;
	a->daemon = d;
	a->run = run;
	a->place = *run;
	a->changed = changed;
	a->arg = arg;
	rc = run_dir(run, d->state_dir, a->dir, sizeof(a->dir));
	if (rc == 0)
		rc = record_spec(d->store, run->id, on_spec, a);
	if (rc < 0) {
		free(a);
		return rc;
	}
	a->working = true;
	*out = a;
	return 0;
}

bool attempt_ready(const struct attempt *a)
{
	return a->prepared && a->sent < a->dirs;
}

void attempt_look_ahead(struct attempt *a)
{
	if (a->dirs - a->sent <= DIRS_AHEAD / 2)
		want_dirs(a);
}

int attempt_segment_gpus(const struct attempt *a, int64_t i)
{
	return (int)a->spec->arms[a->order[i].arm].config.gpus;
}

bool attempt_segment_reads(const struct attempt *a, int64_t i)
{
	const struct spec_config *config = &a->spec->arms[a->order[i].arm].config;

	return config->data_train[0] != '\0' || config->data_val[0] != '\0';
}

json_t *attempt_segment_start(const struct attempt *a, int64_t i)
{
	const struct design_segment *s = &a->order[i];
	struct data_roots roots = settings_data_roots(a->daemon->settings);
	char dir[PATH_MAX];

	if (attempt_segment_dir(a, i, dir) < 0)
		return NULL;
	return json_pack("{sI sI sI ss sI sI sI si ss ss ss so sO*}", "run",
		(json_int_t)a->run->id, "segment", (json_int_t)i, "segments",
		(json_int_t)a->run->segments, "arm", a->spec->arms[s->arm].name, "block",
		(json_int_t)s->block, "position", (json_int_t)s->position, "attempt",
		(json_int_t)a->run->attempt, "world", attempt_segment_gpus(a, i), "dir", dir,
		"spec", a->spec_text, "spec_sha256", a->run->spec_sha256, "data_roots",
		data_roots_json(&roots), "data", a->data);
}

/* ---- the end ---- */

static int finish_work(void *arg)
{
	struct attempt *a = arg;
	char line[PATH_MAX + 512], at[CLOCK_TEXT_BYTES];
	char wall[SPEC_JSON_REAL_BYTES], rate[SPEC_JSON_REAL_BYTES];
	double wall_s = (double)(clock_mono_ns() - a->started_ns) / 1e9;
	int n, rc;

	clock_text(clock_utc_ns(), at);
	spec_json_format_real(wall_s, wall);
	spec_json_format_real(a->tokens / wall_s, rate);
	n = snprintf(line, sizeof(line),
		"[Rank 0] RUN_COMPLETE checkpoint_path=%s world_size=%lld tokens_per_sec=%s"
		" total_wall_time_sec=%s timestamp_utc=%s run_id=%lld segments=%lld"
		" spec_sha256=%s\n",
		a->dir, (long long)a->run->gpus, rate, wall, at, (long long)a->run->id,
		(long long)a->run->segments, a->run->spec_sha256);
	if (n < 0 || (size_t)n >= sizeof(line))
		return -ENAMETOOLONG;
	rc = artifact_write(a->dir, ARTIFACT_COMPLETE, line, (size_t)n);
	if (rc < 0)
		marker_remove(a->dir); /* it may be there, and not be durable */
	return rc;
}

static void on_finished(void *arg, int rc)
{
	struct attempt *a = arg;

	a->working = false;
	if (a->doomed)
		release(a);
	else
		a->complete(a, rc, a->arg);
}

int attempt_finish(struct attempt *a, void (*complete)(struct attempt *a, int rc, void *arg))
{
	int rc;

	if (!a->spec->has_arms) { /* the engine wrote it */
		complete(a, 0, a->arg);
		return 0;
	}
	a->complete = complete;
	rc = record_files(a->daemon->store, finish_work, on_finished, a);
	a->working = rc == 0;
	return rc;
}
