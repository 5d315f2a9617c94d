/*
 * loss_scale.h: the fp16 loss scale, DeepSpeed's rules (0.19.6), with two differences: gradients
 * are divided by the scale that backward used, also on a step where the scale grows, and the scale
 * stops growing at LOSS_SCALE_MAX. So the caller takes scale before backward, unscales with that
 * value, and calls loss_scale_update last. Pure.
 */
#ifndef GPT2D_ENGINE_TRAIN_LOSS_SCALE_H
#define GPT2D_ENGINE_TRAIN_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Beyond it a gradient of 1 overflows fp16 many times over. A larger first scale can only decrease.
 */
#define LOSS_SCALE_MAX 0x1p24

struct loss_scale {
	bool dynamic;
	double scale, min;
	int64_t window, it, last_overflow;
	int64_t hysteresis, hysteresis_left;
	bool consecutive;
	int64_t skips_in_place; /* overflows in a row that did not lower the scale */
};

struct spec_config;
void loss_scale_init(struct loss_scale *s, const struct spec_config *config);
void loss_scale_update(struct loss_scale *s, bool overflow);

#endif
