/*
 * generate.h: a text continued by the weights of a checkpoint: generate.start to generate.done or
 * generate.failed. On rank 0 alone, between segments.
 *
 * It computes on a context of its own on the rank's device: it does not touch what runs keep warm
 * (memory, choices of algorithms, graphs), and a failure of it is not theirs. The prompt takes one
 * forward pass, with a power of two of positions, 64 at least, so that few shapes are met. The pass
 * leaves the keys and values of all blocks, with which each further token takes a pass of its own.
 */
#ifndef GPT2D_ENGINE_GENERATE_H
#define GPT2D_ENGINE_GENERATE_H

#include <jansson.h>

#include "engine/link.h"

struct warm;

/* Sends the reports. False: the device failed, and this process is of no further use. */
bool generate_run(struct link *link, const struct warm *w, const json_t *params);

#endif
