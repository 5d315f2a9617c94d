#include "engine/train/arena.h"

#include <assert.h>
#include <stdlib.h>

#include "proto/host/memory.h"

enum { ARENA_ALIGN_ELEMS = 64, ARENA_VOCAB_MULTIPLE = 128 };

/*
 * Inside a block, the order in which backward completes its gradients: from its end to its start.
 */
static const enum arena_tensor block_order[] = {
	ARENA_FCPROJ_W,
	ARENA_FCPROJ_B,
	ARENA_FC_W,
	ARENA_FC_B,
	ARENA_LN2_W,
	ARENA_LN2_B,
	ARENA_PROJ_W,
	ARENA_PROJ_B,
	ARENA_QKV_W,
	ARENA_QKV_B,
	ARENA_LN1_W,
	ARENA_LN1_B,
};
static_assert(sizeof(block_order) / sizeof(block_order[0]) == ARENA_PER_BLOCK,
	"every tensor of a block has a place");

static int64_t round_up(int64_t n, int64_t multiple)
{
	return (n + multiple - 1) / multiple * multiple;
}

int64_t arena_vocab_padded(int64_t vocab)
{
	return round_up(vocab, ARENA_VOCAB_MULTIPLE);
}

/* Rows and columns as in memory; a linear layer is (outputs, inputs). */
static void tensor_shape(
	const struct arena *a, enum arena_tensor tensor, int64_t *rows, int64_t *cols)
{
	const int64_t c = a->n_embd;
	const struct {
		int64_t rows, cols;
	} shape[] = {
		[ARENA_LN1_W] = {1, c},
		[ARENA_LN1_B] = {1, c},
		[ARENA_QKV_W] = {3 * c, c},
		[ARENA_QKV_B] = {1, 3 * c},
		[ARENA_PROJ_W] = {c, c},
		[ARENA_PROJ_B] = {1, c},
		[ARENA_LN2_W] = {1, c},
		[ARENA_LN2_B] = {1, c},
		[ARENA_FC_W] = {4 * c, c},
		[ARENA_FC_B] = {1, 4 * c},
		[ARENA_FCPROJ_W] = {c, 4 * c},
		[ARENA_FCPROJ_B] = {1, c},
		[ARENA_LNF_W] = {1, c},
		[ARENA_LNF_B] = {1, c},
		[ARENA_WPE] = {a->n_positions, c},
		[ARENA_WTE] = {a->vocab_padded, c},
		[ARENA_HEAD] = {a->vocab_padded, c},
	};

	*rows = shape[tensor].rows;
	*cols = shape[tensor].cols;
}

static void append(struct arena *a, enum arena_tensor tensor, int64_t layer)
{
	struct arena_entry *e = &a->entries[a->n_entries++];
	bool over_vocab = tensor == ARENA_WTE || tensor == ARENA_HEAD;

	e->tensor = tensor;
	e->layer = layer;
	e->first = a->param_elems;
	tensor_shape(a, tensor, &e->rows, &e->cols);
	a->param_elems += round_up(e->rows * e->cols, ARENA_ALIGN_ELEMS);
	a->model_params += (over_vocab ? a->vocab : e->rows) * e->cols;
}

void arena_init(struct arena *a, const struct spec_model *model)
{
	struct arena made = {
		.n_layer = model->n_layer,
		.n_embd = model->n_embd,
		.vocab = model->vocab_size,
		.vocab_padded = arena_vocab_padded(model->vocab_size),
		.n_positions = model->n_positions,
		.tied = model->tied_head,
	};
	size_t n = (size_t)model->n_layer * ARENA_PER_BLOCK + (model->tied_head ? 4 : 5);
	int64_t layer;
	size_t i;

	made.entries = memory_zeroed(n, sizeof(*made.entries));
	if (!made.tied)
		append(&made, ARENA_HEAD, 0);
	append(&made, ARENA_LNF_W, 0);
	append(&made, ARENA_LNF_B, 0);
	for (layer = made.n_layer - 1; layer >= 0; layer--) {
		for (i = 0; i < ARENA_PER_BLOCK; i++)
			append(&made, block_order[i], layer);
	}
	append(&made, ARENA_WPE, 0);
	append(&made, ARENA_WTE, 0);
	assert((size_t)made.n_entries == n);
	*a = made;
}

void arena_finish(struct arena *a)
{
	free(a->entries);
	a->entries = NULL;
	a->n_entries = 0;
}

const struct arena_entry *arena_find(const struct arena *a, enum arena_tensor tensor, int64_t layer)
{
	int64_t i;

	for (i = 0; i < a->n_entries; i++) {
		if (a->entries[i].tensor == tensor && a->entries[i].layer == layer)
			return &a->entries[i];
	}
	return NULL;
}

const char *arena_tensor_name(enum arena_tensor tensor)
{
	static const char *const names[] = {
		[ARENA_LN1_W] = "ln_1.weight",
		[ARENA_LN1_B] = "ln_1.bias",
		[ARENA_QKV_W] = "attn.c_attn.weight",
		[ARENA_QKV_B] = "attn.c_attn.bias",
		[ARENA_PROJ_W] = "attn.c_proj.weight",
		[ARENA_PROJ_B] = "attn.c_proj.bias",
		[ARENA_LN2_W] = "ln_2.weight",
		[ARENA_LN2_B] = "ln_2.bias",
		[ARENA_FC_W] = "mlp.c_fc.weight",
		[ARENA_FC_B] = "mlp.c_fc.bias",
		[ARENA_FCPROJ_W] = "mlp.c_proj.weight",
		[ARENA_FCPROJ_B] = "mlp.c_proj.bias",
		[ARENA_LNF_W] = "ln_f.weight",
		[ARENA_LNF_B] = "ln_f.bias",
		[ARENA_WPE] = "wpe.weight",
		[ARENA_WTE] = "wte.weight",
		[ARENA_HEAD] = "lm_head.weight",
	};

	return names[tensor];
}

int64_t arena_complete_after(const struct arena *a, int64_t layer)
{
	const struct arena_entry *next;

	if (layer < 0)
		return a->param_elems;
	next = layer == 0 ? arena_find(a, ARENA_WPE, 0) : arena_find(a, block_order[0], layer - 1);
	return next->first;
}
