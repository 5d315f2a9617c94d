/*
 * optimizer.h: AdamW (Loshchilov & Hutter, 2019) over the ranges of the arena that this rank owns,
 * the global gradient norm and clipping before it, and the initial parameters.
 *
 * Initial values are those of GPT-2 as nanoGPT and llm.c draw them: matrices, both embeddings
 * included, from a normal distribution of deviation 0.02; the two projections that join the
 * residual 0.02/sqrt(2 n_layer); norm weights 1; biases and padded vocabulary rows 0. A value
 * depends on the seed and its place in its tensor alone, so every world starts from the same model.
 */
#ifndef GPT2D_ENGINE_TRAIN_OPTIMIZER_H
#define GPT2D_ENGINE_TRAIN_OPTIMIZER_H

#include <stdint.h>

#include "engine/train/arena.h"
#include "engine/train/plan.h"
#include "engine/train/zero.h"
#include "kernels/kernels.h"
#include "proto/spec/spec.h"

/* Device memory behind an optimizer. m and v: zero_owned_elems() each, compact. */
struct optimizer_buffers {
	void *params, *grads; /* arenas, compute type */
	k_real *master;       /* params itself when that is fp32, else laid out like m and v */
	k_real *m, *v;
	void *small; /* optimizer_small_bytes() */
	/* used by optimizer_reset and optimizer_put alone, and only where master is not params */
	k_real *scratch;
	int64_t scratch_elems; /* > 0; fewer take more launches */
};

struct optimizer {
	struct k_context *ctx;
	struct k_stream *stream;
	struct k_adamw adamw;
	const struct plan *plan;
	int64_t stage;
	int rank;
	int64_t owned_elems;
	k_real *scratch;
	int64_t scratch_elems;
	struct k_step_state *state; /* device */
	struct k_exact_sum *sum;    /* device */
	int64_t summed; /* gradients [0, summed) are in *sum; -1: none, and *sum is to be made 0 */
	int64_t summed_from; /* those from here to the end as well */
};

int64_t optimizer_small_bytes(const struct arena *arena, const struct plan *plan, int64_t stage);

struct optimizer_options {
	struct k_context *ctx;
	struct k_stream *stream;
	const struct spec_config *config;
	const struct arena *arena;
	const struct plan *plan; /* outlives the optimizer */
	int rank;                /* among those that own slices */
};
/* 0 or -ENOMEM. */
int optimizer_init(struct optimizer *o, const struct optimizer_options *options,
	const struct optimizer_buffers *buffers);

/* Parameters from the seed, moments zero. */
void optimizer_reset(struct optimizer *o, const struct arena *arena, const struct spec_model *model,
	uint64_t seed);

/*
 * Elements [first, first + n) of the parameter arena become values (host): in the compute type, and
 * of what this rank owns in fp32. Waits until it is so: 0, or a negative errno as k_stream_sync.
 */
int optimizer_put(struct optimizer *o, int64_t first, const k_real *values, int64_t n);

/*
 * Hooks of model.h for the last backward of a world of one: squares of gradients are summed as
 * these complete, beside backward. The sum is exact: when it is taken does not change it.
 */
struct model_hooks optimizer_backward_hooks(struct optimizer *o);

/*
 * All operations of optimizer_norm and optimizer_update but what ranks do together, on whatever
 * gradients there are. state (host, outlives them): its lr is 0, so parameters stay; moments do
 * not.
 */
void optimizer_try(struct optimizer *o, const struct k_step_state *state);

/* Exact sum of squares of the owned gradients, summed over their owners: of those not yet in it. */
void optimizer_norm(struct optimizer *o, struct zero *zero);

/*
 * Norm and clipping factor into the state, then the update; nothing when a gradient is not finite.
 */
void optimizer_update(struct optimizer *o);

#endif
