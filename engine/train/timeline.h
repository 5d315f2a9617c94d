/*
 * timeline.h: the phases of the compute stream in a step. Each mark is an event on the stream and
 * begins a phase that lasts until the next mark. A step begins where the one before ended, so
 * phases add up to the whole step, including the host's work between steps.
 *
 * The marks of a step are always the same events in the same order, so the marks in a captured
 * graph keep their meaning when it is launched again. Separate events, two in turn, mark the start
 * and end of steps, because they must not be captured.
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
	int last;   /* index of ends: the start of the current step, or the end of the last one */
	bool begun; /* whether that event has been recorded */
};

/* 0 or a negative errno; call timeline_finish in both cases. */
int timeline_init(struct timeline *t, struct k_context *ctx, struct k_stream *stream);
void timeline_finish(struct timeline *t);

/*
 * Room for this many marks in one step; grows only, and forgets earlier marks. 0 or a negative
 * errno.
 */
int timeline_reserve(struct timeline *t, int64_t marks);

/* Forgets everything: the next step begins at its own start. */
void timeline_reset(struct timeline *t);

/* A step begins, at the end of the step before if there was one. */
void timeline_start(struct timeline *t);

/* From here on it is `phase`; returns the previous phase. */
enum timeline_phase timeline_enter(struct timeline *t, enum timeline_phase phase);

/* The marks of a graph that is launched next: `n` of these phases. */
void timeline_replay(struct timeline *t, const enum timeline_phase *phases, int64_t n);

/* The step ends here. */
void timeline_end(struct timeline *t);

/*
 * Number of waits for communication in the step that ended last, and their nanoseconds in ns (NULL:
 * only count), in the order of the stream: wait k is for the same collective on every rank.
 */
int64_t timeline_exposed(const struct timeline *t, float *ns);

/* Nanoseconds of each phase of the step that ended last; all its marks must have completed. */
void timeline_total(const struct timeline *t, int64_t ns[TIMELINE_PHASES]);

#endif
