/* manifest.h: builds manifest.json of a checkpoint; proto/checkpoint.h reads it. */
#ifndef GPT2D_ENGINE_CHECKPOINT_MANIFEST_H
#define GPT2D_ENGINE_CHECKPOINT_MANIFEST_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/train/arena.h"
#include "engine/train/plan.h"
#include "engine/train/step.h"
#include "proto/checkpoint.h"
#include "proto/spec/spec.h"

/* The parts that all checkpoints of a segment share. */
struct manifest_head {
	int64_t run, attempt, segment;
	const char *name, *arm;
	const char *spec_text, *spec_sha256; /* of the arm */
	const json_t *data;                  /* identity of its files */
	int64_t train_sequences;
	const struct spec_config *config;
	const struct arena *arena;
	const struct plan *plan;
};
json_t *manifest_begin(const struct manifest_head *head); /* a new reference */

/* The state of a training between two steps. */
struct checkpoint_state manifest_state(const struct step *step);

/* Hashes of a rank's shard. */
struct manifest_shard {
	char sha256[CHECKPOINT_SECTIONS][65];
};

/* "shard-0-of-2.bin" */
enum { MANIFEST_FILE_BYTES = 48 };
void manifest_file(int rank, int world, char out[MANIFEST_FILE_BYTES]);

/*
 * The text, which the caller frees. begun: of manifest_begin; train_sha256: see content.h, or NULL;
 * shards: of all ranks.
 */
char *manifest_text(const json_t *begun, const struct spec_config *config, const struct plan *plan,
	const char *train_sha256, const struct checkpoint_state *state,
	const struct manifest_shard *shards);

#endif
