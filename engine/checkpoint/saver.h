/*
 * saver.h: checkpoints of a training in progress. Each rank copies its shard to host memory
 * between two steps, and a thread writes the copy while the next steps run. Once all ranks have
 * written theirs, rank 0's thread writes the manifest, and removes what keep_last leaves over.
 *
 * What all ranks do together (saver_poll) is called by all of them after the same step. A
 * checkpoint that cannot be written is lost and reported; training continues.
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
	struct collectives_group *group; /* NULL in a world of one */
	const char *folder;              /* of the steps; it exists */
	bool shared; /* outside the run's folder: others may read it, whatever the umask */
	int64_t keep;
	/* rank 0 */
	json_t *manifest;        /* of manifest_begin; stolen */
	struct content *content; /* manifests have the hash of its training data once it is known */
	/* folders of the run's earlier attempts, newest first: their checkpoints count for keep */
	const char *older[SAVER_OLDER_MAX];
	int n_older;
	/* what a person should read, on the thread that calls; level "info" or "warning" */
	void (*log)(void *arg, const char *level, const char *text);
	void *arg;
};

/* Nothing of another segment is in progress. 0, or -ENOMEM: no host memory. */
int saver_begin(struct saver *s, const struct saver_segment *segment);

/*
 * Between two steps: the state of the training is copied, and written from here on. No checkpoint
 * is pending. 0, or as step_run with error when the device failed.
 */
int saver_save(struct saver *s, char *error, size_t error_bytes);

/* A checkpoint is being written by some rank. The same on all ranks. */
bool saver_pending(const struct saver *s);

/*
 * On all ranks together, while one is pending: whether all have written their shards, and then it
 * is no longer pending. Waits for the ranks, not for the disk. 0, or -EPIPE: a peer is lost.
 */
int saver_poll(struct saver *s);

/* Whether this rank's thread has nothing to do. */
bool saver_idle(struct saver *s);
/* Waits for that, so long at most. */
void saver_wait(struct saver *s, int64_t ns);

/* What became of them, once the thread is idle. Rank 0 knows; others have zeros. */
struct saver_made {
	int64_t written, lost, last, bytes, copy_ns, write_ns;
};
void saver_end(struct saver *s, struct saver_made *out);

#endif
