/*
 * gather.h: what every rank has measured of a segment, brought together once, after its last step:
 * nothing of it travels while steps run. Of a rank these are 96 bytes per step, and 104 per sample
 * of its GPU, at most GPU_LOG_SAMPLES_MAX of them.
 */
#ifndef GPT2D_ENGINE_COMM_GATHER_H
#define GPT2D_ENGINE_COMM_GATHER_H

#include <stdbool.h>

#include "engine/segment.h"

/*
 * Fills ranks, gpus and gpus_room of s and merges its measure. On all ranks of the segment, which
 * has done at least one step. False: s has failed and says why, and this process is poisoned.
 */
bool gather_segment(struct segment *s, struct warm *w);

#endif
