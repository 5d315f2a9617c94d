/*
 * agreement.h: before the first collective on tensors, all ranks of a segment check that they agree
 * on: spec, plan and model, by hash; their data, by file identity on one node and by content
 * between nodes; the kernels' choices (tuned.h). A communicator that was idle for long is tested
 * here.
 */
#ifndef GPT2D_ENGINE_AGREEMENT_H
#define GPT2D_ENGINE_AGREEMENT_H

#include <stdbool.h>

#include "engine/link.h"
#include "engine/segment.h"

/*
 * False: failure has the reason, or the segment is cancelled; no collective of this segment may
 * follow. Call it whether segment_prepare succeeded or not, unless it could not read the world.
 */
bool agreement_reach(struct segment *s, struct warm *w, bool prepared, struct link *link);

#endif
