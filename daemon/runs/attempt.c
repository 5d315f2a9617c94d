#include "daemon/runs/attempt.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/host/clock.h"
#include "proto/host/filesystem.h"
#include "daemon/config/log.h"
#include "daemon/config/settings.h"
#include "proto/state_files.h"
#include "daemon/runs/experiment.h"
#include "daemon/runs/checkpoints.h"
#include "daemon/runs/run_files.h"
#include "daemon/store/record.h"
#include "proto/artifact.h"
#include "proto/host/data_roots.h"
#include "proto/host/memory.h"
#include "proto/spec/spec_json.h"

enum { DIR_MODE = 0750 };

struct attempt {
	struct attempt_options options;
	struct run *run;
	struct spec *spec;
	char *spec_text; /* canonical */
	struct design_segment *order;
	struct experiment *experiment; /* NULL: no arms */
	json_t *resume; /* of each arm: folders of checkpoints for its resume_from, or null */
	int64_t first;  /* the first segment to train: earlier ones are done */
	/*
	 * The run as it was prepared: its ID, name and the attempt whose directory dir is. That may
	 * be a later attempt than the run's until this one starts.
	 */
	struct run place;
	char dir[PATH_MAX];
	bool prepared;  /* make_work has run */
	int jobs;       /* in the store's thread */
	bool ended;     /* freed when the last job comes back */
	bool discarded; /* dir goes before that */

	/* attempt_complete */
	struct attempt_completion completion;
	void (*completed)(void *arg, int rc);
	void *completed_arg;

	/* attempt_inspect */
	int64_t n_reports;
	const unsigned char *reports;
	json_t *found;
	void (*inspected)(void *arg, int rc, json_t *found);
	void *inspected_arg;
};

static void release(struct attempt *a)
{
	spec_free(a->spec);
	free(a->spec_text);
	json_decref(a->found);
	json_decref(a->resume);
	free(a->order);
	free(a);
}

static void start_job(struct attempt *a, int (*work)(void *arg), void (*done)(void *arg, int rc))
{
	a->jobs++;
	record_files(a->options.store, work, done, a);
}

/* ---- the directory, in the store's thread: reads place, dir, spec ---- */

