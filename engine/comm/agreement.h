/*
 * agreement.h: what the ranks of a segment make sure of before its first step: that they all mean
 * the same, and compute it alike.
 */
#ifndef GPT2D_ENGINE_COMM_AGREEMENT_H
#define GPT2D_ENGINE_COMM_AGREEMENT_H

#include <stdbool.h>

#include "engine/segment.h"

/*
 * All ranks hold the same spec and plan, all are prepared, and their kernels' choices (tuned.h) are
 * the same. False: failure says why; no collective of this segment may follow. To be called
 * whether segment_prepare worked or not, unless it could not read the world.
 */
bool agreement_reach(struct segment *s, struct warm *w, bool prepared, struct link *link);

#endif
