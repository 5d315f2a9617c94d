/*
 * nodes.h: which ranks share a node, as an array with a node number for each rank; the numbers are
 * only compared. NULL: all ranks are on one node.
 */
#ifndef GPT2D_ENGINE_COMM_NODES_H
#define GPT2D_ENGINE_COMM_NODES_H

#include <stdbool.h>

/* Of the first world ranks: */
int nodes_count(const int *nodes, int world); /* number of nodes */
/* the largest number of ranks on one node */
int nodes_fullest(const int *nodes, int world);
int nodes_ranks(const int *nodes, int world, int rank); /* number of ranks on the rank's node */
int nodes_first(const int *nodes, int rank);            /* lowest rank on the rank's node */
bool nodes_together(const int *nodes, int a, int b);    /* two ranks on one node */

#endif
