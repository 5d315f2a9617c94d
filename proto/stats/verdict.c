#include "proto/stats/verdict.h"

#include <math.h>
#include <stdlib.h>

#include "proto/host/memory.h"
#include "proto/stats/stats.h"

/* A trend and a failed control must be more than noise; see tests/bench/simulate. */
static const double trend_p_max = 0.01, stalls_p_max = 0.10;

static const char *const names[] = {
	[VERDICT_FASTER] = "FASTER",
	[VERDICT_SLOWER] = "SLOWER",
	[VERDICT_SAME] = "SAME",
	[VERDICT_AMBIGUOUS] = "AMBIGUOUS",
};

static const struct {
	const char *name, *text;
} reasons[] = {
	[VERDICT_TOO_FEW] = {"design", "too few blocks for a verdict"},
	[VERDICT_UNEQUAL_WORK] = {"unequal_work", "the arms did not do the same work"},
	[VERDICT_CONTROL] = {"control", "the baseline differs from itself: the A/A control failed"},
	[VERDICT_IDENTICAL] = {"identical", "both have exactly the same times"},
	[VERDICT_NO_VARIANCE] = {"no_variance",
		"all ratios are exactly the same, and those of real measurements vary"},
	[VERDICT_TREND] = {"trend", "the ratio changed during the experiment"},
	[VERDICT_STALLS] = {"stalls",
		"one arm stalls more often, and the typical block does not show that"},
	[VERDICT_WITHIN_MARGIN] = {"within_margin", "the whole interval lies within the margin"},
	[VERDICT_OUTSIDE_ZERO] = {"significant", "the whole interval lies on one side of 0"},
	[VERDICT_UNSETTLED] = {"unsettled", "the interval is too wide"},
};

const char *verdict_name(enum verdict verdict)
{
	return names[verdict];
}

const char *verdict_reason_name(enum verdict_reason reason)
{
	return reasons[reason].name;
}

const char *verdict_reason_text(enum verdict_reason reason)
{
	return reasons[reason].text;
}

bool verdict_stalled(const int64_t *times, size_t n)
{
	int64_t median;
	double sum = 0.0, excess = 0.0;

	if (stats_percentile(times, n, 50, &median) != 0)
		return false;
	for (size_t i = 0; i < n; i++) {
		sum += (double)times[i];
		excess += fmax(0.0, (double)times[i] - 1.5 * (double)median);
	}
	return excess > 0.01 * sum;
}

size_t verdict_blocks_least(size_t n_comparisons, double alpha)
{
	const double n = ceil(log2(2.0 * (double)n_comparisons / alpha) - 1e-9);

	return n < 1.0 ? 1 : (size_t)n;
}

/* Holm (1979): the i-th smallest of m is multiplied by m - i, from 0, and never falls. */
static void adjust(struct verdict_result *results, size_t m)
{
	bool *done = memory_zeroed(m, sizeof(*done));
	double least = 0.0;

	for (size_t i = 0; i < m; i++) {
		size_t next = m;

		for (size_t j = 0; j < m; j++)
			if (!done[j] &&
				(next == m || results[j].estimate.p < results[next].estimate.p))
				next = j;
		done[next] = true;
		least = fmax(least, fmin(1.0, (double)(m - i) * results[next].estimate.p));
		results[next].p_holm = least;
	}
	free(done);
}

static bool all_equal(const int64_t *q, size_t n)
{
	for (size_t i = 1; i < n; i++)
		if (q[i] != q[0])
			return false;
	return true;
}

/* The number of blocks that would settle it: power of 80 % at the measured size. */
static size_t blocks_needed(const int64_t *q, size_t n, double theta, double margin)
{
	const double median = estimate_median(q, n);
	int64_t *deviations = memory_zeroed(n, sizeof(*deviations));
	double mad, blocks;

	for (size_t i = 0; i < n; i++)
		deviations[i] = llround(2.0 * fabs((double)q[i] - median));
	mad = estimate_median(deviations, n) / 2e9;
	free(deviations);
	blocks = ceil(pow(2.1 * 1.4826 * mad / fmax(fabs(theta), margin - fabs(theta)), 2.0));
	return fmax((double)n + 4.0, blocks) < 1e6 ? (size_t)fmax((double)n + 4.0, blocks)
						   : (size_t)1000000;
}

static void set(struct verdict_result *r, enum verdict verdict, enum verdict_reason reason)
{
	r->verdict = verdict;
	r->reason = reason;
}

/* From the interval alone. */
static void by_interval(const struct verdict_rules *rules, struct verdict_result *r)
{
	const double margin = log1p(rules->margin);
	const struct estimate *e = &r->estimate;

	if (e->has_interval && -margin < e->lo && e->hi < margin)
		set(r, VERDICT_SAME, VERDICT_WITHIN_MARGIN);
	else if (e->has_interval && e->lo > 0.0 && r->p_holm <= rules->alpha)
		set(r, VERDICT_FASTER, VERDICT_OUTSIDE_ZERO);
	else if (e->has_interval && e->hi < 0.0 && r->p_holm <= rules->alpha)
		set(r, VERDICT_SLOWER, VERDICT_OUTSIDE_ZERO);
	else
		set(r, VERDICT_AMBIGUOUS, VERDICT_UNSETTLED);
}

