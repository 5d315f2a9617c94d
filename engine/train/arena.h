/*
 * arena.h: the position of each parameter tensor in the flat arena that params, grads, master, m
 * and v share. Offsets grow in the order in which backward completes gradients: [head,] final norm,
 * last block ... first block, position embedding, token embedding (tied: it is also the head and
 * completes last). Pure.
 */
#ifndef GPT2D_ENGINE_TRAIN_ARENA_H
#define GPT2D_ENGINE_TRAIN_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/spec/spec.h"

enum arena_tensor {
	/* per block */
	ARENA_LN1_W,
	ARENA_LN1_B,
	ARENA_QKV_W,
	ARENA_QKV_B,
	ARENA_PROJ_W,
	ARENA_PROJ_B,
	ARENA_LN2_W,
	ARENA_LN2_B,
	ARENA_FC_W,
	ARENA_FC_B,
	ARENA_FCPROJ_W,
	ARENA_FCPROJ_B,
	ARENA_PER_BLOCK,
	/* once; layer is 0 */
	ARENA_LNF_W = ARENA_PER_BLOCK,
	ARENA_LNF_B,
	ARENA_WPE,
	ARENA_WTE,
	ARENA_HEAD, /* untied only */
};

struct arena_entry {
	enum arena_tensor tensor;
	int64_t layer;
	int64_t first; /* element offset in the arena, a multiple of 64 */
	/* as in memory; a vector has rows 1. wte, head: rows = padded vocabulary */
	int64_t rows, cols;
};

struct arena {
	int64_t n_layer, n_embd, vocab, vocab_padded, n_positions;
	bool tied;
	int64_t n_entries;
	struct arena_entry *entries; /* arena order */
	int64_t param_elems;  /* with all padding; not yet rounded to world * align (plan.h) */
	int64_t model_params; /* as counted in the literature: real vocabulary, no padding */
};

int64_t arena_vocab_padded(int64_t vocab); /* rounded up to 128 */
void arena_init(struct arena *a, const struct spec_model *model);
void arena_finish(struct arena *a);
const struct arena_entry *arena_find(
	const struct arena *a, enum arena_tensor tensor, int64_t layer);
const char *arena_tensor_name(enum arena_tensor tensor); /* "ln_1.weight", GPT-2's own names */

/*
 * Elements [0, n) of the arena whose gradients are final once backward has finished with layer
 * `layer` (n_layer: the final norm and an untied head; -1: the embeddings, all of it).
 */
int64_t arena_complete_after(const struct arena *a, int64_t layer);

#endif
