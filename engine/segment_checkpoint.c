#include "engine/segment_private.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/checkpoint/fits.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/restore.h"
#include "engine/segment.h"
#include "proto/artifact.h"
#include "proto/checkpoint.h"
#include "proto/host/clock.h"
#include "proto/host/filesystem.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"

#define NAP_NS (20 * CLOCK_MS_NS)
/*
 * While training waits for a disk, the last step's message is sent again, because gpt2d takes
 * silence for a hang.
 */
#define MESSAGE_NS (10 * CLOCK_S_NS)

/* ---- what is resumed ---- */

static void add_candidate(struct segment_resume *r, char *dir, bool asked)
{
	r->candidate = memory_resized(r->candidate, (size_t)(r->n + 1) * sizeof(*r->candidate));
	r->candidate[r->n++] = (struct segment_candidate){.dir = dir, .asked = asked};
}

/* The checkpoints of an earlier attempt, newest first. */
static void add_steps(struct segment_resume *r, const char *folder)
{
	int64_t *steps = NULL;
	int n = checkpoint_list(folder, &steps);

	for (int i = 0; i < n; i++)
		add_candidate(r, memory_printed("%s/" CHECKPOINT_STEP "%" PRId64, folder, steps[i]),
			false);
	free(steps);
}

/* The checkpoint of resume_from. */
static void add_asked(struct segment *s)
{
	struct segment_resume *r = &s->resume;
	char error[sizeof(r->missing) - 16], *dir;

	if (!s->config.resume_from[0])
		return;
	if (fits_find(&s->config, json_object_get(s->params, "resume"), &s->data_roots, &dir, error,
		    sizeof(error)) == 0)
		add_candidate(r, dir, true);
	else
		snprintf(r->missing, sizeof(r->missing), "resume_from: %s", error);
}

/* Opens the candidate in use. 0, or a negative errno with error. */
static int open_candidate(struct segment *s, char *error, size_t error_bytes)
{
	struct segment_resume *r = &s->resume;
	int rc;

	checkpoint_close(r->open);
	r->open = NULL;
	rc = checkpoint_open(r->candidate[r->at].dir, &r->open, error, error_bytes);
	if (rc == 0)
		rc = fits_config(r->open, &s->config, s->train.n_sequences, error, error_bytes);
	if (rc != 0) {
		checkpoint_close(r->open);
		r->open = NULL;
	}
	return rc;
}

/* Moves on to the next candidate, or to none. False: the current one was requested. */
static bool give_up_candidate(struct segment *s, const struct warm *w, const char *why)
{
	struct segment_resume *r = &s->resume;

	if (r->candidate[r->at].asked)
		return segment_fail(s, "checkpoint", "resume_from: %s", why);
	metrics_log_add(&s->log, "not resumed: %s", why);
	if (w->rank == 0)
		link_log(s->link, "warning", "run %" PRId64 ": not resumed: %s", s->run, why);
	r->at++;
	return true;
}

/* Without a candidate the training starts with step 1, unless it must be resumed. */
static bool resumes(struct segment *s)
{
	struct segment_resume *r = &s->resume;

	if (r->at < r->n || !r->missing[0])
		return true;
	return segment_fail(s, "checkpoint", "%s", r->missing);
}

bool segment_resume_find(struct segment *s, const struct warm *w)
{
	const json_t *folders = json_object_get(s->params, "restart"), *folder;
	struct segment_resume *r = &s->resume;
	char error[768];
	size_t i;
	int rc;

	json_array_foreach(folders, i, folder)
		add_steps(r, json_string_value(folder));
	add_asked(s);
	while (r->at < r->n && (rc = open_candidate(s, error, sizeof(error))) != 0) {
		if (rc == -EALREADY) /* better no run than a complete repetition */
			snprintf(r->missing, sizeof(r->missing), "%s", error);
		if (!give_up_candidate(s, w, error))
			return false;
	}
	return resumes(s);
}

void segment_resume_finish(struct segment *s)
{
	struct segment_resume *r = &s->resume;

	checkpoint_close(r->open);
	for (int i = 0; i < r->n; i++)
		free(r->candidate[i].dir);
	free(r->candidate);
	*r = (struct segment_resume){0};
}

