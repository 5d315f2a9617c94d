#include "engine/checkpoint/saver.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/shard.h"
#include "engine/comm/patience.h"
#include "proto/artifact.h"
#include "proto/checkpoint.h"
#include "proto/host/clock.h"
#include "proto/host/filesystem.h"
#include "proto/host/memory.h"
#include "proto/host/thread.h"
#include "proto/size.h"

enum { NICE = 10, ENTRIES_MAX = 1 << 16 };

enum job { JOB_NONE, JOB_SHARD, JOB_MANIFEST, JOB_DISCARD, JOB_END };

/* A rank's report about its shard. */
struct report {
	bool idle;
	int32_t rc;
	struct manifest_shard hashes;
};

struct saver {
	struct k_context *ctx;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	enum job job;
	char *buffer; /* k_alloc_host: the sections of the shard, as in the file */
	int64_t buffer_bytes;

	/* of the segment */
	struct saver_segment segment;
	struct shard shard;
	struct saver_made made;

	/* of the checkpoint in progress; owned by job's thread while there is a job */
	struct checkpoint_state state;
	struct report own;
	char *manifest;
	int manifest_rc;
	bool pending, manifest_due; /* manifest_due: its end is not reported yet */
	int64_t begun_ns;
};

/* ---- the thread: files ---- */

