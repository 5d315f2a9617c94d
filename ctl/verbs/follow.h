/* follow.h: what `submit --follow` and `tune` share with `follow`. */
#ifndef GPT2D_CTL_VERBS_FOLLOW_H
#define GPT2D_CTL_VERBS_FOLLOW_H

#include <jansson.h>

#include "ctl/print/progress.h"
#include "ctl/verbs/verb.h"

/*
 * Prints the run's progress on term until it ends. Returns the exit status of its result, or of a
 * printed error. knows_wait: the user knows that the run is queued, and why.
 */
int follow_run(
	struct ctl *ctl, struct client *c, int64_t id, bool knows_wait, const struct term *term);

/* Show EVENT_STEP of the run with this name. */
void follow_show_step(struct progress *p, const char *name, const json_t *params);

#endif
