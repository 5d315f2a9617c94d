/* tiny.h: a model that trains in microseconds, and a warm engine around a rank of ranks.h. */
#ifndef GPT2D_TESTS_UNIT_ENGINE_TINY_H
#define GPT2D_TESTS_UNIT_ENGINE_TINY_H

#include "engine/train/training.h"
#include "proto/spec/spec.h"
#include "tests/unit/engine/ranks.h"

/* Synthetic data, ZeRO-1 in one bucket, clipping at work; batch and steps are the caller's. */
struct spec_config tiny_config(int world, int64_t accumulation, int64_t micro_batch);

/* To be finished with warm_finish. 0 or a negative errno. */
int tiny_warm(struct warm *w, struct ranks_self *self);

/*
 * A training of the ranks of group (NULL: alone) and its data: 0, or a negative errno after a
 * message on stderr, and then nothing needs closing. config outlives it.
 */
int tiny_open(struct training *t, struct dataset *data, struct warm *w,
	struct collectives_group *group, const struct spec_config *config);
void tiny_close(struct training *t, struct dataset *data);

/* FNV-1a of all bits; host memory. */
uint64_t tiny_hash(const void *memory, int64_t bytes);

#endif
