/*
 * estimate.h: how much faster B is than A, from repeated measurements, with an exact interval and
 * an exact p. The only assumption about the noise is that it is symmetric (paired: a fair coin
 * decides the order inside a block) or exchangeable (unpaired).
 *
 * Measurements are q = llround(1e9 ln(T_A / T_B)), or u = llround(1e9 ln T) if unpaired: integers,
 * so that ties are exact. Positive means that B takes less time.
 *
 * Paired: Hodges and Lehmann's estimate with the interval of Wilcoxon's signed-rank test. Unpaired:
 * the shift estimate with the interval of the rank-sum test (Hollander, Wolfe, Chicken:
 * Nonparametric Statistical Methods, 3rd ed., 3.2, 3.3, 4.2, 4.3).
 */
#ifndef GPT2D_PROTO_STATS_ESTIMATE_H
#define GPT2D_PROTO_STATS_ESTIMATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ESTIMATE_PAIRS_MAX = 1000, ESTIMATE_SIDE_MAX = 200 };

struct estimate {
	size_t n;          /* blocks, or runs of both sides */
	double theta;      /* ln(T_A / T_B), the median of all pairwise means or differences */
	bool has_interval; /* too few measurements for this alpha: lo, hi, half_width are 0 */
	double lo, hi;
	double half_width; /* (hi - lo) / 2 */
	int64_t w;         /* the test's statistic */
	double p;          /* two-sided, exact */
};

/* 1e9 ln(t_a / t_b) of two times in the same unit, both above 0. */
int64_t estimate_log_ratio(double t_a, double t_b);

/*
 * 1 - alpha is the interval's confidence, 0 < alpha < 1. 0, or -EINVAL unless 1 <= n <=
 * ESTIMATE_PAIRS_MAX.
 */
int estimate_paired(const int64_t *q, size_t n, double alpha, struct estimate *out);
/* 0, or -EINVAL unless both sides have 1 to ESTIMATE_SIDE_MAX values. */
int estimate_unpaired(const int64_t *a, size_t n_a, const int64_t *b, size_t n_b, double alpha,
	struct estimate *out);

/* Rank k of the paired interval's ends, from 0; -1: no interval for n blocks at this alpha. */
int64_t estimate_rank(size_t n, double alpha);

/* Changes in percent of a throughput and of a time per step whose logarithms differ by theta. */
double estimate_throughput_percent(double theta);
double estimate_time_percent(double theta);

struct trend {
	int64_t s;    /* Kendall's S of the values and their order, ties count 0 */
	double p;     /* two-sided, from the counts without ties */
	double slope; /* median of (v_j - v_i) / (j - i), in the values' unit per position */
};

/* n values in time order, 1 <= n <= ESTIMATE_PAIRS_MAX. 0, or -EINVAL. */
int estimate_trend(const int64_t *values, size_t n, struct trend *out);

/*
 * Two-sided p of a split at least as uneven as a to b in a + b throws of a fair coin. 1 for 0
 * throws.
 */
double estimate_coin_p(int64_t a, int64_t b);

/* The median; for even counts the mean of the two in the middle; n >= 1. */
double estimate_median(const int64_t *values, size_t n);

#endif
