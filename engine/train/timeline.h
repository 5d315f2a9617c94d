/*
 * timeline.h: what the compute stream did during a step. Each mark is an event on the stream and
 * begins a phase that lasts until the next mark; a step begins where the one before ended, so
 * phases add up to the whole step and what the host does between steps is in it.
 *
 * The marks of a step are always the same events in the same order, so those that a captured graph
 * of the step holds keep their meaning when it is launched again. Where steps begin and end are
 * events apart, two in turn: they must not be captured.
 */
#ifndef GPT2D_ENGINE_TRAIN_TIMELINE_H
#define GPT2D_ENGINE_TRAIN_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

enum timeline_phase {
	TIMELINE_OTHER,
	TIMELINE_DATA,
	TIMELINE_FORWARD,
	TIMELINE_BACKWARD,
	TIMELINE_EXPOSED, /* compute waits for communication */
	TIMELINE_OPTIMIZER,
	TIMELINE_PHASES,
};

struct timeline {
	struct k_context *ctx;
	struct k_stream *stream;
	struct k_event **events;
	enum timeline_phase *phases;
	int64_t n, capacity;
	struct k_event *ends[2];
	int last;   /* of ends: where the step under way began, or the last one ended */
	bool begun; /* that one has been recorded */
};

/* 0 or a negative errno; timeline_finish is due in both cases. */
int timeline_init(struct timeline *t, struct k_context *ctx, struct k_stream *stream);
void timeline_finish(struct timeline *t);

/* Room for so many marks in one step; grows only, and forgets what was marked. 0 or a negative
 * errno. */
int timeline_reserve(struct timeline *t, int64_t marks);

/* Forget everything: the next step begins where it starts. */
void timeline_reset(struct timeline *t);

/* A step begins, where the step before ended when there was one. */
void timeline_start(struct timeline *t);

/* From here on it is `phase`; returns the phase until now. */
enum timeline_phase timeline_enter(struct timeline *t, enum timeline_phase phase);

/* The marks that a graph which is now launched makes: `n` of these phases. */
void timeline_replay(struct timeline *t, const enum timeline_phase *phases, int64_t n);

/* Here the step ends. */
void timeline_end(struct timeline *t);

/*
 * How many waits for communication the step that ended last had, and their nanoseconds into ns
 * (NULL: only count), in the order of the stream: wait k is for the same collective on every rank.
 */
int64_t timeline_exposed(const struct timeline *t, float *ns);

/* Nanoseconds of each phase of the step that ended last, all marks of which must have completed. */
void timeline_total(const struct timeline *t, int64_t ns[TIMELINE_PHASES]);

#endif
