/*
 * activations.h: where the activations of a micro-batch lie in their one buffer, and its size: pure
 * functions of the shape, so that the plan of a run has the real bytes. activation_checkpointing of
 * the spec decides what the buffer keeps for backward:
 *   none all that backward reads, of every block
 *   selective the same without the outputs of LayerNorm and GELU: one buffer for all norms and one
 *              for GELU, which the blocks use in turn
 *   full of each block its input; the rest of one block, which the blocks use in turn
 * Each takes less than the one before it; with a single block full takes as much as selective.
 */
#ifndef GPT2D_ENGINE_TRAIN_ACTIVATIONS_H
#define GPT2D_ENGINE_TRAIN_ACTIVATIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/spec/spec.h"

struct activations_shape {
	const struct spec_model *model;
	enum spec_recompute recompute;
	int64_t B, T;
	int64_t elem_bytes; /* of the compute type */
	int64_t real_bytes; /* of a k_real: statistics of the norms, log-sum-exp */
};

/* Bytes from the buffer's start, in block 0; from there to the next block's, 0: the same. */
struct activations_tensor {
	int64_t first, stride;
};

/*
 * Where a block's gradients lie while the gradients of parameters are computed from them; blocks
 * use two such sets in turn.
 */
struct activations_gradients {
	int64_t wide;         /* (R,4C) of what GELU reads */
	int64_t residual_mid; /* (R,C) */
	int64_t qkv;          /* (R,3C) */
	int64_t residual;     /* (R,C) of the block's input */
};

struct activations {
	/* of each block; R = B * T */
	struct activations_tensor residual;                /* (R,C) the block's input */
	struct activations_tensor ln1, ln1_mean, ln1_rstd; /* (R,C) (R) (R) */
	struct activations_tensor qkv, attention, lse;     /* (R,3C) (R,C) (B,NH,T) */
	struct activations_tensor residual_mid;            /* (R,C) */
	struct activations_tensor ln2, ln2_mean, ln2_rstd;
	struct activations_tensor fc_pre, fc; /* (R,4C) before and after GELU */
	/* once */
	int64_t residual_final, lnf, lnf_mean, lnf_rstd;
	int64_t logits;     /* (R,Vp) */
	int64_t branch;     /* (R,C) what joins the residual next; backward: a masked gradient */
	int64_t d_residual; /* (R,C) */
	int64_t d_narrow;   /* (R,C) */
	int64_t d_wide;     /* (R,4C) */
	/*
	 * separate: the sets use the memory of the logits and share nothing; else, if it is too
	 * small, all are d_wide and d_residual
	 */
	bool apart;
	struct activations_gradients gradients[2];
	int64_t token_order; /* (2 R) int32, after them; only if separate */
	int64_t total_bytes;
};

void activations_place(struct activations *a, const struct activations_shape *shape);
int64_t activations_bytes(const struct activations_shape *shape); /* total_bytes of it */
/* The same with another setting. */
int64_t activations_bytes_with(
	const struct activations_shape *shape, enum spec_recompute recompute);
int64_t activations_logits_bytes(const struct activations_shape *shape); /* the logits alone */

#endif
