/*
 * data_identity.h: which files a run trains on, so that all its segments train on the same. An
 * identity is {path: {dev, ino, bytes, modified_ns}} of the token files that a segment has opened;
 * gpt2d keeps that of a run's segments and hands it to the next one. A file that is written to
 * while it is open is dataset.h's to notice.
 */
#ifndef GPT2D_ENGINE_DATA_DATA_IDENTITY_H
#define GPT2D_ENGINE_DATA_DATA_IDENTITY_H

#include <jansson.h>
#include <stddef.h>

#include "engine/data/dataset.h"

/* Nothing for synthetic data. 0, or -ENOMEM. */
int data_identity_add(json_t *identity, const struct dataset *d);

/*
 * d is the file that known (may be NULL) has under its path, or one that it does not name: 0.
 * -ESTALE with error naming the path, what it was and what it is; -EINVAL when known is none.
 */
int data_identity_check(
	const json_t *known, const struct dataset *d, char *error, size_t error_bytes);

#endif