/* The estimate describes the typical block and does not include stalls of the favoured arm. */
static bool stalls_hidden(const struct verdict_input *in, const struct verdict_result *r)
{
	if (r->stalls_p > stalls_p_max)
		return false;
	return r->verdict == VERDICT_SAME ||
		(r->verdict == VERDICT_SLOWER && in->stalled_a > in->stalled_b) ||
		(r->verdict == VERDICT_FASTER && in->stalled_b > in->stalled_a);
}

static void measure(
	const struct verdict_rules *rules, const struct verdict_input *in, struct verdict_result *r)
{
	const double margin = log1p(rules->margin);

	if (in->n == 0)
		return;
	estimate_paired(in->q, in->n, rules->alpha, &r->estimate);
	if (in->n < VERDICT_INTERVAL_BLOCKS)
		r->estimate.has_interval = false;
	if (r->estimate.has_interval)
		r->detectable = expm1(1.4 * r->estimate.half_width);
	if (in->control_q) {
		estimate_paired(in->control_q, in->n, rules->alpha, &r->control);
		r->control_suspect = r->control.p <= rules->alpha &&
			fabs(r->control.theta) > fmax(margin, fabs(r->estimate.theta)) / 4.0;
	}
	estimate_trend(in->q, in->n, &r->trend);
	r->has_trend = r->trend.p <= trend_p_max &&
		fabs(r->trend.slope) * 1e-9 * (double)(in->n - 1) >
			fmax(margin, fabs(r->estimate.theta) / 2.0);
}

static void decide(
	const struct verdict_rules *rules, const struct verdict_input *in, struct verdict_result *r)
{
	const bool equal = all_equal(in->q, in->n);

	if (in->unequal_work) {
		set(r, VERDICT_AMBIGUOUS, VERDICT_UNEQUAL_WORK);
	} else if (in->n < VERDICT_BLOCKS_MIN) {
		set(r, VERDICT_AMBIGUOUS, VERDICT_TOO_FEW);
	} else if (r->control_suspect) {
		set(r, VERDICT_AMBIGUOUS, VERDICT_CONTROL);
	} else if (equal && in->q[0] == 0) {
		set(r, VERDICT_SAME, VERDICT_IDENTICAL);
	} else if (equal) {
		set(r, VERDICT_AMBIGUOUS, VERDICT_NO_VARIANCE);
	} else if (r->has_trend) {
		set(r, VERDICT_AMBIGUOUS, VERDICT_TREND);
	} else {
		by_interval(rules, r);
		if (stalls_hidden(in, r))
			set(r, VERDICT_AMBIGUOUS, VERDICT_STALLS);
		else if (r->reason == VERDICT_UNSETTLED)
			r->blocks_needed = blocks_needed(
				in->q, in->n, r->estimate.theta, log1p(rules->margin));
	}
}

void verdict_decide(const struct verdict_rules *rules, const struct verdict_input *inputs,
	size_t n_inputs, struct verdict_result *results)
{
	for (size_t i = 0; i < n_inputs; i++) {
		results[i] = (struct verdict_result){
			.estimate.p = 1.0, .control.p = 1.0, .trend.p = 1.0};
		results[i].stalls_p = estimate_coin_p(inputs[i].stalled_a, inputs[i].stalled_b);
		measure(rules, &inputs[i], &results[i]);
	}
	adjust(results, n_inputs);
	for (size_t i = 0; i < n_inputs; i++)
		decide(rules, &inputs[i], &results[i]);
}

int verdict_unpaired(const struct verdict_rules *rules, const int64_t *a, size_t n_a,
	const int64_t *b, size_t n_b, struct verdict_result *result)
{
	struct verdict_result r = {.trend.p = 1.0, .stalls_p = 1.0, .control.p = 1.0};
	int rc = estimate_unpaired(a, n_a, b, n_b, rules->alpha, &r.estimate);

	if (rc < 0)
		return rc;
	r.p_holm = r.estimate.p;
	if (r.estimate.has_interval)
		r.detectable = expm1(1.4 * r.estimate.half_width);
	if (n_a < VERDICT_RUNS_MIN || n_b < VERDICT_RUNS_MIN)
		set(&r, VERDICT_AMBIGUOUS, VERDICT_TOO_FEW);
	else if (all_equal(a, n_a) && all_equal(b, n_b) && a[0] == b[0])
		set(&r, VERDICT_SAME, VERDICT_IDENTICAL);
	else if (all_equal(a, n_a) && all_equal(b, n_b))
		set(&r, VERDICT_AMBIGUOUS, VERDICT_NO_VARIANCE);
	else
		by_interval(rules, &r);
	*result = r;
	return 0;
}
