/*
 * optimizer.h: AdamW (Loshchilov & Hutter, 2019) over the ranges of the arena that this rank owns,
 * after the global gradient norm and clipping, and the initial parameters.
 *
 * Initial values are those of GPT-2 as in nanoGPT and llm.c: matrices, both embeddings included,
 * from a normal distribution of deviation 0.02; the two projections that join the residual
 * 0.02/sqrt(2 n_layer); norm weights 1; biases and padded vocabulary rows 0. A value depends only
 * on the seed and its place in its tensor, so training starts from the same model with any number
 * of ranks.
 */
#ifndef GPT2D_ENGINE_TRAIN_OPTIMIZER_H
#define GPT2D_ENGINE_TRAIN_OPTIMIZER_H

#include <stdint.h>

#include "engine/train/arena.h"
#include "engine/train/plan.h"
#include "engine/train/zero.h"
#include "kernels/kernels.h"
#include "proto/spec/spec.h"

/* Device memory of an optimizer. m and v: zero_owned_elems() each, compact. */
struct optimizer_buffers {
	void *params, *grads; /* arenas, compute type */
	k_real *master;       /* params itself if that is fp32, else laid out like m and v */
	k_real *m, *v;
	void *small; /* optimizer_small_bytes() */
	/* only for optimizer_reset and optimizer_put, and only if master is not params */
	k_real *scratch;
	int64_t scratch_elems; /* > 0; fewer elements take more launches */
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
	int64_t summed; /* gradients [0, summed) are in *sum; -1: none, and *sum must be set to 0 */
	int64_t summed_from; /* also those from here to the end */
};

int64_t optimizer_small_bytes(const struct arena *arena, const struct plan *plan, int64_t stage);

struct optimizer_options {
	struct k_context *ctx;
	struct k_stream *stream;
	const struct spec_config *config;
	const struct arena *arena;
	const struct plan *plan; /* outlives the optimizer */
	int rank;                /* number of ranks that own slices */
};
/* 0 or -ENOMEM. */
int optimizer_init(struct optimizer *o, const struct optimizer_options *options,
	const struct optimizer_buffers *buffers);

/* Parameters from the seed, moments zero. */
void optimizer_reset(struct optimizer *o, const struct arena *arena, const struct spec_model *model,
	uint64_t seed);

/*
 * Sets elements [first, first + n) of the parameter arena to values (host): in the compute type,
 * and in fp32 for the owned ones. Waits until it is done: 0, or a negative errno as k_stream_sync.
 */
int optimizer_put(struct optimizer *o, int64_t first, const k_real *values, int64_t n);

/*
 * Hooks of model.h for the last backward with one rank: sums the squares of gradients as they
 * complete, during backward. The sum is exact, so its order does not matter.
 */
struct model_hooks optimizer_backward_hooks(struct optimizer *o);

/*
 * Runs all operations of optimizer_norm and optimizer_update except collectives, on any gradients.
 * state (host, outlives them): its lr is 0, so parameters stay; moments change.
 */
void optimizer_try(struct optimizer *o, const struct k_step_state *state);

/* Exact sum of squares of the owned gradients, summed over their owners: of those not yet in it. */
void optimizer_norm(struct optimizer *o, struct zero *zero);

/*
 * Writes norm and clipping factor into the state, then updates; no update if a gradient is not
 * finite.
 */
void optimizer_update(struct optimizer *o);

#endif
