/*
 * graphs.h: captured steps, kept from segment to segment. A graph is found again by all that was
 * baked into it: addresses, shapes, constants, the plan. What changes from step to step lies in
 * memory (k_step_state, batch, shared sums) and is no part of the key. The oldest goes when there
 * are too many.
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
	size_t n; /* above GRAPHS_KEY_BYTES: it did not fit, nothing may be captured */
	unsigned char bytes[GRAPHS_KEY_BYTES];
};

struct graphs_entry {
	struct graphs_key key;
	struct k_graph *graph;
	enum timeline_phase *phases; /* of the marks in it */
	int64_t n_phases;
	/* set by whoever captured it */
	struct collectives_bytes sent; /* by a launch */
	int64_t n_spans;               /* zero_spans of a launch */
	int64_t longest_ns; /* that one step by it took; at first, that the step before took */
	int64_t used;       /* a larger number: later */
};

struct graphs {
	struct graphs_entry entry[GRAPHS_MAX];
	int n;
	int64_t uses;
};

void graphs_init(struct graphs *g);
void graphs_finish(struct graphs *g);

/* Adds a value to what tells graphs apart. A key that grows too long stays so. */
void graphs_key_add(struct graphs_key *key, const void *value, size_t bytes);

bool graphs_key_fits(const struct graphs_key *key);

/* NULL: not there. Valid until the next graphs_add or graphs_drop. */
struct graphs_entry *graphs_find(struct graphs *g, const struct graphs_key *key);

/*
 * Takes the graph over, with the phases of the marks it makes. No graph of these may be under way.
 * The entry, or NULL without memory: the graph is then still the caller's.
 */
struct graphs_entry *graphs_add(struct graphs *g, const struct graphs_key *key,
	struct k_graph *graph, const enum timeline_phase *phases, int64_t n_phases);

/* It is not under way. Takes NULL. */
void graphs_drop(struct graphs *g, struct graphs_entry *entry);

#endif