/* A rank's report about its part of the load. */
struct loaded {
	int32_t rc;
	bool other_data; /* an older checkpoint is not better */
	char why[768];
};

/* Index of the first rank that failed, world: none; -1: a peer is lost. */
static int first_failed(struct segment *s, struct warm *w, struct loaded *own)
{
	struct loaded *all = memory_zeroed((size_t)s->world, sizeof(*all));
	int failed = 0;

	if (s->world > 1) {
		collectives_gather_all(s->group, all, own, sizeof(*own), w->comm);
		if (!segment_sync(s, w)) {
			free(all);
			return -1;
		}
	} else {
		all[0] = *own;
	}
	while (failed < s->world && all[failed].rc == 0)
		failed++;
	if (failed < s->world)
		*own = all[failed];
	free(all);
	return failed;
}

static bool is_device(int rc)
{
	return rc == -ENOTRECOVERABLE || rc == -ETIMEDOUT;
}

static void log_resumed(struct segment *s, const struct warm *w)
{
	const struct checkpoint *c = s->resume.open;
	const char *sha256 = json_string_value(json_object_get(c->manifest, "spec_sha256"));

	metrics_log_add(&s->log, "resumed from %s after step %" PRId64 " of %" PRId64 "%s", c->dir,
		c->step, s->config.optimizer_steps,
		sha256 && strcmp(sha256, s->spec_sha256) == 0 ? "" : ", with another spec");
	if (w->rank == 0)
		link_log(s->link, "info",
			"run %" PRId64 ": resumed from %s after step %" PRId64 " of %" PRId64,
			s->run, c->dir, c->step, s->config.optimizer_steps);
}

/*
 * Rank 0, which has the hash. The user of resume_from may want other data, and the run's log says
 * so. A restart continues the same run, whose data must not change halfway.
 */
static void check_data(struct segment *s, struct loaded *own)
{
	char found[512];
	int rc = fits_data(s->resume.open, &s->train, s->content, found, sizeof(found));

	if (rc == -ESTALE && !s->resume.candidate[s->resume.at].asked) {
		own->rc = rc;
		own->other_data = true;
		snprintf(own->why, sizeof(own->why),
			"%s. Put the file back or keep the new one, and submit the spec again with "
			"\"resume_from\": %" PRId64,
			found, s->run);
	} else if (rc != 0) {
		metrics_log_add(&s->log, "%s", found);
		link_log(s->link, "warning", "run %" PRId64 ": %s", s->run, found);
	}
}

bool segment_resume(struct segment *s, struct warm *w)
{
	struct segment_resume *r = &s->resume;

	while (r->at < r->n) {
		struct loaded own = {0};
		int failed;

		own.rc = r->open ? 0 : open_candidate(s, own.why, sizeof(own.why));
		if (own.rc == 0 && w->rank == 0)
			check_data(s, &own);
		if (own.rc == 0)
			own.rc = restore_load(&s->training, r->open, own.why, sizeof(own.why));
		if (is_device(own.rc))
			return segment_step_failed(s, own.rc, own.why);
		failed = first_failed(s, w, &own);
		if (failed < 0)
			return false;
		if (failed == s->world) {
			restore_finish(&s->training, r->open);
			log_resumed(s, w);
			return s->measure.before == r->open->step || segment_begin_measure(s);
		}
		checkpoint_close(r->open);
		r->open = NULL;
		s->failure.silent = failed != w->rank; /* if it comes to that */
		if (own.other_data)
			return segment_fail(s, "data", "%s", own.why);
		if (!give_up_candidate(s, w, own.why))
			return false;
		s->failure.silent = false;
		training_reset(&s->training);
	}
	return resumes(s) && (s->measure.before == 0 || segment_begin_measure(s));
}

/* ---- what is written ---- */

/* On the thread of the segment. */
static void log_saver(void *arg, const char *level, const char *text)
{
	struct segment *s = arg;

	metrics_log_add(&s->log, "%s", text);
	link_log(s->link, level, "run %" PRId64 ": %s", s->run, text);
}

