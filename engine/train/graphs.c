#include "engine/train/graphs.h"

#include <stdlib.h>
#include <string.h>

void graphs_init(struct graphs *g)
{
	*g = (struct graphs){0};
}

static void drop(struct graphs *g, int i)
{
	k_graph_destroy(g->entry[i].graph);
	free(g->entry[i].phases);
	g->entry[i] = g->entry[--g->n];
}

void graphs_finish(struct graphs *g)
{
	while (g->n)
		drop(g, g->n - 1);
}

void graphs_key_add(struct graphs_key *key, const void *value, size_t bytes)
{
	if (key->n > GRAPHS_KEY_BYTES || bytes > GRAPHS_KEY_BYTES - key->n) {
		key->n = GRAPHS_KEY_BYTES + 1;
		return;
	}
	memcpy(key->bytes + key->n, value, bytes);
	key->n += bytes;
}

bool graphs_key_fits(const struct graphs_key *key)
{
	return key->n <= GRAPHS_KEY_BYTES;
}

static bool equal(const struct graphs_key *a, const struct graphs_key *b)
{
	return a->n == b->n && memcmp(a->bytes, b->bytes, a->n) == 0;
}

struct graphs_entry *graphs_find(struct graphs *g, const struct graphs_key *key)
{
	for (int i = 0; i < g->n; i++)
		if (equal(&g->entry[i].key, key)) {
			g->entry[i].used = ++g->uses;
			return &g->entry[i];
		}
	return NULL;
}

void graphs_drop(struct graphs *g, struct graphs_entry *entry)
{
	if (entry)
		drop(g, (int)(entry - g->entry));
}

static void make_room(struct graphs *g)
{
	int oldest = 0;

	if (g->n < GRAPHS_MAX)
		return;
	for (int i = 1; i < g->n; i++)
		if (g->entry[i].used < g->entry[oldest].used)
			oldest = i;
	drop(g, oldest);
}

struct graphs_entry *graphs_add(struct graphs *g, const struct graphs_key *key,
	struct k_graph *graph, const enum timeline_phase *phases, int64_t n_phases)
{
	enum timeline_phase *copy = malloc((size_t)(n_phases + 1) * sizeof(*copy));

	if (!copy)
		return NULL;
	if (n_phases)
		memcpy(copy, phases, (size_t)n_phases * sizeof(*copy));
	make_room(g);
	g->entry[g->n] = (struct graphs_entry){
		.key = *key,
		.graph = graph,
		.phases = copy,
		.n_phases = n_phases,
		.used = ++g->uses,
	};
	return &g->entry[g->n++];
}
