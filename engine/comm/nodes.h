/*
 * nodes.h: which ranks share a node. A node is known by a number for each rank, in the order of
 * ranks; the numbers are only compared. NULL in place of the array: all ranks are on one node.
 */
#ifndef GPT2D_ENGINE_COMM_NODES_H
#define GPT2D_ENGINE_COMM_NODES_H

#include <stdbool.h>

/* Of the first world ranks: */
int nodes_count(const int *nodes, int world);           /* nodes that they are on */
int nodes_fullest(const int *nodes, int world);         /* the most of them on one node */
int nodes_ranks(const int *nodes, int world, int rank); /* of them on the rank's node */
int nodes_first(const int *nodes, int rank);            /* lowest rank on the rank's node */
bool nodes_together(const int *nodes, int a, int b);    /* two ranks on one node */

#endif
