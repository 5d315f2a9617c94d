/*
 * metrics_report.h: training_metrics.json and the summary of a segment, as JSON values. Reads what
 * metrics.h is given; writes nothing.
 */
#ifndef GPT2D_ENGINE_REPORT_METRICS_REPORT_H
#define GPT2D_ENGINE_REPORT_METRICS_REPORT_H

#include <jansson.h>

#include "engine/report/measure.h"
#include "engine/report/metrics.h"

/* More steps than this are not listed one by one; a "..._note" says so. */
enum { METRICS_REPORT_STEPS_MAX = 100000 };
/* Values that are not finite: the first so many are listed. */
enum { METRICS_REPORT_NONFINITE_MAX = 1000 };

/* Either is a new reference, NULL without memory. utc_ns: now. */
json_t *metrics_report_make(
	const struct metrics_segment *s, const struct measure_summary *sum, int64_t utc_ns);
json_t *metrics_report_summary(const struct metrics_segment *s, const struct measure_summary *sum,
	const struct metrics_files *files);

#endif
