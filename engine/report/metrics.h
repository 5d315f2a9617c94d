/*
 * metrics.h: the files of one segment, written by rank 0, and the summary for gpt2d.
 *
 * spec.json, training_metrics.json, launcher_metadata.json, step_log.csv, rank_times.csv (with more
 * than one rank), gpu_log.csv (if the driver reports the state of GPUs), train.log and, if the
 * segment is done, summary.json. Each is written whole or not at all (proto/artifact.h). Then comes
 * RUN_COMPLETE.txt with the hashes of spec and metrics: a directory without it is not a finished
 * segment. training_metrics.json has all keys of schema 2.0 of the harness this project comes from;
 * those of Python libraries are null, and gpt2d's own are under "gpt2d". A value that is not finite
 * is null (empty in step_log.csv) and listed with its step.
 */
#ifndef GPT2D_ENGINE_REPORT_METRICS_H
#define GPT2D_ENGINE_REPORT_METRICS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/report/metrics_report.h"

/*
 * The lines of train.log, collected in memory during the segment. Lines beyond the limit are only
 * counted.
 */
enum { METRICS_LOG_BYTES_MAX = 8 << 20 };

struct metrics_log {
	char *text; /* NUL-terminated; NULL if there is no line */
	size_t n, capacity;
	int64_t dropped;
};

void metrics_log_init(struct metrics_log *log);
void metrics_log_finish(struct metrics_log *log);

/* One line, without its newline; the time (UTC) is prepended. */
void metrics_log_add(struct metrics_log *log, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * Before step 1: creates the folder of the segment if it does not exist, and removes a completion
 * marker of an earlier attempt. 0 or a negative errno.
 */
int metrics_begin(const char *dir);

/*
 * Write all files, the marker last. 0, or a negative errno with error naming file and cause
 * ("enospc" is -ENOSPC); then there is no marker.
 */
int metrics_write(const struct metrics_segment *s, struct metrics_files *files, char *error,
	size_t error_bytes);

/* The summary of segment.done; a new reference. */
json_t *metrics_summary(const struct metrics_segment *s, const struct metrics_files *files);

#endif
