/*
 * generate.h: continues a text with the weights of a checkpoint: generate.start to generate.done or
 * generate.failed. On rank 0 alone, between segments.
 *
 * It uses a separate context on the rank's device: it does not touch what runs keep warm (memory,
 * choices of algorithms, graphs), and its failures do not affect them. The prompt takes one forward
 * pass, with a power of two of positions, 64 at least, so that there are few shapes. The pass
 * leaves the keys and values of all blocks, and each further token takes one pass with them. The
 * weights stay on the device until the next segment, or a generation from another checkpoint.
 */
#ifndef GPT2D_ENGINE_GENERATE_H
#define GPT2D_ENGINE_GENERATE_H

#include <jansson.h>

#include "engine/link.h"

struct generate_model;
struct warm;

/*
 * Sends the reports. *kept: the weights of the generation before, NULL: none; then those of this
 * one. False: the device failed, and this process must end.
 */
bool generate_run(struct link *link, const struct warm *w, struct generate_model **kept,
	const json_t *params);
void generate_drop(struct generate_model **kept); /* *kept may be NULL, and becomes NULL */

#endif
