/*
 * schedule.h: the learning rate of each applied step. Pure.
 *
 * WarmupLR, WarmupDecayLR and WarmupCosineLR are those of DeepSpeed 0.19 (runtime/lr_schedules.py):
 * `it` counts applied steps from -1, so the first two steps run at the lowest rate, and the first
 * one of WarmupCosineLR at 0, for any warmup_min_ratio.
 *
 * linear and cosine are those of Transformers 4 (optimization.py): `it` counts applied steps from
 * 0. Beyond total_num_steps, cosine stays at its end; Transformers' would rise again.
 */
#ifndef GPT2D_ENGINE_TRAIN_SCHEDULE_H
#define GPT2D_ENGINE_TRAIN_SCHEDULE_H

#include <stdint.h>

#include "proto/spec/spec.h"

/* Rate of the step that follows `applied` applied steps (0 for the first). */
double schedule_lr(const struct spec_config *config, int64_t applied);

#endif
