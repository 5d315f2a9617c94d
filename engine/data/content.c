#include "engine/data/content.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/artifact.h"
#include "proto/digest.h"
#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/host/thread.h"

enum { READ_BYTES = 1 << 20, KEPT_MAX = 256, LINE_BYTES = 256 };
enum { TRAIN, VALIDATION, WEIGHTS, FILES };
static const char kept_name[] = "data_hashes";

struct key {
	uint64_t dev, ino;
	int64_t bytes, modified_ns, changed_ns;
};

struct file {
	bool used;
	int fd; /* its own; -1: nothing to read */
	struct key key;
	char sha256[65]; /* empty: not known */
};

struct content {
	const char *dir;
	struct file file[FILES];
	pthread_t thread;
	bool started;
	atomic_bool stop;
};

static struct key key_of(const struct dataset *d)
{
	return (struct key){(uint64_t)d->dev, (uint64_t)d->ino, d->file_bytes,
		d->modified.tv_sec * CLOCK_S_NS + d->modified.tv_nsec,
		d->changed.tv_sec * CLOCK_S_NS + d->changed.tv_nsec};
}

/* ---- the kept hashes: a line for each, the newest last ---- */

struct kept {
	struct key key;
	char sha256[65];
};

/* At most the last KEPT_MAX of them; invalid lines are omitted. */
static size_t read_kept(const char *dir, struct kept out[KEPT_MAX])
{
	char path[4096], line[LINE_BYTES];
	size_t n = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", dir, kept_name);
	file = fopen(path, "re");
	if (!file)
		return 0;
	while (fgets(line, sizeof(line), file)) {
		struct kept k;

		if (sscanf(line, "%64s %" SCNu64 " %" SCNu64 " %" SCNd64 " %" SCNd64 " %" SCNd64,
			    k.sha256, &k.key.dev, &k.key.ino, &k.key.bytes, &k.key.modified_ns,
			    &k.key.changed_ns) != 6 ||
			strlen(k.sha256) != 64)
			continue;
		if (n == KEPT_MAX)
			memmove(out, out + 1, --n * sizeof(*out));
		out[n++] = k;
	}
	fclose(file);
	return n;
}

static void look_up(const char *dir, struct file *f)
{
	struct kept *kept = memory_zeroed(KEPT_MAX, sizeof(*kept));
	size_t n = read_kept(dir, kept);

	for (size_t i = 0; i < n; i++)
		if (memcmp(&kept[i].key, &f->key, sizeof(f->key)) == 0)
			memcpy(f->sha256, kept[i].sha256, sizeof(f->sha256));
	free(kept);
}

static void put_line(FILE *to, const struct key *k, const char *sha256)
{
	fprintf(to, "%s %" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 " %" PRId64 "\n", sha256,
		k->dev, k->ino, k->bytes, k->modified_ns, k->changed_ns);
}

/* Replaces the entry of its inode by the file. If that fails, the file is hashed again later. */
static void keep(const char *dir, const struct file *f)
{
	struct kept *kept = memory_zeroed(KEPT_MAX, sizeof(*kept));
	size_t n = read_kept(dir, kept), bytes;
	char *text = NULL;
	FILE *to = open_memstream(&text, &bytes);

	if (!to)
		abort(); /* no memory */
	for (size_t i = 0; i < n; i++)
		if (kept[i].key.dev != f->key.dev || kept[i].key.ino != f->key.ino)
			put_line(to, &kept[i].key, kept[i].sha256);
	put_line(to, &f->key, f->sha256);
	fclose(to);
	mkdir(dir, 0700);
	artifact_write(dir, kept_name, text, bytes);
	free(text);
	free(kept);
}

/* ---- hashing ---- */

/* Whether the file still matches the key. */
static bool unchanged(const struct file *f)
{
	struct stat st;

	return fstat(f->fd, &st) == 0 && st.st_size == f->key.bytes &&
		st.st_mtim.tv_sec * CLOCK_S_NS + st.st_mtim.tv_nsec == f->key.modified_ns &&
		st.st_ctim.tv_sec * CLOCK_S_NS + st.st_ctim.tv_nsec == f->key.changed_ns;
}

static bool add_file(
	struct content *c, struct digest *digest, const struct file *f, char *buffer)
{
	int64_t at = 0;

