/*
 * saver.h: checkpoints of a training in progress. Each rank copies its shard to host memory between
 * two steps, and a thread writes the copy while the next steps run. Once all ranks have written
 * theirs, rank 0's thread writes the manifest, and removes checkpoints beyond keep_last.
 *
 * All ranks call saver_poll after the same step. A checkpoint that cannot be written is lost and
 * reported; training continues.
 */
#ifndef GPT2D_ENGINE_CHECKPOINT_SAVER_H
#define GPT2D_ENGINE_CHECKPOINT_SAVER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/data/content.h"
#include "engine/train/training.h"

struct saver;

/* 0, or -EAGAIN: no thread. ctx and what saver_segment points to outlive their use. */
int saver_create(struct k_context *ctx, struct saver **out);
void saver_destroy(struct saver *s); /* takes NULL; finishes what it writes */

enum { SAVER_OLDER_MAX = 64 };

struct saver_segment {
	struct training *training;
	struct collectives_group *group; /* NULL with one rank */
	const char *folder;              /* of the steps; it exists */
	bool shared; /* outside the run's folder: readable for others, independent of the umask */
	int64_t keep;
	/* rank 0 */
	json_t *manifest;        /* of manifest_begin; stolen */
	struct content *content; /* manifests have the hash of its training data once it is known */
	/* folders of the run's earlier attempts, newest first: their checkpoints count for keep */
	const char *older[SAVER_OLDER_MAX];
	int n_older;
	/* messages for people, on the calling thread; level "info" or "warning" */
	void (*log)(void *arg, const char *level, const char *text);
	void *arg;
};

/* No other segment may be in progress. 0, or -ENOMEM: no host memory. */
int saver_begin(struct saver *s, const struct saver_segment *segment);

/*
 * Between two steps: copies the state of the training and starts to write it. No checkpoint may be
 * pending. 0, or as step_run with error if the device failed.
 */
int saver_save(struct saver *s, char *error, size_t error_bytes);

/* Whether some rank is writing a checkpoint. The same on all ranks. */
bool saver_pending(const struct saver *s);

/*
 * On all ranks together, while one is pending: checks whether all have written their shards; then
 * none is pending. Waits for the ranks, not for the disk. 0, or -EPIPE: a peer is lost.
 */
int saver_poll(struct saver *s);

/* Whether this rank's thread is idle. */
bool saver_idle(struct saver *s);
/* Waits until it is idle, for at most this long. */
void saver_wait(struct saver *s, int64_t ns);

/* The results of all checkpoints, once the thread is idle, on rank 0; zeros on other ranks. */
struct saver_made {
	int64_t written, lost, last, bytes, copy_ns, write_ns;
};
void saver_end(struct saver *s, struct saver_made *out);

#endif
