/*
 * shard.h: which elements of the arena a rank writes to its shard of a checkpoint, and which ones
 * its optimizer has. Pure. Neither includes the arena's padding after the last parameter, which
 * depends on the world and is zero.
 */
#ifndef GPT2D_ENGINE_CHECKPOINT_SHARD_H
#define GPT2D_ENGINE_CHECKPOINT_SHARD_H

#include <stdint.h>

#include "engine/train/plan.h"

struct shard_piece {
	int64_t first, n; /* of the arena */
	int64_t compact;  /* index of its first element in the rank's moments */
};

struct shard {
	int64_t elems; /* of all pieces */
	int64_t n_pieces;
	struct shard_piece *pieces; /* ascending, none is empty */
};

/* The elements of the rank's optimizer: at stage 1 its slices of the reduce buckets, else all. */
void shard_owned(const struct plan *plan, int64_t stage, int rank, struct shard *out);
/*
 * The elements that it writes: at stage 1 the same, else an equal part of all, so that the ranks'
 * shards together are the arena once.
 */
void shard_written(const struct plan *plan, int64_t stage, int rank, struct shard *out);
void shard_finish(struct shard *s);

#endif