static int step_dir(const struct saver *s, char out[PATH_MAX])
{
	int n = snprintf(out, PATH_MAX, "%s/" CHECKPOINT_STEP "%" PRId64, s->segment.folder,
		s->state.attempted);

	return n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* Hashes a section while the shard is written: one after the other would take twice as long. */
struct section {
	pthread_t thread;
	bool started;
	const char *bytes;
	size_t n;
	char *sha256;
	int rc;
};

static void *hash_section(void *arg)
{
	struct section *h = arg;

	h->rc = artifact_sha256(h->bytes, h->n, h->sha256);
	return NULL;
}

/* Without a thread, a section is hashed here. */
static void hash_begin(const char *all, size_t bytes, struct manifest_shard *hashes,
	struct section sections[CHECKPOINT_SECTIONS])
{
	for (int i = 0; i < CHECKPOINT_SECTIONS; i++) {
		struct section *h = &sections[i];

		*h = (struct section){
			.bytes = all + (size_t)i * bytes, .n = bytes, .sha256 = hashes->sha256[i]};
		h->started = thread_start(&h->thread, hash_section, h, "hash") == 0;
		if (!h->started)
			hash_section(h);
	}
}

static int hash_end(struct section sections[CHECKPOINT_SECTIONS])
{
	int rc = 0;

	for (int i = 0; i < CHECKPOINT_SECTIONS; i++) {
		if (sections[i].started)
			pthread_join(sections[i].thread, NULL);
		rc = sections[i].rc < 0 ? sections[i].rc : rc;
	}
	return rc;
}

static mode_t file_mode(const struct saver *s)
{
	return s->segment.shared ? 0644 : 0;
}

static int write_shard(struct saver *s)
{
	const struct training *t = s->segment.training;
	const size_t bytes = (size_t)(s->shard.elems * CHECKPOINT_ELEM_BYTES); /* of a section */
	const char *all = s->buffer ? s->buffer : "";                          /* no elements */
	struct section sections[CHECKPOINT_SECTIONS];
	char dir[PATH_MAX], file[MANIFEST_FILE_BYTES];
	int rc = step_dir(s, dir), hashed;

	if (rc == 0 && mkdir(dir, 0755) < 0 && errno != EEXIST)
		rc = -errno;
	if (rc == 0 && s->segment.shared && chmod(dir, 0755) < 0)
		rc = -errno;
	if (rc == 0)
		rc = filesystem_sync(s->segment.folder);
	if (rc < 0)
		return rc;
	manifest_file(t->warm->rank, t->plan.world, file);
	hash_begin(all, bytes, &s->own.hashes, sections);
	rc = artifact_write_mode(dir, file, all, bytes * CHECKPOINT_SECTIONS, file_mode(s));
	hashed = hash_end(sections);
	return rc < 0 ? rc : hashed;
}

/* Removes a checkpoint, the manifest first: without it the rest is invalid. */
static void remove_step(const char *dir)
{
	const struct dirent *entry;
	DIR *stream;

	if (artifact_remove(dir, CHECKPOINT_MANIFEST) < 0)
		return;
	stream = opendir(dir);
	if (stream == NULL)
		return;
	while ((entry = readdir(stream)) != NULL)
		unlinkat(dirfd(stream), entry->d_name, 0);
	closedir(stream);
	rmdir(dir);
}

/* Keeps the first *keep. Also removes folders of steps without a manifest that nobody writes. */
static void prune(const char *folder, bool ended, int64_t *keep)
{
	int64_t *steps = NULL;
	int n = checkpoint_list(folder, &steps);
	const struct dirent *entry;
	char dir[PATH_MAX];
	DIR *stream;

	for (int i = 0; i < n; i++) {
		snprintf(dir, sizeof(dir), "%s/" CHECKPOINT_STEP "%" PRId64, folder, steps[i]);
		if (*keep > 0)
			--*keep;
		else
			remove_step(dir);
	}
	free(steps);
	stream = ended ? opendir(folder) : NULL;
	for (int i = 0; stream && i < ENTRIES_MAX && (entry = readdir(stream)) != NULL; i++) {
		snprintf(dir, sizeof(dir), "%s/" CHECKPOINT_MANIFEST, entry->d_name);
		if (strncmp(entry->d_name, CHECKPOINT_STEP, strlen(CHECKPOINT_STEP)) != 0 ||
			faccessat(dirfd(stream), dir, F_OK, 0) == 0)
			continue;
		if (snprintf(dir, sizeof(dir), "%s/%s", folder, entry->d_name) < PATH_MAX)
			remove_step(dir);
	}
	if (stream)
		closedir(stream);
}

/* Files written before the manifest are durable by now. */
static int write_manifest(struct saver *s)
{
	int64_t keep = s->segment.keep;
	char dir[PATH_MAX];
	int rc = step_dir(s, dir);

	if (rc == 0)
		rc = artifact_write_mode(
			dir, CHECKPOINT_MANIFEST, s->manifest, strlen(s->manifest), file_mode(s));
	if (rc < 0) {
		if (rc != -ENAMETOOLONG)
			remove_step(dir);
		return rc;
	}
	prune(s->segment.folder, false, &keep);
	for (int i = 0; i < s->segment.n_older; i++)
		prune(s->segment.older[i], true, &keep);
	return 0;
}

static void discard(struct saver *s)
{
	char dir[PATH_MAX];

	if (step_dir(s, dir) == 0)
		remove_step(dir);
}

static void *run(void *arg)
{
	struct saver *s = arg;
	enum job job;

	/* of this thread only: on the CPU the ranks' threads come first */
	setpriority(PRIO_PROCESS, 0, NICE);
	for (;;) {
		pthread_mutex_lock(&s->lock);
		while (s->job == JOB_NONE)
			pthread_cond_wait(&s->changed, &s->lock);
		job = s->job;
		pthread_mutex_unlock(&s->lock);
		if (job == JOB_END)
			return NULL;
		if (job == JOB_SHARD)
			s->own.rc = write_shard(s);
		else if (job == JOB_MANIFEST)
			s->manifest_rc = write_manifest(s);
		else
			discard(s);
		pthread_mutex_lock(&s->lock);
		s->job = JOB_NONE;
		pthread_cond_broadcast(&s->changed);
		pthread_mutex_unlock(&s->lock);
	}
}

static void give(struct saver *s, enum job job)
{
	pthread_mutex_lock(&s->lock);
	s->job = job;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

bool saver_idle(struct saver *s)
{
	bool idle;

	pthread_mutex_lock(&s->lock);
	idle = s->job == JOB_NONE;
	pthread_mutex_unlock(&s->lock);
	return idle;
}

void saver_wait(struct saver *s, int64_t ns)
{
	const struct timespec until = clock_timespec(clock_mono_ns() + ns);
	int status = 0;

	pthread_mutex_lock(&s->lock);
	while (s->job != JOB_NONE && status != ETIMEDOUT)
		status = pthread_cond_timedwait(&s->changed, &s->lock, &until);
	pthread_mutex_unlock(&s->lock);
}

/* ---- create, destroy ---- */

int saver_create(struct k_context *ctx, struct saver **out)
{
	struct saver *s = memory_zeroed(1, sizeof(*s));
	int rc;

	s->ctx = ctx;
	pthread_mutex_init(&s->lock, NULL);
	thread_condition_init(&s->changed);
	rc = thread_start(&s->thread, run, s, "saver");
	if (rc) {
		pthread_cond_destroy(&s->changed);
		pthread_mutex_destroy(&s->lock);
		free(s);
		return rc;
	}
	*out = s;
	return 0;
}

static void leave_segment(struct saver *s)
{
	shard_finish(&s->shard);
	json_decref(s->segment.manifest);
	free(s->manifest);
	s->manifest = NULL;
	s->segment = (struct saver_segment){0};
	s->pending = s->manifest_due = false;
}

void saver_destroy(struct saver *s)
{
	if (!s)
		return;
	while (!saver_idle(s))
		saver_wait(s, CLOCK_S_NS);
	give(s, JOB_END);
	pthread_join(s->thread, NULL);
	leave_segment(s);
	k_free_host(s->ctx, s->buffer);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

/* ---- a segment ---- */

int saver_begin(struct saver *s, const struct saver_segment *segment)
{
	const struct training *t = segment->training;
	int64_t bytes;

	while (!saver_idle(s)) /* of a segment that failed */
		saver_wait(s, CLOCK_S_NS);
	leave_segment(s);
	s->segment = *segment;
	s->made = (struct saver_made){0};
	shard_written(&t->plan, t->config->zero_stage, t->warm->rank, &s->shard);
	bytes = s->shard.elems * CHECKPOINT_ELEM_BYTES * CHECKPOINT_SECTIONS;
	s->made.bytes = t->plan.param_elems * CHECKPOINT_ELEM_BYTES * CHECKPOINT_SECTIONS;
	if (bytes <= s->buffer_bytes)
		return 0;
	k_free_host(s->ctx, s->buffer);
	s->buffer = k_alloc_host(s->ctx, (size_t)bytes);
	s->buffer_bytes = s->buffer ? bytes : 0;
	if (s->buffer)
		return 0;
	leave_segment(s);
	return -ENOMEM;
}

__attribute__((format(printf, 3, 4))) static void say(
	const struct saver *s, const char *level, const char *format, ...)
{
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	s->segment.log(s->segment.arg, level, text);
}

static void report_lost(struct saver *s, int rank, int rc)
{
	s->made.lost++;
	say(s, "warning",
		"the checkpoint of step %" PRId64 " is lost: %s: rank %d: %s: %s; training "
		"continues, older checkpoints stay",
		s->state.attempted, artifact_failure_code(rc), rank, s->segment.folder,
		strerror(-rc));
}

/* Rank 0: the result of the manifest, once the thread is idle. */
static void collect(struct saver *s)
{
	const int64_t took = clock_mono_ns() - s->begun_ns;
	char size[SIZE_BYTES];

	if (!s->manifest_due)
		return;
	s->manifest_due = false;
	if (s->manifest_rc < 0) {
		report_lost(s, 0, s->manifest_rc);
		return;
	}
	s->made.written++;
	s->made.last = s->state.attempted;
	s->made.write_ns += took;
	say(s, "info", "checkpoint of step %" PRId64 ": %s written in %.3f s, beside training",
		s->state.attempted, size_text(s->made.bytes, size), (double)took / 1e9);
}

/* Copies the sections of a piece from the device to their places in the file. */
static void copy_piece(struct saver *s, const struct shard_piece *p, int64_t at)
{
	const struct k_adamw *a = &s->segment.training->optimizer.adamw;
	const k_real *sources[CHECKPOINT_SECTIONS] = {
		[CHECKPOINT_MASTER] = a->master + (a->master_compact ? p->compact : p->first),
		[CHECKPOINT_M] = a->m + p->compact,
		[CHECKPOINT_V] = a->v + p->compact,
	};
	k_real *to = (k_real *)(void *)s->buffer;

	for (int i = 0; i < CHECKPOINT_SECTIONS; i++)
		k_copy_out(s->segment.training->warm->compute, to + i * s->shard.elems + at,
			sources[i], (size_t)p->n * sizeof(*to));
}

int saver_save(struct saver *s, char *error, size_t error_bytes)
{
	const struct training *t = s->segment.training;
	const int64_t begin = clock_mono_ns();
	int64_t at = 0;
	int rc;

	while (!saver_idle(s)) /* rank 0: the manifest of the previous one */
		saver_wait(s, CLOCK_S_NS);
	collect(s);
	for (int64_t i = 0; i < s->shard.n_pieces; i++) {
		copy_piece(s, &s->shard.pieces[i], at);
		at += s->shard.pieces[i].n;
	}
	rc = step_failure(&t->step, k_stream_sync(t->warm->compute, K_WAIT_NS), error, error_bytes);
	if (rc)
		return rc;
	s->state = manifest_state(&t->step);
	s->own = (struct report){0};
	s->pending = true;
	s->begun_ns = clock_mono_ns();
	s->made.copy_ns += s->begun_ns - begin;
	give(s, JOB_SHARD);
	return 0;
}

bool saver_pending(const struct saver *s)
{
	return s->pending;
}

/* All reports, which the caller frees; NULL: a peer is lost. */
static struct report *gather_reports(struct saver *s)
{
	const struct training *t = s->segment.training;
	struct collectives_group *group = s->segment.group;
	struct report *all = memory_zeroed((size_t)t->plan.world, sizeof(*all));
	const struct patience p = {.collectives = t->warm->collectives,
		.timeout_ns = K_WAIT_NS,
		.patience_ns = PATIENCE_NS};
	const struct report busy = {0};
	const bool idle = saver_idle(s);

	s->own.idle = idle;
	if (!group) {
		all[0] = idle ? s->own : busy;
		return all;
	}
	collectives_gather_all(group, all, idle ? &s->own : &busy, sizeof(*all), t->warm->comm);
	if (patience_stream(&p, t->warm->comm) == 0 && !collectives_error(t->warm->collectives))
		return all;
	free(all);
	return NULL;
}

/* Rank 0: all shards are written, or some cannot be. */
static void conclude(struct saver *s, const struct report *all)
{
	const struct training *t = s->segment.training;
	const int world = t->plan.world;
	const char *train = NULL;
	struct manifest_shard *shards;
	int failed = 0;

	while (failed < world && all[failed].rc == 0)
		failed++;
	if (failed < world) {
		report_lost(s, failed, all[failed].rc);
		give(s, JOB_DISCARD);
		return;
	}
	shards = memory_zeroed((size_t)world, sizeof(*shards));
	for (int i = 0; i < world; i++)
		shards[i] = all[i].hashes;
	free(s->manifest);
	if (content_wait_for(s->segment.content, 0))
		train = content_train(s->segment.content);
	s->manifest =
		manifest_text(s->segment.manifest, t->config, &t->plan, train, &s->state, shards);
	free(shards);
	s->manifest_due = true;
	give(s, JOB_MANIFEST);
}

int saver_poll(struct saver *s)
{
	const int world = s->segment.training->plan.world;
	struct report *all;
	bool written = true;

	if (!s->pending)
		return 0;
	all = gather_reports(s);
	if (!all)
		return -EPIPE;
	for (int i = 0; i < world; i++)
		written = written && all[i].idle;
	if (written) {
		s->pending = false;
		if (s->segment.training->warm->rank == 0)
			conclude(s, all);
	}
	free(all);
	return 0;
}

void saver_end(struct saver *s, struct saver_made *out)
{
	collect(s);
	*out = s->made;
	leave_segment(s);
}
