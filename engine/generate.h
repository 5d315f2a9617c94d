/*
 * generate.h: continues a text with the weights of a checkpoint: generate.start to generate.done or
 * generate.failed. On rank 0 alone, between segments.
 *
 * It uses a separate context on the rank's device: it does not touch what runs keep warm (memory,
 * choices of algorithms, graphs), and its failures do not affect them. The prompt takes one forward
 * pass, with a power of two of positions, 64 at least, so that there are few shapes. The pass
 * leaves the keys and values of all blocks, and each further token takes one pass with them.
 */
#ifndef GPT2D_ENGINE_GENERATE_H
#define GPT2D_ENGINE_GENERATE_H

#include <jansson.h>

#include "engine/link.h"

struct warm;

/* Sends the reports. False: the device failed, and this process must end. */
bool generate_run(struct link *link, const struct warm *w, const json_t *params);

#endif
