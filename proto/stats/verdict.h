/*
 * verdict.h: FASTER, SLOWER, SAME or AMBIGUOUS for each arm of an experiment against its baseline,
 * and for two sets of repeated results of any program. gpt2d (stop_when, experiment.json) and
 * gpt2ctl (compare, judge) call this code. Pure functions.
 *
 * The rules were fixed after a simulation with many noise models; tests/bench/simulate repeats it
 * with this code. The first reason in enum verdict_reason that applies decides.
 */
#ifndef GPT2D_PROTO_STATS_VERDICT_H
#define GPT2D_PROTO_STATS_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/stats/estimate.h"

#define VERDICT_ALPHA          0.05 /* the number of blocks is fixed beforehand */
#define VERDICT_ALPHA_STOPPING 0.03 /* the run stops on the interval's half-width */
#define VERDICT_MARGIN         0.01 /* default: ratios closer to 1 than this are the same */
enum {
	VERDICT_BLOCKS_MIN = 8,      /* fewer give no verdict */
	VERDICT_INTERVAL_BLOCKS = 6, /* fewer give no interval */
	VERDICT_RUNS_MIN = 5,        /* of each side, unpaired */
	VERDICT_CONTROL_BLOCKS = 4,  /* added once when the A/A control is suspect */
};

enum verdict {
	VERDICT_FASTER, /* B, the arm, against A, the baseline */
	VERDICT_SLOWER,
	VERDICT_SAME,
	VERDICT_AMBIGUOUS,
};

enum verdict_reason {
	VERDICT_TOO_FEW,       /* AMBIGUOUS: blocks or runs */
	VERDICT_UNEQUAL_WORK,  /* AMBIGUOUS */
	VERDICT_CONTROL,       /* AMBIGUOUS: the baseline differs from itself */
	VERDICT_IDENTICAL,     /* SAME: every ratio is exactly 1 */
	VERDICT_NO_VARIANCE,   /* AMBIGUOUS: every ratio is the same and not 1 */
	VERDICT_TREND,         /* AMBIGUOUS: the ratio changes during the experiment */
	VERDICT_STALLS,        /* AMBIGUOUS: one arm stalls more, unseen by the estimate */
	VERDICT_WITHIN_MARGIN, /* SAME: the interval lies within the margin */
	VERDICT_OUTSIDE_ZERO,  /* FASTER or SLOWER */
	VERDICT_UNSETTLED,     /* AMBIGUOUS: the interval is too wide */
};

/* "FASTER" */
const char *verdict_name(enum verdict verdict);
/* "no_variance", for files and --json */
const char *verdict_reason_name(enum verdict_reason reason);
/* A sentence for people, without figures. */
const char *verdict_reason_text(enum verdict_reason reason);

/* Parameters of all comparisons of an experiment. */
struct verdict_rules {
	double alpha;  /* VERDICT_ALPHA or VERDICT_ALPHA_STOPPING */
	double margin; /* a fraction above 0 */
};

/* One arm against the baseline; all arrays in time order of the kept blocks. */
struct verdict_input {
	const int64_t *q; /* n ratios, estimate.h; a block is void for all arms or for none */
	size_t n;
	const int64_t *control_q;     /* n ratios of the A/A control; NULL: there is none */
	int64_t stalled_a, stalled_b; /* segments, verdict_stalled() */
	bool unequal_work;
};

struct verdict_result {
	enum verdict verdict;
	enum verdict_reason reason;
	struct estimate estimate;
	double p_holm;           /* adjusted for the number of comparisons */
	double detectable;       /* a change of this fraction is found in 80 %; 0: no interval */
	struct estimate control; /* n 0: there is none */
	bool control_suspect;    /* both p and size are more than noise */
	struct trend trend;      /* of q, in 1e-9 per block */
	bool has_trend;
	double stalls_p;
	size_t blocks_needed; /* blocks that would settle it; 0: unknown, or settled */
};

/* n_inputs comparisons with the same baseline; Holm's adjustment counts all of them. */
void verdict_decide(const struct verdict_rules *rules, const struct verdict_input *inputs,
	size_t n_inputs, struct verdict_result *results);

/* Values u = llround(1e9 ln T) of unpaired runs. 0, or -EINVAL as estimate_unpaired(). */
int verdict_unpaired(const struct verdict_rules *rules, const int64_t *a, size_t n_a,
	const int64_t *b, size_t n_b, struct verdict_result *result);

/*
 * Step times of a segment, measured steps, slowest rank: true if the times beyond 1.5 medians add
 * up to more than 1 % of the sum.
 */
bool verdict_stalled(const int64_t *times, size_t n);

/* The fewest blocks with which n_comparisons can be significant, at least 1. */
size_t verdict_blocks_least(size_t n_comparisons, double alpha);

#endif
