/*
 * loss_scale.h: the fp16 loss scale, DeepSpeed's rules (0.19.6), with one difference: gradients are
 * divided by the scale that backward used, also on a step where the scale grows. So the caller
 * takes scale before backward, unscales with that value, and calls loss_scale_update last. Pure.
 *
 * A fixed scale, and the 1 of the other precisions, cannot move: they count as being at the floor.
 */
#ifndef GPT2D_ENGINE_TRAIN_LOSS_SCALE_H
#define GPT2D_ENGINE_TRAIN_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

struct loss_scale {
	bool dynamic;
	double scale, min;
	int64_t window, it, last_overflow;
	int64_t hysteresis, hysteresis_left;
	bool consecutive;
	int64_t skips_at_floor; /* overflows in a row with the scale at min */
};

struct spec_config;
void loss_scale_init(struct loss_scale *s, const struct spec_config *config);
void loss_scale_update(struct loss_scale *s, bool overflow);

#endif
