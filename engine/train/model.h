/*
 * model.h: GPT-2 forward and backward with the operations of kernels.h. Pre-norm blocks, learned
 * positions, q|k|v in one matrix, linear weights (out, in). Dropout, if the spec has it, acts in
 * the places of GPT-2: embedding sum, attention weights, and the outputs of both projections that
 * join the residual.
 *
 * The model owns nothing: parameters and gradients are arenas (arena.h), activations one buffer
 * (activations.h). Backward recomputes what the buffer does not keep, with the operations, shapes
 * and random numbers of forward, so gradients have the same bits with every setting. Everything is
 * launched on the given stream or a branch of it, and the model never waits.
 */
#ifndef GPT2D_ENGINE_TRAIN_MODEL_H
#define GPT2D_ENGINE_TRAIN_MODEL_H

#include <stdint.h>

#include "engine/train/activations.h"
#include "engine/train/arena.h"
#include "kernels/kernels.h"
#include "proto/spec/spec.h"

/*
 * Hooks into a pass. need: elements [first, first + n) of the parameter arena will be read next
 * (called before each part of forward). done: elements [0, complete) of the gradient arena are
 * final once `on` has reached this point (called after each part of backward). last: so are the
 * embeddings' [first, all of it), although some before them may not be (called before the last
 * done). Each may be NULL.
 */
struct model_hooks {
	void *arg;
	void (*need)(void *arg, int64_t first, int64_t n);
	void (*done)(void *arg, int64_t complete, struct k_stream *on);
	void (*last)(void *arg, int64_t first, struct k_stream *on);
};

struct model {
	struct k_context *ctx;
	struct k_stream *stream;
	const struct arena *arena;
	const struct spec_model *spec;
	enum spec_recompute recompute;
	int64_t B, T;         /* with B 1, T may be set to less than the shape's */
	void *params, *grads; /* arenas, compute type; grads may be NULL if backward is not run */
	char *acts;
	struct activations layout;
};

struct model_buffers {
	void *params, *grads; /* arena elements of the compute type */
	void *acts;           /* activations_bytes() */
};
/* The shape's model outlives this one; its element is the context's. */
void model_init(struct model *m, struct k_context *ctx, struct k_stream *stream,
	const struct arena *arena, const struct activations_shape *shape,
	const struct model_buffers *buffers);

/*
 * One pass over (B,T) tokens. A pass with dropout takes its random numbers from seed and from the
 * number of the batch's first sample in the whole run, so no two passes of a run share them:
 * `first_sample`, plus the number in *dropout_from.
 */
struct model_pass {
	const int32_t *tokens; /* (B,T) device */
	double dropout;
	uint64_t seed;
	int64_t first_sample;
	const uint64_t *dropout_from; /* device, model_dropout_from() of a sample; NULL: of 0 */
	bool first; /* of a step's: backward follows model_begin_gradients() */
	/*
	 * Without backward, B 1, T 1, and a separate qkv for each block: the number of tokens
	 * before this one, whose keys and values earlier passes left in qkv.
	 */
	int64_t past;
};
uint64_t model_dropout_from(const struct spec_model *spec, int64_t sample);

/* Fills the activations up to the logits. */
void model_forward(struct model *m, const struct model_pass *pass, const struct model_hooks *hooks);

/*
 * The same, but only the logits (Vp) of this row (of B*T), which are returned. The padded columns
 * are excluded.
 */
const void *model_forward_row(struct model *m, const struct model_pass *pass, int64_t row);

/* losses (B,T); scale and times as in k_cross_entropy: scale 0 leaves the logits unchanged. */
void model_loss(
	struct model *m, k_real *losses, const int32_t *targets, double scale, const double *times);

/*
 * Zeroes the gradients that the first pass adds to, on a stream that backward waits for; the pass
 * overwrites the weights of linear layers. Padding between and after the tensors is unchanged.
 */
void model_begin_gradients(struct model *m, struct k_stream *on);

/*
 * grads +=, from model_loss's result in place of the logits; the pass must be the last one of
 * forward.
 */
void model_backward(
	struct model *m, const struct model_pass *pass, const struct model_hooks *hooks);

#endif
