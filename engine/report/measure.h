/*
 * measure.h: the times of a segment's steps on every rank, and figures from them. Times are
 * nanoseconds of the monotonic clock (CPU) or of the device. The time of one step is the slowest
 * rank's. The time of all steps is the elapsed time: the largest of the ranks' own sums. The sum of
 * the slowest rank's times would be longer if ranks are slow in turn.
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
 * Each wait for communication in the first measured steps, as many as fit the limit. The shortest
 * of the ranks' waits for a collective is its transfer, the rest is waiting for the slowest rank.
 */
enum { MEASURE_WAITS_MAX = 1 << 20 };
struct measure_waits {
	float *own;          /* this rank's, steps * per_step, in nanoseconds */
	int64_t per_step;    /* number of the first measured step; 0: none */
	int64_t steps, room; /* steps kept; steps that fit */
	float *all;          /* all ranks', rank after rank; NULL: not gathered */
};

struct measure {
	int64_t steps, warmup;   /* planned steps; the first warmup of them are not measured */
	int64_t before;          /* optimizer steps of the resumed training before these */
	int64_t done;            /* steps measured so far */
	int64_t tokens_per_step; /* global */
	int world;
	struct measure_step *own; /* this rank's */
	struct measure_waits waits;
	/* after measure_merge */
	struct measure_step *slowest; /* per field the largest over ranks */
	/*
	 * Steps after warm-up in which a checkpoint was written. They are not measured, unless
	 * there are no other steps: then they count, and this is 0.
	 */
	int64_t saving;
	/*
	 * All ranks', rank after rank: world * done, 96 bytes for each step of each rank; NULL with
	 * one rank.
	 */
	struct measure_step *all;
};

/* 0, or -EINVAL if warmup >= steps: no step would be measured. */
int measure_init(
	struct measure *m, int64_t steps, int64_t warmup, int64_t tokens_per_step, int world);
void measure_finish(struct measure *m);

/* all: as gathered, malloc'd, owned by m from now on; NULL with one rank. Fills slowest. */
void measure_merge(struct measure *m, struct measure_step *all);
/*
 * Where to store the `n` waits of the step that was done last. NULL: do not store them, because the
 * step is a warm-up, the limit is reached, or n differs from the steps before.
 */
float *measure_keep_waits(struct measure *m, int64_t n);

/* A rank's own `done` steps; after measure_merge. */
const struct measure_step *measure_rank(const struct measure *m, int rank);

/* The largest of the ranks' own sums of the steps from `first` (from 0) on. */
int64_t measure_elapsed_ns(const struct measure *m, int64_t first);

/* Whether step `done`, from 0, is measured. After measure_merge. */
bool measure_counts(const struct measure *m, int64_t i);

/* Means over the measured steps, in seconds. */
struct measure_phases {
	double data, forward, backward, exposed_comm, optimizer;
	double work; /* time of the step without exposed communication */
};
/* For one rank; nan without a step after warm-up. */
void measure_rank_phases(const struct measure *m, int rank, struct measure_phases *out);

/*
 * A step takes all ranks the same time, because each waits for all: they wait for the rank with the
 * most work. Also the median of the others, by nearest rank.
 */
struct measure_slowest {
	int rank;
	double work_mean_s, others_median_s;
	int parts;   /* the same for parts of the measured steps: eight, or one per step */
	int most_in; /* parts in which no other rank has more work */
};
/* 0, or -ENODATA with one rank or without a step after warm-up. */
int measure_find_slowest(const struct measure *m, struct measure_slowest *out);

/*
 * Figures of the measured steps. Losses, and the numbers of attempted, applied and skipped steps,
 * are of all steps. tok_s_per_gpu is rounded to 43 bits, so that tok_s_global is its product with
 * world exactly.
 */
struct measure_summary {
	int64_t steps_attempted, steps_applied, steps_skipped, steps_measured;
	int64_t tokens_total, tokens_measured;
	double seconds_measured; /* elapsed; the time for the rates */
	double tok_s_global, tok_s_per_gpu;
	struct stats_summary step;    /* of the slowest rank's time in each step */
	struct measure_phases phases; /* means over the ranks */
	/* seconds, of phases.exposed_comm; nan: not known */
	double exposed_transfer, exposed_wait;
	/* steps on whose waits the shares of these two are based */
	int64_t split_steps;
	double loss_mean, loss_first, loss_last; /* of finite losses; nan if there are none */
	int64_t nonfinite;                       /* how many losses were not finite */
};
/* 0, or -ENODATA if no step after warm-up was done. After measure_merge. */
int measure_summarise(const struct measure *m, struct measure_summary *out);

#endif
