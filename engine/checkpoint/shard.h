/*
 * shard.h: which elements of the arena a rank writes to its shard of a checkpoint, and which ones
 * its optimizer has. Pure. In both the arena's padding behind the last parameter is left out: it
 * depends on the world, and is zero.
 */
#ifndef GPT2D_ENGINE_CHECKPOINT_SHARD_H
#define GPT2D_ENGINE_CHECKPOINT_SHARD_H

#include <stdint.h>

#include "engine/train/plan.h"

struct shard_piece {
	int64_t first, n; /* of the arena */
	int64_t compact;  /* where its first element is in the rank's moments */
};

struct shard {
	int64_t elems; /* of all pieces */
	int64_t n_pieces;
	struct shard_piece *pieces; /* ascending, none is empty */
};

/* What the rank's optimizer has: at stage 1 its slices of the reduce buckets, else all. */
void shard_owned(const struct plan *plan, int64_t stage, int rank, struct shard *out);
/*
 * What it writes: at stage 1 the same, else a part of all as large as the other ranks', so that
 * the ranks' shards together are the arena once.
 */
void shard_written(const struct plan *plan, int64_t stage, int rank, struct shard *out);
void shard_finish(struct shard *s);

#endif
