/*
 * agreement.h: before the first collective on tensors, all ranks of a segment make sure that they
 * mean the same: spec, plan and model by hash; their data by what the files are on one node, and by
 * what they hold on different ones; the kernels' choices (tuned.h). A communicator that was idle
 * for long is tested here.
 */
#ifndef GPT2D_ENGINE_AGREEMENT_H
#define GPT2D_ENGINE_AGREEMENT_H

#include <stdbool.h>

#include "engine/link.h"
#include "engine/segment.h"

/*
 * False: failure says why, or the segment is cancelled; no collective of this segment may follow.
 * Call it whether segment_prepare worked or not, unless it could not read the world.
 */
bool agreement_reach(struct segment *s, struct warm *w, bool prepared, struct link *link);

#endif
