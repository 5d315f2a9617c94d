/*
 * blocks.h: the number of blocks of an experiment. Spare blocks replace void ones, a suspect A/A
 * control adds four blocks once, and an interval that is narrow enough ends the experiment. The
 * number does not depend on which arm is faster.
 */
#ifndef GPT2D_PROTO_EXPERIMENT_BLOCKS_H
#define GPT2D_PROTO_EXPERIMENT_BLOCKS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct spec;

struct blocks_wanted {
	int64_t blocks; /* in all, finished blocks included */
	bool narrow;    /* design.stop_when is met */
	bool extended;  /* the control's four blocks are in `blocks` */
};

/* The largest number that blocks_decide() may return. */
int64_t blocks_most(const struct spec *spec);

/*
 * comparison: of the n blocks so far, all of them finished or void (comparison.h); NULL if no
 * segment of them is done, so that all are void. before: the last result, zeroed at first.
 */
struct blocks_wanted blocks_decide(const struct spec *spec, const json_t *comparison, int64_t n,
	const struct blocks_wanted *before);

#endif
