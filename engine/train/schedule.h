/*
 * schedule.h: the learning rate of each applied step, DeepSpeed's three schedules (0.19.6) and
 * none. Pure. `it` counts applied steps: -1 when built, so the first two steps run at the minimum
 * rate.
 */
#ifndef GPT2D_ENGINE_TRAIN_SCHEDULE_H
#define GPT2D_ENGINE_TRAIN_SCHEDULE_H

#include <stdint.h>

#include "proto/spec/spec.h"

/* Rate of the step that follows `applied` applied steps (0 for the first). */
double schedule_lr(const struct spec_config *config, int64_t applied);

#endif
