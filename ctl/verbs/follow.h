/* follow.h: what `submit --follow` shares with `follow`. */
#ifndef GPT2D_CTL_VERBS_FOLLOW_H
#define GPT2D_CTL_VERBS_FOLLOW_H

#include "ctl/verbs/verb.h"

/*
 * Print the run's progress on term until it ends: the exit status by its result, or by what went
 * wrong, which is printed. told: the user knows that the run is queued, and why.
 */
int follow_run(struct ctl *ctl, struct client *c, int64_t id, bool told, const struct term *term);

#endif