int attempt_segment_dir(const struct attempt *a, int64_t segment, char *out)
{
	if (a->spec->has_arms)
		return run_segment_dir(a->dir, segment, attempt_arm(a, segment), out, PATH_MAX);
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

/* Whether dir has files that preparing a run does not write. */
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

/* The parent of the runs' directories: somebody may have removed it while gpt2d runs. */
static int make_runs_dir(const char *state_dir, const char *runs)
{
	if (mkdir(runs, DIR_MODE) < 0)
		return errno == EEXIST ? 0 : -errno;
	return filesystem_sync(state_dir);
}

/*
 * An existing directory was prepared before gpt2d restarted, or has artifacts of this run that a
 * restored database does not know. Such artifacts stay, and the run uses the directory of its next
 * attempt. The sync makes the directory's name durable before any training.
 */
static int make_own_dir(struct attempt *a)
{
	const char *state_dir = a->options.state_dir;
	char runs[PATH_MAX];
	int rc;

	if (snprintf(runs, sizeof(runs), "%s/" STATE_RUNS, state_dir) >= PATH_MAX)
		return -ENAMETOOLONG;
	/* nothing is created in a directory that replaced the state directory */
	rc = store_gone(a->options.store) ? -ESTALE : make_runs_dir(state_dir, runs);
	while (rc == 0 && mkdir(a->dir, DIR_MODE) < 0) {
		if (errno != EEXIST)
			return -errno;
		if (a->first > 0 || !holds_artifacts(a->dir))
			break;
		a->place.attempt++;
		rc = run_dir(&a->place, state_dir, a->dir, sizeof(a->dir));
	}
	return rc < 0 ? rc : filesystem_sync(runs);
}

/* An engine makes the directory of each segment below it. */
static int make_work(void *arg)
{
	struct attempt *a = arg;
	char path[PATH_MAX];
	int rc = make_own_dir(a);

	if (rc == 0 && a->first > 0)
		rc = run_files_remove_marker(a->dir);
	if (rc < 0 || !a->spec->has_arms)
		return rc;
	rc = segments_dir(a, path);
	if (rc == 0)
		rc = make_dir(path);
	if (rc < 0)
		return rc;
	return artifact_write(a->dir, ARTIFACT_SPEC, a->spec_text, strlen(a->spec_text));
}

static int discard_work(void *arg)
{
	struct attempt *a = arg;
	char path[PATH_MAX];

	if (a->first > 0)
		return 0;
	if (segments_dir(a, path) == 0)
		rmdir(path);
	if (snprintf(path, sizeof(path), "%s/%s", a->dir, ARTIFACT_SPEC) < PATH_MAX)
		unlink(path);
	rmdir(a->dir);
	return 0;
}

/* ---- in the event loop ---- */

static void on_cleared(void *arg, int rc)
{
	release(arg);
}

/* Nobody needs the attempt any more. */
static void clear(struct attempt *a)
{
	if (a->jobs > 0)
		return;
	if (a->discarded && a->prepared)
		start_job(a, discard_work, on_cleared);
	else
		release(a);
}

/* A job has returned: whether somebody needs the attempt. */
static bool job_back(struct attempt *a)
{
	const bool ended = a->ended;

	a->jobs--;
	if (ended)
		clear(a);
	return !ended;
}

/* format: "code: text". */
__attribute__((format(printf, 2, 3))) static void fail(struct attempt *a, const char *format, ...)
{
	char failure[RUN_REASON_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(failure, sizeof(failure), format, args);
	va_end(args);
	a->options.changed(a->options.arg, a, failure);
}

static void on_made(void *arg, int rc)
{
	struct attempt *a = arg;

	a->prepared = true;
	if (!job_back(a))
		return;
	if (rc < 0) {
		fail(a, "%s: %.800s: %s", artifact_failure_code(rc), a->dir, strerror(-rc));
		return;
	}
	if (a->run->attempt != a->place.attempt)
		log_write(LOG_WARNING,
			"run %lld: its directory has artifacts already, which gpt2d keeps; the run"
			" uses %s",
			(long long)a->run->id, a->dir);
	a->run->attempt = a->place.attempt;
	a->options.changed(a->options.arg, a, NULL);
}

/* False: changed() got the failure. */
static bool read_spec(struct attempt *a, const char *canonical)
{
	struct spec_options options = {.world = (int)settings_world(a->options.settings)};
	struct spec_errors *errors = memory_zeroed(1, sizeof(*errors));
	int rc = spec_parse(canonical, strlen(canonical), &options, &a->spec, errors);

	if (rc < 0)
		fail(a, "spec: %s: %s", errors->n > 0 ? errors->error[0].key : "",
			errors->n > 0 ? errors->error[0].message : strerror(-rc));
	free(errors);
	if (rc < 0)
		return false;
	if (attempt_segments_most(a) < a->run->segments) {
		fail(a, "spec: at most %lld segments, %lld were stored",
			(long long)attempt_segments_most(a), (long long)a->run->segments);
		return false;
	}
	a->spec_text = memory_text(canonical);
	if (a->spec->has_arms)
		a->order = experiment_order(a->spec);
	else
		a->order = memory_zeroed(1, sizeof(*a->order));
	return true;
}

static void on_segments(void *arg, int rc, json_t *rows)
{
	struct attempt *a = arg;

	if (!job_back(a)) {
		json_decref(rows);
	} else if (rc < 0) {
		fail(a, "store: the segments cannot be read: %s", store_error_text(rc));
	} else {
		a->experiment = experiment_create(a->spec, a->run, a->order, rows);
		a->first = experiment_begun(a->experiment);
		start_job(a, make_work, on_made);
	}
}

static void read_stored(struct attempt *a);

/* The run that an arm's resume_from names. Without it the engine refuses the segment. */
static void on_resume(void *arg, int rc, json_t *folders)
{
	struct attempt *a = arg;

	if (!job_back(a)) {
		json_decref(folders);
	} else if (rc < 0 && rc != -ENOENT) {
		fail(a, "store: the run of resume_from cannot be read: %s", store_error_text(rc));
	} else {
		json_array_append_new(a->resume, folders ? folders : json_array());
		read_stored(a);
	}
}

/* Reads from the store the data of each arm, one after another, then of the segments. */
static void read_stored(struct attempt *a)
{
	int64_t id = 0;

	for (; json_array_size(a->resume) < a->spec->n_arms && id == 0;) {
		id = spec_run_id(a->spec->arms[json_array_size(a->resume)].config.resume_from);
		if (id == 0)
			json_array_append_new(a->resume, json_null());
	}
	if (id > 0) {
		a->jobs++;
		checkpoints_find(a->options.store, a->options.state_dir, id, on_resume, a);
	} else if (a->spec->has_arms) {
		a->jobs++;
		record_segments(a->options.store, a->options.state_dir, a->run->id, on_segments, a);
	} else {
		start_job(a, make_work, on_made);
	}
}

static void on_spec(void *arg, int rc, const char *canonical)
{
	struct attempt *a = arg;

	if (!job_back(a))
		return;
	if (rc < 0) {
		fail(a, "store: the spec cannot be read: %s", store_error_text(rc));
	} else if (read_spec(a, canonical)) {
		a->resume = json_array();
		read_stored(a);
	}
}

int attempt_create(const struct attempt_options *options, struct run *run, struct attempt **out)
{
	struct attempt *a = memory_zeroed(1, sizeof(*a));
	int rc;

	a->options = *options;
	a->run = run;
	a->place = *run;
	rc = run_dir(run, options->state_dir, a->dir, sizeof(a->dir));
	if (rc < 0) {
		free(a);
		return rc;
	}
	a->jobs++;
	record_spec(options->store, run->id, on_spec, a);
	*out = a;
	return 0;
}

void attempt_end(struct attempt *a)
{
	experiment_destroy(a->experiment);
	a->experiment = NULL;
	a->ended = true;
	clear(a);
}

void attempt_discard(struct attempt *a)
{
	a->discarded = true;
	attempt_end(a);
}

bool attempt_ready(const struct attempt *a)
{
	return a->prepared;
}

struct run *attempt_run(const struct attempt *a)
{
	return a->run;
}

struct experiment *attempt_experiment(const struct attempt *a)
{
	return a->experiment;
}

int64_t attempt_segments_most(const struct attempt *a)
{
	return a->spec->has_arms ? experiment_segments_most(a->spec) : 1;
}

const struct spec *attempt_spec(const struct attempt *a)
{
	return a->spec;
}

const struct design_segment *attempt_segment(const struct attempt *a, int64_t segment)
{
	return &a->order[segment];
}

static const struct spec_arm *arm_of(const struct attempt *a, int64_t segment)
{
	return &a->spec->arms[a->order[segment].arm];
}

const char *attempt_arm(const struct attempt *a, int64_t segment)
{
	return arm_of(a, segment)->name;
}

const char *attempt_dir(const struct attempt *a)
{
	return a->dir;
}

int attempt_segment_gpus(const struct attempt *a, int64_t segment)
{
	return (int)arm_of(a, segment)->config.gpus;
}

bool attempt_segment_reads(const struct attempt *a, int64_t segment)
{
	const char *path;

	return spec_file_key(&arm_of(a, segment)->config, &path) != NULL;
}

json_t *attempt_segment_start(const struct attempt *a, int64_t segment, json_t *data)
{
	const struct design_segment *s = &a->order[segment];
	struct data_roots roots = settings_data_roots(a->options.settings);
	json_t *resume = json_array_get(a->resume, s->arm), *restart = NULL;
	char dir[PATH_MAX];

	if (attempt_segment_dir(a, segment, dir) < 0)
		return NULL;
	/* a segment of an experiment is a measurement, and is repeated from its beginning */
	if (!a->spec->has_arms && a->run->attempt > 1)
		restart = checkpoints_folders(a->run, a->options.state_dir, a->run->attempt - 1);
	return json_pack("{sI sI sI ss sI sI sI si ss ss ss so sO* sO* so*}", "run",
		(json_int_t)a->run->id, "segment", (json_int_t)segment + 1, "segments",
		(json_int_t)a->run->segments, "arm", attempt_arm(a, segment), "block",
		(json_int_t)s->block + 1, "position", (json_int_t)s->position + 1, "attempt",
		(json_int_t)a->run->attempt, "world", attempt_segment_gpus(a, segment), "dir", dir,
		"spec", a->spec_text, "spec_sha256", a->run->spec_sha256, "data_roots",
		data_roots_json(&roots), "data", data, "resume",
		json_is_array(resume) ? resume : NULL, "restart", restart);
}

/* ---- the completion marker of an experiment ---- */

static int complete_work(void *arg)
{
	struct attempt *a = arg;
	char line[PATH_MAX + 512], at[CLOCK_TEXT_BYTES];
	char wall[SPEC_JSON_REAL_BYTES], rate[SPEC_JSON_REAL_BYTES];
	const struct attempt_completion *c = &a->completion;
	double wall_s = (double)(clock_mono_ns() - c->started_ns) / 1e9;
	int n, rc;

	clock_text(clock_utc_ns(), at);
	spec_json_format_real(wall_s, wall);
	spec_json_format_real(c->tokens / wall_s, rate);
	n = snprintf(line, sizeof(line),
		"[Rank 0] RUN_COMPLETE checkpoint_path=%s world_size=%lld tokens_per_sec=%s"
		" total_wall_time_sec=%s timestamp_utc=%s run_id=%lld segments=%lld"
		" spec_sha256=%s%s\n",
		a->dir, (long long)a->run->gpus, rate, wall, at, (long long)a->run->id,
		(long long)c->segments, a->run->spec_sha256, c->hashes);
	if (n < 0 || (size_t)n >= sizeof(line))
		return -ENAMETOOLONG;
	rc = artifact_write(a->dir, ARTIFACT_COMPLETE, line, (size_t)n);
	if (rc < 0)
		run_files_remove_marker(a->dir); /* the marker may exist without being durable */
	return rc;
}

static void on_completed(void *arg, int rc)
{
	struct attempt *a = arg;

	if (job_back(a))
		a->completed(a->completed_arg, rc);
}

void attempt_complete(struct attempt *a, const struct attempt_completion *completion,
	void (*done)(void *arg, int rc), void *arg)
{
	if (!a->spec->has_arms) {
		done(arg, 0);
		return;
	}
	a->completion = *completion;
	a->completed = done;
	a->completed_arg = arg;
	start_job(a, complete_work, on_completed);
}

/* ---- the marker of a segment that failed ---- */

struct unmark {
	struct attempt *a;
	char dir[PATH_MAX];
};

static int unmark_work(void *arg)
{
	const struct unmark *u = arg;

	return run_files_remove_marker(u->dir);
}

static void on_unmarked(void *arg, int rc)
{
	struct unmark *u = arg;
	struct attempt *a = u->a;

	if (rc < 0)
		log_write(LOG_ERROR, "run %lld: %s/" ARTIFACT_COMPLETE ": cannot be removed: %s",
			(long long)a->place.id, u->dir, strerror(-rc));
	free(u);
	job_back(a);
}

void attempt_unmark(struct attempt *a, int64_t segment)
{
	struct unmark *u = memory_zeroed(1, sizeof(*u));

	u->a = a;
	attempt_segment_dir(a, segment, u->dir);
	a->jobs++;
	record_files(a->options.store, unmark_work, on_unmarked, u);
}

/* ---- files that the engines left on disk ---- */

static void add_found(struct attempt *a, int64_t segment, const char *dir)
{
	char *artifacts, *summary = run_files_summary(dir, &artifacts);

	json_array_append_new(a->found,
		json_pack("{sI ss? ss?}", "segment", (json_int_t)segment, "summary", summary,
			"artifacts", artifacts));
	free(summary);
	free(artifacts);
}

static int inspect_segment(struct attempt *a, int64_t segment)
{
	char dir[PATH_MAX];
	bool complete;
	int rc = attempt_segment_dir(a, segment, dir);

	if (rc < 0 || a->reports[segment] == ATTEMPT_DONE)
		return rc;
	if (a->reports[segment] == ATTEMPT_FAILED)
		return run_files_remove_marker(dir);
	rc = run_files_check_marker(dir, a->run, !a->spec->has_arms, &complete);
	if (complete)
		add_found(a, segment, dir);
	return rc;
}

static int inspect_work(void *arg)
{
	struct attempt *a = arg;
	int rc = 0, one;

	run_files_sweep(a->dir);
	a->found = json_array();
	for (int64_t i = a->first; i < a->n_reports; i++) {
		one = inspect_segment(a, i);
		if (one < 0)
			rc = one;
	}
	return rc;
}

static void on_inspected(void *arg, int rc)
{
	struct attempt *a = arg;
	json_t *found = a->found;

	a->jobs--;
	a->found = NULL;
	a->inspected(a->inspected_arg, rc, found);
}

void attempt_inspect(struct attempt *a, int64_t n, const unsigned char *reports,
	void (*done)(void *arg, int rc, json_t *found), void *arg)
{
	a->n_reports = n;
	a->reports = reports;
	a->inspected = done;
	a->inspected_arg = arg;
	start_job(a, inspect_work, on_inspected);
}
