/*
 * check_memory.h: the words for a plan that needs more memory than there is. Parts have the
 * names that gpt2ctl prints in its plan.
 */
#ifndef GPT2D_CHECK_MEMORY_H
#define GPT2D_CHECK_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "engine/activations.h"
#include "engine/check.h"

/* What a rank plans, in bytes. */
struct check_needed {
	struct activations_shape shape;
	int64_t arena, master, moment, activations, logits, batch, scratch, branch, total;
	int64_t ranks;   /* that share the memory */
	int64_t planned; /* by those */
};

/*
 * Of a plan beyond options' memory_total_bytes: how much, of which ranks, the largest part, what
 * takes less. The key of what has to change: "model" where no batch would fit or what is largest
 * does not go with the batch, unless activation_checkpointing is enough.
 */
const char *check_memory_refusal(const struct check_options *options,
	const struct check_needed *needed, char *out, size_t out_bytes);

/* Of a plan beyond memory_free_bytes only. */
void check_memory_warning(const struct check_options *options, const struct check_needed *needed,
	char *out, size_t out_bytes);

#endif
