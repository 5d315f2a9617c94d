/*
 * fits.h: finds the checkpoint of resume_from, and checks whether a training can continue from it.
 */
#ifndef GPT2D_ENGINE_CHECKPOINT_FITS_H
#define GPT2D_ENGINE_CHECKPOINT_FITS_H

#include <stddef.h>
#include <stdint.h>

#include "engine/data/content.h"
#include "proto/checkpoint.h"
#include "proto/host/data_roots.h"
#include "proto/spec/spec.h"

/*
 * The folder of that checkpoint, which the caller frees. folders (may be NULL): folders with
 * checkpoints of the run of a given ID, the best one first; a path must be below roots. 0, or a
 * negative errno with error.
 */
int fits_find(const struct spec_config *config, const json_t *folders,
	const struct data_roots *roots, char **dir, char *error, size_t error_bytes);

/*
 * Checks for the same model and the same order of samples, and for steps left to do. Everything
 * else may differ: ranks, stage, bucket sizes, micro-batches, precision, learning rate.
 * train_sequences: of the data; 0: not known. 0, or with error -EINVAL, or -EALREADY if all steps
 * are done.
 */
int fits_config(const struct checkpoint *c, const struct spec_config *config,
	int64_t train_sequences, char *error, size_t error_bytes);

/*
 * Whether the training data is that of the checkpoint. A file that was not touched since then is.
 * For another one this waits until content has its hash, 20 s at most. 0, or with error -ESTALE:
 * other data, or -ENODATA: not known, because one of the hashes is not.
 */
int fits_data(const struct checkpoint *c, const struct dataset *train, struct content *content,
	char *error, size_t error_bytes);

#endif
