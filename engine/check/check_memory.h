/*
 * check_memory.h: the words for a plan that needs more memory than there is. Parts have the
 * names that gpt2ctl prints in its plan.
 */
#ifndef GPT2D_ENGINE_CHECK_CHECK_MEMORY_H
#define GPT2D_ENGINE_CHECK_CHECK_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/train/activations.h"
#include "engine/check/check.h"

/* What a rank plans, in bytes. */
struct check_needed {
	struct activations_shape shape;
	int64_t arena, master, moment, activations, logits, batch, scratch, branch, total;
	bool together;   /* others of the run's ranks take theirs of the same memory */
	int64_t ranks;   /* that are counted */
	int64_t planned; /* by those */
};

/*
 * shape, and from arena to branch but batch: what a check plans and a run takes. owned_elems:
 * elements of the arena that the rank's optimizer has; scratch of k_scratch_plan.
 */
void check_memory_parts(struct check_needed *needed, const struct activations_shape *shape,
	int64_t arena_elems, int64_t owned_elems, const int64_t scratch[K_SCRATCH_KINDS]);

/*
 * Of a plan beyond options' memory_total_bytes: how much, of which ranks, the largest part, what
 * takes less. The key of what has to change: "model" where no batch would fit or what is largest
 * does not go with the batch, unless activation_checkpointing is enough.
 */
const char *check_memory_refusal(const struct check_options *options,
	const struct check_needed *needed, char *out, size_t out_bytes);

/*
 * At a run's start, of one rank (needed's ranks are 1): it holds held_bytes of what is planned and
 * finds memory_free_bytes beside them, which is too little. others: who else has memory there, put
 * behind what is free; or "".
 */
void check_memory_none_left(const struct check_options *options, const struct check_needed *needed,
	int64_t held_bytes, const char *others, char *out, size_t out_bytes);

/* Of a plan beyond memory_free_bytes only. */
void check_memory_warning(const struct check_options *options, const struct check_needed *needed,
	char *out, size_t out_bytes);

#endif