/* With checkpoint.dir: a folder of the run in it, and one of its segment if there are arms. */
static int folder_in(const struct segment *s, char out[PATH_MAX])
{
	const int64_t attempt = json_integer_value(json_object_get(s->params, "attempt"));
	const char *arm = json_string_value(json_object_get(s->params, "arm"));
	char suffix[32] = "", segment[SPEC_NAME_MAX + 32] = "";
	int n;

	if (attempt > 1)
		snprintf(suffix, sizeof(suffix), ".%" PRId64, attempt);
	if (s->spec->has_arms)
		snprintf(segment, sizeof(segment), ".%03" PRId64 "-%s", s->segment, arm ? arm : "");
	n = snprintf(out, PATH_MAX, "%s/%" PRId64 "-%s%s%s", s->config.checkpoint_dir, s->run,
		s->spec->name, suffix, segment);
	return n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static bool find_folder(const struct segment *s, char own[PATH_MAX], char folder[PATH_MAX])
{
	const int n = snprintf(own, PATH_MAX, "%s/" CHECKPOINT_FOLDER, s->dir);

	if (s->config.checkpoint_dir[0])
		return n < PATH_MAX && folder_in(s, folder) == 0;
	memcpy(folder, own, PATH_MAX);
	return n < PATH_MAX;
}

/* Rank 0: a new folder for the steps of this segment only. */
static bool make_folder(struct segment *s, const char *own, const char *folder)
{
	const bool outside = strcmp(own, folder) != 0;
	char parent[PATH_MAX];
	int rc = 0;

	if (mkdir(folder, 0755) < 0)
		rc = -errno;
	if (rc == -EEXIST && rmdir(folder) == 0) /* an empty one of a failed start */
		rc = mkdir(folder, 0755) < 0 ? -errno : 0;
	if (rc == -EEXIST)
		return segment_fail(s, "checkpoint",
			"%s exists already: another run has its checkpoints there. Move it away, "
			"or choose another checkpoint.dir",
			folder);
	if (rc == 0 && outside) {
		unlink(own);
		rc = symlink(folder, own) < 0 || chmod(folder, 0755) < 0 ? -errno : 0;
	}
	if (rc == 0 && outside)
		rc = filesystem_sync(s->dir);
	snprintf(parent, sizeof(parent), "%.*s", (int)(strrchr(folder, '/') - folder), folder);
	if (rc == 0)
		rc = filesystem_sync(parent);
	if (rc < 0)
		return segment_fail(s, outside ? "checkpoint" : artifact_failure_code(rc), "%s: %s",
			folder, strerror(-rc));
	return true;
}

static json_t *make_manifest(const struct segment *s)
{
	const char *arm = json_string_value(json_object_get(s->params, "arm"));
	const struct manifest_head head = {
		.run = s->run,
		.attempt = json_integer_value(json_object_get(s->params, "attempt")),
		.segment = s->segment,
		.name = s->spec->name,
		.arm = arm ? arm : "",
		.spec_text = s->spec_text,
		.spec_sha256 = s->spec_sha256,
		.data = s->data,
		.train_sequences = s->train.n_sequences,
		.config = &s->config,
		.arena = &s->training.arena,
		.plan = &s->training.plan,
	};

	return manifest_begin(&head);
}

bool segment_save_begin(struct segment *s, const struct warm *w)
{
	const json_t *older = json_object_get(s->params, "restart"), *folder;
	struct saver_segment segment = {
		.training = &s->training,
		.group = s->group,
		.keep = s->config.checkpoint_keep,
		.log = log_saver,
		.arg = s,
	};
	char own[PATH_MAX];
	size_t i;

	s->saves = spec_checkpoints(&s->config);
	if (!s->saves)
		return true;
	if (!find_folder(s, own, s->checkpoints))
		return segment_fail(
			s, "checkpoint", "%s: the path of its checkpoints is too long", s->dir);
	if (w->rank == 0 && !make_folder(s, own, s->checkpoints))
		return false;
	segment.folder = s->checkpoints;
	segment.shared = strcmp(own, s->checkpoints) != 0;
	if (w->rank == 0) {
		segment.manifest = make_manifest(s);
		segment.content = s->content;
	}
	/* if none of them could be resumed they stay, because they may be valid */
	json_array_foreach(older, i, folder)
		if ((s->resume.n == 0 || s->resume.at < s->resume.n) &&
			segment.n_older < SAVER_OLDER_MAX)
			segment.older[segment.n_older++] = json_string_value(folder);
	if (saver_begin(s->saver, &segment) == 0)
		return true;
	return segment_fail(
		s, "memory", "no host memory for the copy of a checkpoint (spec key checkpoint)");
}

bool segment_save_visible(struct segment *s, struct warm *w)
{
	struct loaded own = {0};
	int failed;

	if (!s->saves)
		return true;
	if (access(s->checkpoints, W_OK | X_OK) < 0) {
		own.rc = -errno;
		snprintf(own.why, sizeof(own.why),
			"rank %d cannot write to %.256s: %s. With several nodes checkpoint.dir, or "
			"else the state directory, must be a folder that all nodes share",
			w->rank, s->checkpoints, strerror(errno));
	}
	failed = first_failed(s, w, &own);
	if (failed < 0 || failed == s->world)
		return failed == s->world;
	s->failure.silent = failed != w->rank;
	return segment_fail(s, "checkpoint", "%s", own.why);
}

bool segment_saving(const struct segment *s)
{
	return s->saves && (saver_pending(s->saver) || !saver_idle(s->saver));
}

/* Training waits until all ranks have written the pending one. */
static bool finish_pending(struct segment *s, struct warm *w)
{
	const int64_t begin = clock_mono_ns();
	int64_t said = begin;

	while (saver_pending(s->saver)) {
		saver_wait(s->saver, NAP_NS);
		if (saver_poll(s->saver))
			return segment_lost(s, w, 0);
		if (w->rank == 0 && clock_mono_ns() - said >= MESSAGE_NS) {
			segment_send_step(s, s->link, &s->measure.own[s->measure.done - 1]);
			said = clock_mono_ns();
		}
	}
	s->saved.wait_ns += clock_mono_ns() - begin;
	return true;
}

static bool save(struct segment *s, struct warm *w)
{
	char error[sizeof(s->failure.message)];
	int rc;

	if (!finish_pending(s, w))
		return false;
	rc = saver_save(s->saver, error, sizeof(error));
	return rc == 0 || segment_step_failed(s, rc, error);
}

bool segment_save_if_due(struct segment *s, struct warm *w)
{
	const struct spec_config *c = &s->config;
	const bool last = s->measure.done == s->measure.steps;
	const int64_t step = s->training.step.attempted;

	if (!s->saves)
		return true;
	if (saver_pending(s->saver) && saver_poll(s->saver))
		return segment_lost(s, w, 0);
	if (!(c->checkpoint_every > 0 && step % c->checkpoint_every == 0) &&
		!(last && c->checkpoint_at_end))
		return true;
	return save(s, w);
}

bool segment_save_interrupted(struct segment *s, struct warm *w)
{
	const int64_t every = s->config.checkpoint_every, step = s->training.step.attempted;
	bool interrupted[SPEC_WORLD_MAX] = {strcmp(s->stop.state, "interrupted") == 0};
	const bool own = interrupted[0];

	if (!s->saves || every == 0 || step % every == 0)
		return true;
	if (s->group) {
		collectives_gather_all(s->group, interrupted, &own, sizeof(own), w->comm);
		if (!segment_sync(s, w))
			return false;
	}
	return !interrupted[0] || save(s, w);
}

bool segment_save_end(struct segment *s, struct warm *w)
{
	struct saver_made made;
	int64_t said = clock_mono_ns();

	if (!s->saves || s->failure.poisoned)
		return !s->failure.poisoned;
	if (!finish_pending(s, w))
		return false;
	while (!saver_idle(s->saver)) {
		saver_wait(s->saver, CLOCK_S_NS);
		if (clock_mono_ns() - said >= MESSAGE_NS) {
			segment_send_step(s, s->link, &s->measure.own[s->measure.done - 1]);
			said = clock_mono_ns();
		}
	}
	saver_end(s->saver, &made);
	s->saved.written = made.written;
	s->saved.lost = made.lost;
	s->saved.last = made.last;
	s->saved.bytes = made.bytes;
	s->saved.copy_ns = made.copy_ns;
	s->saved.write_ns = made.write_ns;
	return true;
}
