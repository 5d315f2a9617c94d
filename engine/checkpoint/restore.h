/* restore.h: loads a checkpoint into a training, with any ranks, stage and bucket sizes. */
#ifndef GPT2D_ENGINE_CHECKPOINT_RESTORE_H
#define GPT2D_ENGINE_CHECKPOINT_RESTORE_H

#include <stddef.h>

#include "engine/train/training.h"
#include "proto/checkpoint.h"

/*
 * After training_reset, on each rank: reads the weights and moments of its optimizer, each shard
 * that has some of them to the end, and compares the hashes. Does not wait for other ranks. 0;
 * -EBADMSG (a damaged shard), -ENOTRECOVERABLE (the device) or another negative errno with error;
 * then reset the training again.
 */
int restore_load(struct training *t, const struct checkpoint *c, char *error, size_t error_bytes);

/*
 * Once all ranks have loaded: gathers the parameters of other ranks, and continues with the step
 * after the checkpoint.
 */
void restore_finish(struct training *t, const struct checkpoint *c);

#endif
