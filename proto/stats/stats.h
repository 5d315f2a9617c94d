/*
 * stats.h: figures of step times, pure. Percentiles are nearest rank with integers:
 * rank(p) = (p n + 99) / 100, from 1 (20 samples: p95 is the 19th). Order of input does not matter.
 */
#ifndef GPT2D_PROTO_STATS_STATS_H
#define GPT2D_PROTO_STATS_STATS_H

#include <stddef.h>
#include <stdint.h>

enum { STATS_P95_MIN_SAMPLES = 20 };

/*
 * Value at rank(percent) of n >= 1 samples; sorts a copy; percent 1..100. 0, or -EINVAL if n or
 * percent is out of range.
 */
int stats_percentile(const int64_t *samples, size_t n, int percent, int64_t *out);

struct stats_summary {
	size_t n;
	double mean;
	int64_t min, median, p95, max; /* p95 is valid if n >= STATS_P95_MIN_SAMPLES */
	int64_t total;
};
/* 0, -EINVAL without samples, -EOVERFLOW if their sum exceeds int64_t. */
int stats_summarise(const int64_t *samples, size_t n, struct stats_summary *out);

/* total tokens over total time, never a mean of rates; 0 if no time passed. */
double stats_tokens_per_s(int64_t tokens, int64_t total_ns);

#endif
