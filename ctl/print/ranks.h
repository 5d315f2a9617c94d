/* ranks.h: the ranks of the engine, and the nodes, as top and status print them. */
#ifndef GPT2D_CTL_PRINT_RANKS_H
#define GPT2D_CTL_PRINT_RANKS_H

#include <jansson.h>
#include <stddef.h>

#include "ctl/print/format.h"
#include "ctl/print/term.h"

/* A table of the first ranks of an engine, with the load of their processors or GPUs. */
void ranks_print(const struct term *t, const json_t *engine, size_t rows);
/*
 * Up to rows lines, one for each rank whose GPU other processes use: returns the number of lines.
 */
int ranks_print_others(const struct term *t, const json_t *ranks, int rows);
/* cpu_load as "98%" of a processor, or "-". */
const char *ranks_load(const json_t *object, char *out, size_t out_bytes);

/* Whether a rank runs on another node than the leader's. */
bool ranks_on_nodes(const json_t *ranks);

/*
 * The nodes of status's "world": a line, and up to rows lines of members, those that are missing
 * first. Nothing for null.
 */
void ranks_print_nodes(const struct term *t, const json_t *world, int rows);

/*
 * segments: of a reply to "show". A rank is slow if in more than half of the segments with these
 * times it has at least 5% more work per step than the others' median, and the most work in at
 * least three quarters of the parts. The result is
 *
 *   {rank, segments (in which it is slow), of, work_ratio (mean over those, to the median)}
 *
 * or null: if different ranks are slow in turn, the cause is noise of the machine. A new reference.
 */
json_t *ranks_find_slow(const json_t *segments);

/* A line with the result; nothing for null. */
void ranks_print_slow(const struct term *t, const json_t *slow);

#endif
