#include "engine/train/schedule.h"

#include <math.h>

static int64_t warmup_steps(const struct spec_config *c)
{
	return c->warmup_num_steps < 2 ? 2 : c->warmup_num_steps;
}

/* Share of the warm-up done at it < W; 0 before the first applied step. */
static double warmup_share(const struct spec_config *c, int64_t it)
{
	double w = (double)warmup_steps(c);

	if (it < 0)
		return 0.0;
	return c->warmup_type == SPEC_WARMUP_LOG ? log((double)(it + 1)) / log(w) : (double)it / w;
}

/* Steps from the end of the warm-up to the last one, at least 1. */
static double decay_steps(const struct spec_config *c)
{
	int64_t n = c->total_num_steps - warmup_steps(c);

	return (double)(n < 1 ? 1 : n);
}

static double between(const struct spec_config *c, double share)
{
	return c->warmup_min_lr + (c->warmup_max_lr - c->warmup_min_lr) * share;
}

static double warmup_lr(const struct spec_config *c, int64_t it)
{
	return it < warmup_steps(c) ? between(c, warmup_share(c, it)) : between(c, 1.0);
}

static double warmup_decay_lr(const struct spec_config *c, int64_t it)
{
	if (it < warmup_steps(c))
		return between(c, warmup_share(c, it));
	return between(c, fmax(0.0, (double)(c->total_num_steps - it) / decay_steps(c)));
}

/* Half a cosine from 1 to floor_ratio. */
static double cosine(double progress, double floor_ratio)
{
	static const double pi = 3.14159265358979323846;

	return fmax(0.0, floor_ratio + (1.0 - floor_ratio) * (1.0 + cos(pi * progress)) / 2.0);
}

static double warmup_cosine_lr(const struct spec_config *c, int64_t it)
{
	double progress;

	if (it < 0)
		return 0.0;
	if (it < warmup_steps(c))
		return c->lr *
			(c->warmup_min_ratio + (1.0 - c->warmup_min_ratio) * warmup_share(c, it));
	progress = fmin(1.0, (double)(it - warmup_steps(c) + 1) / decay_steps(c));
	return c->lr * cosine(progress, c->cos_min_ratio);
}

/* Transformers' linear and cosine: `it` counts from 0, and the warm-up has no minimum. */
static double ramp_lr(const struct spec_config *c, int64_t it)
{
	const int64_t w = c->warmup_num_steps, total = c->total_num_steps;
	const double rest = total > w ? (double)(total - w) : 1.0;

	if (it < w)
		return c->lr * (double)it / (double)w;
	if (c->schedule == SPEC_LINEAR)
		return c->lr * fmax(0.0, (double)(total - it) / rest);
	return c->lr * cosine(fmin(1.0, (double)(it - w) / rest), c->cos_min_ratio);
}

double schedule_lr(const struct spec_config *config, int64_t applied)
{
	int64_t it = applied - 1;

	switch (config->schedule) {
	case SPEC_CONSTANT:
		return config->lr;
	case SPEC_WARMUP_LR:
		return warmup_lr(config, it);
	case SPEC_WARMUP_DECAY_LR:
		return warmup_decay_lr(config, it);
	case SPEC_WARMUP_COSINE_LR:
		return warmup_cosine_lr(config, it);
	case SPEC_COSINE:
	case SPEC_LINEAR:
		return ramp_lr(config, applied);
	}
	return config->lr;
}
