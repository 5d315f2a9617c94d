#include "engine/comm/nodes.h"

#include <stddef.h>

bool nodes_together(const int *nodes, int a, int b)
{
	return nodes == NULL || nodes[a] == nodes[b];
}

int nodes_ranks(const int *nodes, int world, int rank)
{
	int n = 0;

	for (int r = 0; r < world; r++)
		n += nodes_together(nodes, r, rank);
	return n;
}

int nodes_first(const int *nodes, int rank)
{
	int first = 0;

	while (!nodes_together(nodes, first, rank))
		first++;
	return first;
}

int nodes_count(const int *nodes, int world)
{
	int n = 0;

	for (int r = 0; r < world; r++)
		n += nodes_first(nodes, r) == r;
	return n;
}

int nodes_fullest(const int *nodes, int world)
{
	int most = 0;

	for (int r = 0; r < world; r++) {
		int n = nodes_ranks(nodes, world, r);

		most = n > most ? n : most;
	}
	return most;
}