	while (at < f->key.bytes && !atomic_load(&c->stop)) {
		ssize_t n = pread(f->fd, buffer, READ_BYTES, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0 || digest_add(digest, buffer, (size_t)n) < 0)
			return false;
		at += n;
	}
	return at == f->key.bytes;
}

static void hash_file(struct content *c, struct file *f)
{
	struct digest *digest = digest_create();
	char *buffer = memory_zeroed(READ_BYTES, 1);
	char sha256[65];

	if (digest && add_file(c, digest, f, buffer) && digest_finish(digest, sha256) == 0 &&
		unchanged(f)) {
		memcpy(f->sha256, sha256, sizeof(f->sha256));
		if (c->dir)
			keep(c->dir, f);
	}
	digest_destroy(digest);
	free(buffer);
}

static void *run(void *arg)
{
	struct content *c = arg;

	setpriority(PRIO_PROCESS, 0, 19); /* of this thread: the training step has precedence */
	for (int i = 0; i < FILES; i++)
		if (c->file[i].fd >= 0)
			hash_file(c, &c->file[i]);
	return NULL;
}

static void take(struct content *c, struct file *f, const struct dataset *d)
{
	f->used = d != NULL;
	f->fd = -1;
	if (d && d->format == DATASET_SYNTHETIC)
		snprintf(f->sha256, sizeof(f->sha256), "synthetic");
	if (!d || d->format == DATASET_SYNTHETIC)
		return;
	f->key = key_of(d);
	if (c->dir)
		look_up(c->dir, f);
	if (!f->sha256[0])
		f->fd = fcntl(d->fd, F_DUPFD_CLOEXEC, 0);
}

struct content *content_start(const char *dir, const struct dataset *train,
	const struct dataset *validation, const struct dataset *weights)
{
	struct content *c = memory_zeroed(1, sizeof(*c));

	c->dir = dir;
	take(c, &c->file[TRAIN], train);
	take(c, &c->file[VALIDATION], validation);
	take(c, &c->file[WEIGHTS], weights);
	if (c->file[TRAIN].fd >= 0 || c->file[VALIDATION].fd >= 0 || c->file[WEIGHTS].fd >= 0)
		c->started = thread_start(&c->thread, run, c, "content") == 0;
	return c;
}

void content_wait(struct content *c)
{
	if (c && c->started)
		pthread_join(c->thread, NULL);
	if (c)
		c->started = false;
}

bool content_wait_for(struct content *c, int64_t limit_ns)
{
	const struct timespec until = clock_timespec(clock_mono_ns() + limit_ns);

	if (c && c->started &&
		pthread_clockjoin_np(c->thread, NULL, CLOCK_MONOTONIC, &until) == ETIMEDOUT)
		return false;
	if (c)
		c->started = false;
	return true;
}

void content_stop(struct content *c)
{
	if (c)
		atomic_store(&c->stop, true);
}

void content_destroy(struct content *c)
{
	if (!c)
		return;
	content_wait(c);
	for (int i = 0; i < FILES; i++)
		if (c->file[i].fd >= 0)
			close(c->file[i].fd);
	free(c);
}

static const char *text_of(const struct content *c, int i)
{
	return c && c->file[i].sha256[0] ? c->file[i].sha256 : NULL;
}

const char *content_train(const struct content *c)
{
	return text_of(c, TRAIN);
}

const char *content_validation(const struct content *c)
{
	return text_of(c, VALIDATION);
}

const char *content_weights(const struct content *c)
{
	return text_of(c, WEIGHTS);
}

bool content_hash(const struct content *c, const struct spec_config *config, char out[65])
{
	const char *train = content_train(c), *validation = content_validation(c);
	char text[512];

	if (!train || (c->file[VALIDATION].used && !validation))
		return false;
	snprintf(text, sizeof(text),
		"train %s validation %s synthetic_tokens %" PRId64 " seed %" PRId64
		" seq_len %" PRId64,
		train, validation ? validation : "none",
		config->data_kind == SPEC_DATA_SYNTHETIC ? config->data_synthetic_tokens : 0,
		(int64_t)config->seed, config->seq_len);
	return artifact_sha256(text, strlen(text), out) == 0;
}
