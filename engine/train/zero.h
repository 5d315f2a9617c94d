/*
 * zero.h: when gradients and parameters travel. Stage 1: every reduce bucket is reduce-scattered
 * (or, with reduce_scatter off, all-reduced) once its gradients are final, each rank updates the
 * slices it owns, and the parameters are gathered again. Stage 0: every bucket is all-reduced and
 * every rank updates all.
 *
 * Collectives run on the communication stream, behind an event of the compute stream. With overlap
 * on, a bucket leaves while backward goes on below it, and the parameters travel while the next
 * step begins: forward waits for the gather buckets that it is about to read and no others. With
 * overlap off the buckets leave after backward, and the gather is waited for at once. Time that the
 * compute stream waits is marked on the timeline. A world of one has no group and nothing is
 * launched.
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

/* Tensors travel from one event to the other on the communication stream. */
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
	struct zero_span apart[2]; /* of gathers that no step begins with, in turn */

	/* of this segment */
	struct collectives_group *group; /* NULL in a world of one */
	const struct plan *plan;
	int64_t stage;
	bool reduce_scatter, overlap, deferred;
	char *params, *grads;
	size_t elem_bytes;

	/* of this step */
	int64_t reduced;        /* buckets [0, reduced) are launched */
	int64_t ready;          /* events used for "gradients are final" */
	bool owed;              /* parameters were updated and are not on their way */
	int64_t gather_pending; /* gather buckets [0, gather_pending) are not yet waited for */
	int64_t n_spans;
	int64_t n_apart;   /* of this segment */
	int64_t apart_due; /* of those, the ones before the step: the last counts in it */
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
	bool deferred; /* updated parameters travel when the next step begins */
	void *params, *grads;
	int64_t n_layer;
};
/* 0 or a negative errno. */
int zero_begin(struct zero *z, const struct zero_segment *segment);

/* Ranges of the arena that this rank updates, in arena order: how many, and the i-th. */
int64_t zero_owned_ranges(const struct plan *plan, int64_t stage);
struct k_range zero_owned_range(const struct plan *plan, int64_t stage, int rank, int64_t i);
int64_t zero_owned_elems(const struct plan *plan, int64_t stage, int rank);

/* Hooks of model.h. need: wait for parameters on their way. done: launch the buckets that are
 * complete. */
struct model_hooks zero_forward_hooks(struct zero *z);
struct model_hooks zero_backward_hooks(struct zero *z); /* of the last micro-step */

/*
 * After backward of the last micro-step: launch what has not left yet; compute waits for all of it.
 */
void zero_reduce_finish(struct zero *z);

/* Sum n int64 of device memory over the ranks that own slices; compute waits for it. */
void zero_sum_owned(struct zero *z, int64_t *values, int64_t n);

/* After the optimizer: the updated parameters go to all; deferred: zero_step_begin sends them. */
void zero_gather(struct zero *z);

/*
 * Deferred, the parameters travel here in every step, also when there is nothing new in them: the
 * collectives of a step are the same whatever went before it.
 */
void zero_step_begin(struct zero *z);

/*
 * A captured step was launched: what it left behind is what one that is launched singly leaves.
 * n_spans: zero_spans as it was after the capture.
 */
void zero_replayed(struct zero *z, int64_t n_spans);
int64_t zero_spans(const struct zero *z);

/*
 * Nanoseconds in which gradients and parameters travelled for the step that ended last, waiting for
 * other ranks included. A gather that ends a step without being waited for counts in the next step.
 */
int64_t zero_comm_ns(struct zero *z);

/* Before forward outside of a step: parameters that are owed are sent off. */
void zero_flush(struct zero *z);

/* The same, and compute waits until no parameter is on its way. */
void zero_drain(struct zero *z);

/* Most marks a step puts on the timeline here. */
int64_t zero_marks(int64_t n_layer);

#endif
