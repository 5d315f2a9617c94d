/*
 * check_turn.h: how far a check came with the files of one arm. Large ones are read a turn at a
 * time, so that checks of others come in between; gpt2d keeps the state and hands it back, so that
 * it outlives the process that checks.
 */
#ifndef GPT2D_ENGINE_CHECK_CHECK_TURN_H
#define GPT2D_ENGINE_CHECK_CHECK_TURN_H

#include <jansson.h>
#include <stdint.h>

#include "engine/data/dataset.h"

struct check_turn {
	int64_t left_bytes;               /* that may be read yet */
	struct dataset_scanned scanned[2]; /* data.train, data.val; all zero: not begun */
};

/* Of what was scanned; NULL without memory. */
json_t *check_turn_json(const struct check_turn *turn);
/* What that gave; anything else is a file that is not begun. */
void check_turn_read(struct check_turn *turn, const json_t *json);

#endif
