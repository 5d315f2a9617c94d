/* follow.h: what `submit --follow` shares with `follow`. */
#ifndef GPT2D_CTL_VERBS_FOLLOW_H
#define GPT2D_CTL_VERBS_FOLLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "ctl/link/client.h"
#include "ctl/ctl.h"

/*
 * Show the run on term until it ends; the exit code by its result, or of what came between, which
 * has been told to the user. *c may be replaced, and is NULL when the connection was lost. told:
 * the user knows that it is queued, and why it waits.
 */
int follow_run(
	struct ctl *ctl, struct client **c, int64_t id, bool told, const struct term *term);

#endif
