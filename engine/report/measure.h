/*
 * measure.h: what a segment's steps took, on every rank, and the figures drawn from it. Times are
 * nanoseconds of the monotonic clock (CPU) or of the device. The time of one step is the slowest
 * rank's. The time of all steps is the elapsed time: the largest of the ranks' own sums. The sum of
 * the slowest rank's times is longer, where the ranks are slow in turns.
 */
#ifndef GPT2D_ENGINE_REPORT_MEASURE_H
#define GPT2D_ENGINE_REPORT_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/stats/stats.h"

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
	int32_t skipped;    /* 1: overflow, not applied */
	int32_t saving;     /* 1: a checkpoint was being copied or written on this rank */
	int64_t end_utc_ns; /* wall clock at the end of the step, for step_log.csv */
};

/*
 * Each wait for communication of the first measured steps, as many steps as fit the bound. The
 * shortest of the ranks' waits for a collective is its transfer, the rest is waiting for the
 * slowest rank.
 */
enum { MEASURE_WAITS_MAX = 1 << 20 };
struct measure_waits {
	float *own;          /* this rank's, steps * per_step, in nanoseconds */
	int64_t per_step;    /* of the first measured step; 0: there are none */
	int64_t steps, room; /* kept; that fit */
	float *all;          /* all ranks', rank after rank; NULL: not gathered */
};

struct measure {
	int64_t steps, warmup;   /* planned steps, of which the first are outside the figures */
	int64_t before;          /* optimizer steps of the training before these: it was resumed */
	int64_t done;            /* steps measured so far */
	int64_t tokens_per_step; /* global */
	int world;
	struct measure_step *own; /* this rank's */
	struct measure_waits waits;
	/* after measure_merge */
	struct measure_step *slowest; /* per field the largest over ranks */
	/*
	 * Steps after warm-up in which a checkpoint was written. The figures leave these out,
	 * unless no other step is there: then they count, and this is 0.
	 */
	int64_t saving;
	/*
	 * All ranks', rank after rank: world * done, 96 bytes for each step of each rank; NULL in a
	 * world of one.
	 */
	struct measure_step *all;
};

/* 0, or -EINVAL when warmup >= steps: nothing would be left to measure. */
int measure_init(
	struct measure *m, int64_t steps, int64_t warmup, int64_t tokens_per_step, int world);
void measure_finish(struct measure *m);

/*
 * all: as gathered, malloc'd, and from here on m's; NULL in a world of one. Fills slowest.
 */
void measure_merge(struct measure *m, struct measure_step *all);
/*
 * Where the waits of the step that was done last go, `n` of them. NULL: they are not kept, because
 * the step is a warm-up, the bound is reached, or n is not that of the steps before.
 */
float *measure_keep_waits(struct measure *m, int64_t n);

/* A rank's own `done` steps; after measure_merge. */
const struct measure_step *measure_rank(const struct measure *m, int rank);

/* The largest of the ranks' own sums of the steps from `first` (from 0) on. */
int64_t measure_elapsed_ns(const struct measure *m, int64_t first);

/* Whether a step done, from 0, counts in the figures. After measure_merge. */
bool measure_counts(const struct measure *m, int64_t i);

/* Means over the steps that count, in seconds. */
struct measure_phases {
	double data, forward, backward, exposed_comm, optimizer;
	double work; /* the step without exposed communication */
};
/* A rank's own; nan without a step after warm-up. */
void measure_rank_phases(const struct measure *m, int rank, struct measure_phases *out);

/*
 * A step takes all ranks the same time, as each waits for all: it is the rank with most work of
 * its own that keeps the others waiting. Beside it the median of the others, by nearest rank.
 */
struct measure_slowest {
	int rank;
	double work_mean_s, others_median_s;
	int parts;   /* alike, of the measured steps: eight, or as many as there are */
	int most_in; /* of them, in which no other rank has more work */
};
/* 0, or -ENODATA in a world of one or without a step after warm-up. */
int measure_find_slowest(const struct measure *m, struct measure_slowest *out);

/*
 * Figures of the steps after warm-up without those beside a checkpoint. Losses, and the steps
 * attempted, applied and skipped, are of all steps done. tok_s_per_gpu is kept to 43 bits, so that
 * tok_s_global is its product with world exactly.
 */
struct measure_summary {
	int64_t steps_attempted, steps_applied, steps_skipped, steps_measured;
	int64_t tokens_total, tokens_measured;
	double seconds_measured; /* elapsed, and the time that the rates are over */
	double tok_s_global, tok_s_per_gpu;
	struct stats_summary step;    /* of the slowest rank's time in each step */
	struct measure_phases phases; /* means over the ranks */
	/* seconds, of phases.exposed_comm; nan: not known */
	double exposed_transfer, exposed_wait;
	int64_t split_steps;                     /* whose waits the shares of these two come from */
	double loss_mean, loss_first, loss_last; /* of finite losses; nan when there is none */
	int64_t nonfinite;                       /* how many losses were not */
};
/* 0, or -ENODATA when no step after warm-up was done. After measure_merge. */
int measure_summarise(const struct measure *m, struct measure_summary *out);

#endif
