/*
 * measure.h: what a segment's steps took, on every rank, and the figures drawn from it. Times are
 * nanoseconds of the monotonic clock (CPU) or of the device; a step's time is the slowest rank's.
 */
#ifndef GPT2D_MEASURE_H
#define GPT2D_MEASURE_H

#include <stdint.h>

#include "proto/stats.h"

struct measure_step {
	int64_t step_ns; /* whole step */
	int64_t data_ns; /* waiting for input */
	int64_t forward_ns;
	int64_t backward_ns;
	int64_t exposed_comm_ns; /* compute waiting for reduce-scatter, all-gather, all-reduce */
	int64_t optimizer_ns;
	/* the same on all ranks */
	double loss; /* mean over the global batch's tokens */
	double grad_norm;
	double lr;
	double loss_scale;
	int64_t skipped;    /* 1: overflow, not applied */
	int64_t end_utc_ns; /* wall clock at the end of the step, for step_log.csv */
};

struct measure {
	int64_t steps, warmup;   /* planned steps, of which the first are outside the figures */
	int64_t done;            /* steps measured so far */
	int64_t tokens_per_step; /* global */
	int world;
	struct measure_step *own; /* this rank's */
	/* per field the largest over ranks; rank 0 only, after measure_merge */
	struct measure_step *slowest;
};

/* 0, -ENOMEM, or -EINVAL when warmup >= steps: nothing would be left to measure. */
int measure_init(
	struct measure *m, int64_t steps, int64_t warmup, int64_t tokens_per_step, int world);
void measure_finish(struct measure *m);

/*
 * all: world * done steps, rank after rank, as gathered (own when the world is 1); fills slowest.
 */
void measure_merge(struct measure *m, const struct measure_step *all);

/*
 * Figures of the steps after warm-up. Losses, and the steps attempted, applied and skipped, are of
 * all steps done. tok_s_per_gpu is kept to 43 bits, so that tok_s_global is its product with world
 * exactly.
 */
struct measure_summary {
	int64_t steps_attempted, steps_applied, steps_skipped, steps_measured;
	int64_t tokens_total, tokens_measured;
	double seconds_measured;
	double tok_s_global, tok_s_per_gpu;
	struct stats_summary step;
	double data_mean_s, forward_mean_s, backward_mean_s, exposed_comm_mean_s, optimizer_mean_s;
	double loss_mean, loss_first, loss_last; /* of finite losses; nan when there is none */
	int64_t nonfinite;                       /* how many losses were not */
};
/* 0, -ENOMEM, or -ENODATA when no step after warm-up was done. After measure_merge. */
int measure_summarise(const struct measure *m, struct measure_summary *out);

#endif
