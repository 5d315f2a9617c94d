#include "engine/train/loss_scale.h"

#include <math.h>

#include "proto/spec/spec.h"

void loss_scale_init(struct loss_scale *s, const struct spec_config *config)
{
	bool fp16 = config->precision == SPEC_FP16;

	*s = (struct loss_scale){
		.dynamic = fp16 && config->fp16_loss_scale == 0.0,
		.scale = 1.0,
		.min = 1.0,
		.window = config->fp16_loss_scale_window,
		.last_overflow = -1,
		.hysteresis = config->fp16_hysteresis,
		.hysteresis_left = config->fp16_hysteresis,
		.consecutive = config->fp16_consecutive_hysteresis,
	};
	if (s->dynamic) {
		s->scale = ldexp(1.0, (int)config->fp16_initial_scale_power);
		s->min = config->fp16_min_loss_scale;
	} else if (fp16) {
		s->scale = config->fp16_loss_scale;
		s->min = config->fp16_loss_scale;
	}
}

static void shrink(struct loss_scale *s)
{
	if (s->hysteresis == 1 || s->hysteresis_left == 1)
		s->scale = fmax(s->scale / 2.0, s->min);
	else
		s->hysteresis_left--;
	s->last_overflow = s->it;
}

static void grow(struct loss_scale *s)
{
	int64_t clean = s->it - s->last_overflow - 1;

	if (s->consecutive)
		s->hysteresis_left = s->hysteresis;
	if (clean > 0 && clean % s->window == 0) {
		s->hysteresis_left = s->hysteresis;
		if (s->scale < LOSS_SCALE_MAX)
			s->scale *= 2.0;
	}
}

void loss_scale_update(struct loss_scale *s, bool overflow)
{
	const double before = s->scale;

	if (s->dynamic) {
		if (overflow)
			shrink(s);
		else
			grow(s);
	}
	s->skips_in_place = overflow && s->scale == before ? s->skips_in_place + 1 : 0;
	s->it++;
}
