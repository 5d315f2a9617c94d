/*
 * graphs.h: captured steps, kept from segment to segment. The key of a graph is everything that was
 * baked into it: addresses, shapes, constants, the plan. Values that change from step to step are
 * in memory (k_step_state, batch, shared sums) and not in the key. If there are too many graphs,
 * the oldest is dropped.
 */
#ifndef GPT2D_ENGINE_TRAIN_GRAPHS_H
#define GPT2D_ENGINE_TRAIN_GRAPHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/comm/collectives.h"
#include "engine/train/timeline.h"
#include "kernels/kernels.h"

enum { GRAPHS_MAX = 16, GRAPHS_KEY_BYTES = 1024 };

struct graphs_key {
	size_t n; /* above GRAPHS_KEY_BYTES: it did not fit, and no step may be captured */
	unsigned char bytes[GRAPHS_KEY_BYTES];
};

struct graphs_entry {
	struct graphs_key key;
	struct k_graph *graph;
	enum timeline_phase *phases; /* of the marks in it */
	int64_t n_phases;
	/* set by the code that captured it */
	struct collectives_bytes sent; /* by a launch */
	int64_t n_spans;               /* zero_spans of a launch */
	int64_t longest_ns; /* time of one step with it; at first, the time of the step before */
	int64_t used;       /* a larger number: later */
};

struct graphs {
	struct graphs_entry entry[GRAPHS_MAX];
	int n;
	int64_t uses;
};

void graphs_init(struct graphs *g);
void graphs_finish(struct graphs *g);

/* Adds a value to the key. A key that is too long stays too long. */
void graphs_key_add(struct graphs_key *key, const void *value, size_t bytes);

bool graphs_key_fits(const struct graphs_key *key);

/* NULL: not found. Valid until the next graphs_add or graphs_drop. */
struct graphs_entry *graphs_find(struct graphs *g, const struct graphs_key *key);

/*
 * Takes ownership of the graph, with the phases of its marks. No graph may be running. The entry,
 * or NULL without memory: then the caller still owns the graph.
 */
struct graphs_entry *graphs_add(struct graphs *g, const struct graphs_key *key,
	struct k_graph *graph, const enum timeline_phase *phases, int64_t n_phases);

/* It must not be running. Takes NULL. */
void graphs_drop(struct graphs *g, struct graphs_entry *entry);

#endif
