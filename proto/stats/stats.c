#include "proto/stats/stats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/host/memory.h"

static int compare_int64(const void *a, const void *b)
{
	const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static int64_t *sorted_copy(const int64_t *samples, size_t n)
{
	int64_t *copy = memory_zeroed(n, sizeof(*copy));

	memcpy(copy, samples, n * sizeof(*copy));
	qsort(copy, n, sizeof(*copy), compare_int64);
	return copy;
}

/* rank counts from 1; integers only, so that rounding modes do not change the sample. */
static int64_t at_rank(const int64_t *sorted, size_t n, size_t percent)
{
	/* (percent n + 99) / 100 without the product, which could exceed SIZE_MAX */
	const size_t rank = n / 100 * percent + (n % 100 * percent + 99) / 100;

	return sorted[rank - 1];
}

int stats_percentile(const int64_t *samples, size_t n, int percent, int64_t *out)
{
	int64_t *sorted;

	if (n == 0 || percent < 1 || percent > 100)
		return -EINVAL;
	sorted = sorted_copy(samples, n);
	*out = at_rank(sorted, n, (size_t)percent);
	free(sorted);
	return 0;
}

int stats_summarise(const int64_t *samples, size_t n, struct stats_summary *out)
{
	struct stats_summary s = {.n = n};
	int64_t *sorted;

	if (n == 0)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		if (__builtin_add_overflow(s.total, samples[i], &s.total))
			return -EOVERFLOW;
	}
	sorted = sorted_copy(samples, n);
	s.mean = (double)s.total / (double)n;
	s.min = sorted[0];
	s.median = at_rank(sorted, n, 50);
	s.p95 = at_rank(sorted, n, 95);
	s.max = sorted[n - 1];
	free(sorted);
	*out = s;
	return 0;
}

double stats_tokens_per_s(int64_t tokens, int64_t total_ns)
{
	return total_ns > 0 ? (double)tokens * 1e9 / (double)total_ns : 0.0;
}
