/*
 * zero.h: when gradients and parameters are sent. Stage 1: every reduce bucket is reduce-scattered
 * (or, with reduce_scatter off, all-reduced) once its gradients are final, each rank updates the
 * slices it owns, and the parameters are gathered again. Stage 0: every bucket is all-reduced and
 * every rank updates all.
 *
 * Collectives run on the communication stream, after an event of the compute stream. With overlap
 * on, a bucket is sent while backward continues, and the parameters are sent while the next step
 * begins: forward waits only for the gather buckets that it reads next. With overlap off the
 * buckets are sent after backward, and the gather is waited for at once. Waits of the compute
 * stream are marked on the timeline. With one rank there is no group and nothing is launched.
 */
#ifndef GPT2D_ENGINE_TRAIN_ZERO_H
#define GPT2D_ENGINE_TRAIN_ZERO_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/comm/collectives.h"
#include "engine/train/model.h"
#include "engine/train/plan.h"
#include "engine/train/timeline.h"
#include "kernels/kernels.h"

/* A transfer of tensors between the two events on the communication stream. */
struct zero_span {
	struct k_event *from, *to;
};

struct zero {
	/* kept over segments */
	struct k_context *ctx;
	struct k_stream *compute, *comm;
	struct timeline *time;
	struct k_event **events; /* grows only */
	int64_t n_events;
	struct zero_span *spans; /* of a step, in its order; grows only */
	int64_t spans_capacity;
	struct zero_span apart[2]; /* of gathers at the end of a step, used in turn */

	/* of this segment */
	struct collectives_group *group; /* NULL with one rank */
	const struct plan *plan;
	int64_t stage;
	bool reduce_scatter, overlap, deferred;
	char *params, *grads;
	size_t elem_bytes;

	/* of this step */
	int64_t reduced;        /* buckets [0, reduced) are launched */
	int64_t ready;          /* events used for "gradients are final" */
	bool owed;              /* parameters were updated and are not sent yet */
	int64_t gather_pending; /* gather buckets [0, gather_pending) are not yet waited for */
	int64_t n_spans;
	int64_t n_apart;   /* of this segment */
	int64_t apart_due; /* of those, from before the step: the last one counts in it */
	int64_t apart_counted;
};

void zero_init(struct zero *z, struct k_context *ctx, struct k_stream *compute,
	struct k_stream *comm, struct timeline *time);
void zero_finish(struct zero *z);

struct zero_segment {
	struct collectives_group *group;
	const struct plan *plan; /* outlives the segment */
	int64_t stage;
	bool reduce_scatter, overlap;
	bool deferred; /* updated parameters are sent when the next step begins */
	void *params, *grads;
	int64_t n_layer;
};
/* 0 or a negative errno. */
int zero_begin(struct zero *z, const struct zero_segment *segment);

/* Ranges of the arena that this rank updates, in arena order: how many, and the i-th. */
int64_t zero_owned_ranges(const struct plan *plan, int64_t stage);
struct k_range zero_owned_range(const struct plan *plan, int64_t stage, int rank, int64_t i);
int64_t zero_owned_elems(const struct plan *plan, int64_t stage, int rank);

/* Hooks of model.h. need: waits for gathered parameters. done: launches the complete buckets. */
struct model_hooks zero_forward_hooks(struct zero *z);
struct model_hooks zero_backward_hooks(struct zero *z); /* of the last micro-step */

/* After backward of the last micro-step: launches the remaining buckets; compute waits for all. */
void zero_reduce_finish(struct zero *z);

/* Sum n int64 of device memory over the ranks that own slices; compute waits for it. */
void zero_sum_owned(struct zero *z, int64_t *values, int64_t n);

/*
 * After the optimizer: sends the updated parameters to all; deferred: zero_step_begin sends them.
 */
void zero_gather(struct zero *z);

/*
 * Deferred: parameters are sent here in every step, even without new values, so that the
 * collectives of a step are always the same.
 */
void zero_step_begin(struct zero *z);

/*
 * A captured step was launched: sets the state that a step launched by operations leaves. n_spans:
 * zero_spans as it was after the capture.
 */
void zero_replayed(struct zero *z, int64_t n_spans);
int64_t zero_spans(const struct zero *z);

/*
 * Nanoseconds of transfers of gradients and parameters in the step that ended last, including waits
 * for other ranks. A gather that ends a step without a wait counts in the next step.
 */
int64_t zero_comm_ns(struct zero *z);

/* Before forward outside of a step: sends parameters that are not sent yet. */
void zero_flush(struct zero *z);

/* The same, and compute waits until all parameters have arrived. */
void zero_drain(struct zero *z);

/* Maximum of marks that zero.c puts on the timeline in a step. */
int64_t zero_marks(int64_t n_layer);

#endif
