/*
 * pace.h: estimates the remaining time of the run in progress from the mean time of a step and the
 * mean time of a trained segment, pauses included. Times are monotonic.
 */
#ifndef GPT2D_DAEMON_RUNS_PACE_H
#define GPT2D_DAEMON_RUNS_PACE_H

#include <stdint.h>

struct pace {
	int64_t begun_ns;             /* the run */
	int64_t trained, trained_ns;  /* trained segments, and the time of the last one */
	int64_t segment, step, at_ns; /* time of the first step message of this segment */
	double step_ns;               /* mean since then; 0: unknown */
};

/* A run starts. */
void pace_begin(struct pace *p, int64_t now_ns);
/* A message of a step that took step_ns. Not every step sends a message. */
void pace_step(struct pace *p, int64_t segment, int64_t step, double step_ns, int64_t now_ns);
/* A segment is trained. */
void pace_trained(struct pace *p, int64_t now_ns);
/* Remaining time after step (from 1) of steps, with this many segments to follow. */
double pace_left_s(const struct pace *p, int64_t step, int64_t steps, int64_t segments_left);

#endif
