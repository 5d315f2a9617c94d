#include "proto/stats/estimate.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/host/memory.h"

static int compare_int64(const void *a, const void *b)
{
	const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static int compare_double(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double middle(const int64_t *sorted, size_t n)
{
	return n % 2 == 1 ? (double)sorted[n / 2]
			  : ((double)sorted[n / 2 - 1] + (double)sorted[n / 2]) / 2.0;
}

double estimate_median(const int64_t *values, size_t n)
{
	int64_t *sorted = memory_zeroed(n, sizeof(*sorted));
	double median;

	memcpy(sorted, values, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), compare_int64);
	median = middle(sorted, n);
	free(sorted);
	return median;
}

int64_t estimate_log_ratio(double t_a, double t_b)
{
	return llround(1e9 * log(t_a / t_b));
}

double estimate_throughput_percent(double theta)
{
	return 100.0 * expm1(theta);
}

double estimate_time_percent(double theta)
{
	return 100.0 * expm1(-theta);
}

/* ---- null distributions: probability[w] for w = 0 .. top, a lower half; the caller frees ---- */

/* Of the sum of a random subset of 1 .. n. */
static double *signed_rank(size_t n, size_t top)
{
	double *p = memory_zeroed(top + 1, sizeof(*p));

	p[0] = ldexp(1.0, -(int)n);
	for (size_t i = 1; i <= n; i++)
		for (size_t w = top; w >= i; w--)
			p[w] += p[w - i];
	return p;
}

/*
 * Of the number of pairs (a, b) with a > b. Row m of the table holds m values against the columns
 * seen so far: P(w; m, j) = m / (m + j) P(w - j; m - 1, j) + j / (m + j) P(w; m, j - 1).
 */
static double *rank_sum(size_t n_a, size_t n_b, size_t top)
{
	double *rows = memory_zeroed((n_a + 1) * (top + 1), sizeof(*rows)), *p;

	for (size_t m = 0; m <= n_a; m++)
		rows[m * (top + 1)] = 1.0;
	for (size_t j = 1; j <= n_b; j++) {
		for (size_t m = 1; m <= n_a; m++) {
			const double *above = rows + (m - 1) * (top + 1);
			double *row = rows + m * (top + 1);
			const double first = (double)m / (double)(m + j), second = 1.0 - first;

			for (size_t w = 0; w <= top; w++)
				row[w] = second * row[w] + (w >= j ? first * above[w - j] : 0.0);
		}
	}
	p = memory_zeroed(top + 1, sizeof(*p));
	memcpy(p, rows + n_a * (top + 1), (top + 1) * sizeof(*p));
	free(rows);
	return p;
}

/* Of the number of inversions of a random order of n: built up one element at a time. */
static double *inversions(size_t n, size_t top)
{
	double *p = memory_zeroed(top + 1, sizeof(*p)), *sums = memory_zeroed(top + 2, sizeof(*p));

	p[0] = 1.0;
	for (size_t i = 2; i <= n; i++) {
		for (size_t v = 0; v <= top; v++)
			sums[v + 1] = sums[v] + p[v];
		for (size_t v = 0; v <= top; v++)
			p[v] = (sums[v + 1] - sums[v + 1 > i ? v + 1 - i : 0]) / (double)i;
	}
	free(sums);
	return p;
}

/* The largest k with 2 P(<= k) <= alpha; -1: none. Sums that are equal in theory count as equal. */
static int64_t critical(const double *p, size_t top, double alpha)
{
	double sum = 0.0;
	int64_t k = -1;

	for (size_t w = 0; w <= top; w++) {
		sum += p[w];
		if (2.0 * sum > alpha * (1.0 + 1e-12))
			break;
		k = (int64_t)w;
	}
	return k;
}

static double two_sided(const double *p, size_t top, int64_t w)
{
	double sum = 0.0;

	if (w > (int64_t)top)
		return 1.0;
	for (int64_t v = 0; v <= w; v++)
		sum += p[v];
	return fmin(1.0, 2.0 * sum);
}

int64_t estimate_rank(size_t n, double alpha)
{
	const size_t top = n * (n + 1) / 4;
	double *p = signed_rank(n, top);
	int64_t k = critical(p, top, alpha);

	free(p);
	return k;
}

/* ---- estimates ---- */

/* From all q pairwise values, which are sorted here, and the lower half of W's distribution. */
static void from_pairs(int64_t *pairs, size_t q, const double *p, size_t top, double alpha,
	double unit, struct estimate *out)
{
	const int64_t k = critical(p, top, alpha);
	int64_t above = 0, below = 0;

	qsort(pairs, q, sizeof(*pairs), compare_int64);
	for (size_t i = 0; i < q; i++) {
		above += pairs[i] > 0;
		below += pairs[i] < 0;
	}
	out->theta = middle(pairs, q) / unit;
	out->w = (above < below ? above : below) + ((int64_t)q - above - below);
	out->p = two_sided(p, top, out->w);
	out->has_interval = k >= 0;
	if (out->has_interval) {
		out->lo = (double)pairs[k] / unit;
		out->hi = (double)pairs[(int64_t)q - 1 - k] / unit;
		out->half_width = (out->hi - out->lo) / 2.0;
	}
}

int estimate_paired(const int64_t *q, size_t n, double alpha, struct estimate *out)
{
	const size_t n_pairs = n * (n + 1) / 2, top = n_pairs / 2;
	int64_t *pairs, *next;
	double *p;

	if (n < 1 || n > ESTIMATE_PAIRS_MAX)
		return -EINVAL;
	*out = (struct estimate){.n = n};
	next = pairs = memory_zeroed(n_pairs, sizeof(*pairs));
	for (size_t i = 0; i < n; i++)
		for (size_t j = i; j < n; j++)
			*next++ = q[i] + q[j];
	p = signed_rank(n, top);
	from_pairs(pairs, n_pairs, p, top, alpha, 2e9, out);
	free(p);
	free(pairs);
	return 0;
}

int estimate_unpaired(const int64_t *a, size_t n_a, const int64_t *b, size_t n_b, double alpha,
	struct estimate *out)
{
	const size_t n_pairs = n_a * n_b, top = n_pairs / 2;
	int64_t *pairs, *next;
	double *p;

	if (n_a < 1 || n_b < 1 || n_a > ESTIMATE_SIDE_MAX || n_b > ESTIMATE_SIDE_MAX)
		return -EINVAL;
	*out = (struct estimate){.n = n_a + n_b};
	next = pairs = memory_zeroed(n_pairs, sizeof(*pairs));
	for (size_t i = 0; i < n_a; i++)
		for (size_t j = 0; j < n_b; j++)
			*next++ = a[i] - b[j];
	p = rank_sum(n_a, n_b, top);
	from_pairs(pairs, n_pairs, p, top, alpha, 1e9, out);
	free(p);
	free(pairs);
	return 0;
}

/* ---- trend, coin ---- */

int estimate_trend(const int64_t *values, size_t n, struct trend *out)
{
	const size_t n_pairs = n * (n - 1) / 2;
	size_t top, used = 0;
	double *slopes, *p;

	if (n < 1 || n > ESTIMATE_PAIRS_MAX)
		return -EINVAL;
	*out = (struct trend){.p = 1.0};
	if (n == 1)
		return 0;
	slopes = memory_zeroed(n_pairs, sizeof(*slopes));
	for (size_t i = 0; i < n; i++) {
		for (size_t j = i + 1; j < n; j++) {
			out->s += (values[j] > values[i]) - (values[j] < values[i]);
			slopes[used++] = (double)(values[j] - values[i]) / (double)(j - i);
		}
	}
	qsort(slopes, n_pairs, sizeof(*slopes), compare_double);
	out->slope = n_pairs % 2 == 1 ? slopes[n_pairs / 2]
				      : (slopes[n_pairs / 2 - 1] + slopes[n_pairs / 2]) / 2.0;
	/* S = pairs - 2 inversions: |S| or more means this many inversions or fewer */
	top = (n_pairs - (size_t)llabs(out->s)) / 2;
	p = inversions(n, top);
	out->p = two_sided(p, top, (int64_t)top);
	free(p);
	free(slopes);
	return 0;
}

double estimate_coin_p(int64_t a, int64_t b)
{
	const int64_t n = a + b, least = a < b ? a : b;
	double sum = 0.0;

	for (int64_t k = 0; k <= least; k++)
		sum += exp(lgamma((double)n + 1.0) - lgamma((double)k + 1.0) -
			lgamma((double)(n - k) + 1.0) - (double)n * log(2.0));
	return n == 0 ? 1.0 : fmin(1.0, 2.0 * sum);
}
