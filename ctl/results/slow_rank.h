/*
 * slow_rank.h: the rank for which the others wait, over the segments of a run, from what their
 * summaries say of the slowest rank in each.
 */
#ifndef GPT2D_CTL_RESULTS_SLOW_RANK_H
#define GPT2D_CTL_RESULTS_SLOW_RANK_H

#include <jansson.h>

#include "ctl/print/term.h"

/*
 * segments: of a reply to "show". The rank that has at least 5% more work in a step than the
 * others' median, and in at least three quarters of its parts most work of all, in more than half
 * of the segments that tell, as
 *
 *   {rank, segments (in which it does), of, work_ratio (mean over those, to the median)}
 *
 * or null: ranks that take turns at it say more of the machine's noise than of a rank. A new
 * reference.
 */
json_t *slow_rank_find(const json_t *segments);

/* A line of what was found; nothing for null. */
void slow_rank_print(const struct term *t, const json_t *slow);

#endif
