/*
 * restore.h: a checkpoint into a training, whatever ranks, stage and bucket sizes wrote it.
 */
#ifndef GPT2D_ENGINE_CHECKPOINT_RESTORE_H
#define GPT2D_ENGINE_CHECKPOINT_RESTORE_H

#include <stddef.h>

#include "engine/train/training.h"
#include "proto/checkpoint.h"

/*
 * After training_reset, on each rank: what its optimizer has of weights and moments is read, each
 * shard that holds any of it to the end, and its hashes compared. Nothing of other ranks is waited
 * for. 0; -EBADMSG (a damaged shard), -ENOTRECOVERABLE (the device) or another negative errno with
 * error, and the training is then to be reset again.
 */
int restore_load(struct training *t, const struct checkpoint *c, char *error, size_t error_bytes);

/*
 * Once all ranks have loaded: parameters that other ranks have travel, and the next step is the one
 * that follows the checkpoint.
 */
void restore_finish(struct training *t, const struct checkpoint *c);

#endif
