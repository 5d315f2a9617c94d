/*
 * gpt2_weights.h: loads the weights of a GPT-2 in the format of Hugging Face's transformers (4.x),
 * a safetensors file, into the arena: init_from.safetensors.
 *
 * Names are those of arena.h, in blocks with the prefix "h.N.", and all but lm_head with or without
 * the prefix "transformer.". Conv1D stores (inputs, outputs): those four matrices of a block are
 * transposed. The file has the real vocabulary; the padded rows stay 0. Causal masks (attn.bias,
 * attn.masked_bias) are ignored; any other tensor is refused.
 *
 * The head: a tied model takes a file without lm_head.weight, or with one that equals wte.weight.
 * An untied model takes lm_head.weight, or starts with a copy of wte.weight.
 */
#ifndef GPT2D_ENGINE_CHECKPOINT_GPT2_WEIGHTS_H
#define GPT2D_ENGINE_CHECKPOINT_GPT2_WEIGHTS_H

#include <stddef.h>

#include "engine/data/dataset.h"
#include "engine/train/arena.h"
#include "proto/host/data_roots.h"
#include "proto/safetensors.h"

struct gpt2_weights {
	struct safetensors file;
	const struct arena *arena;
	const char *prefix; /* prefix of all names but lm_head.weight */
	/* its path, identity and descriptor (the file's), for dataset_identity_... and content.h */
	struct dataset identity;
};

/*
 * Opens the file and checks the names, shapes and types of all tensors. The arena outlives *w.
 * roots->n 0: any place is allowed. 0, or a negative errno with error, which names the path, the
 * tensor, what was expected and what was found.
 */
int gpt2_weights_open(struct gpt2_weights *w, const struct arena *arena, const char *path,
	const struct data_roots *roots, char *error, size_t error_bytes);
void gpt2_weights_close(struct gpt2_weights *w);

/* Receives loaded values: elements [first, first + n) of the arena. 0 or a negative errno. */
struct gpt2_weights_target {
	int (*put)(void *arg, int64_t first, const float *values, int64_t n);
	void *arg;
};
/*
 * Loads all parameters, in arena order; padding is not passed to put. 0; -EIO or another errno with
 * error if the file cannot be read; -ENOTRECOVERABLE with error if put fails.
 */
int gpt2_weights_load(const struct gpt2_weights *w, const struct gpt2_weights_target *to,
	char *error, size_t error_bytes);

#endif
