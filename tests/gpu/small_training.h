/* small_training.h: the training whose steps are compared, eager and as graphs. */
#ifndef GPT2D_TESTS_GPU_SMALL_TRAINING_H
#define GPT2D_TESTS_GPU_SMALL_TRAINING_H

#include "engine/train/training.h"

/* Two layers of 128, T 64, one rank, micro 2, synthetic tokens; callers change what they test. */
struct spec_config small_training_config(enum spec_precision precision);

/* A hash of all bits of its parameters; 0: not enough memory. */
uint64_t small_training_hash(const struct warm *w, const struct training *t);

/* A step_asked.stop that never stops. */
bool small_training_never(void *arg);

#endif
