/* nodes.h: the nodes of a world, as top and status print them. */
#ifndef GPT2D_CTL_PRINT_NODES_H
#define GPT2D_CTL_PRINT_NODES_H

#include <jansson.h>

#include "ctl/print/term.h"

/*
 * Of the member "world" of the reply to status: a line about this node, and a table of up to rows
 * members, those that are not joined first. Nothing for null.
 */
void nodes_print(const struct term *t, const json_t *world, int rows);

#endif
