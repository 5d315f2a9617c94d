/*
 * metrics.h: the files of one segment, written by rank 0, and the summary that gpt2d keeps of it.
 *
 * spec.json, training_metrics.json, launcher_metadata.json, step_log.csv, rank_times.csv (of more
 * than one rank), gpu_log.csv (of GPUs whose driver reports their state), train.log and, of a
 * segment that is done, summary.json. Each is written whole or not at all (proto/artifact.h). Then
 * comes RUN_COMPLETE.txt with the hashes of spec and metrics: a directory without it is not a
 * finished segment. training_metrics.json has
 * all keys of schema 2.0 of the harness this project comes from; those of Python libraries are
 * null, and what is ours stands under "gpt2d". A value that is not finite is null (empty in
 * step_log.csv) and listed with its step.
 */
#ifndef GPT2D_ENGINE_REPORT_METRICS_H
#define GPT2D_ENGINE_REPORT_METRICS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/report/metrics_report.h"

/*
 * The lines of train.log, collected in memory while the segment runs. Lines beyond the bound are
 * counted instead.
 */
enum { METRICS_LOG_BYTES_MAX = 8 << 20 };

struct metrics_log {
	char *text; /* NUL-terminated; NULL while there is no line */
	size_t n, capacity;
	int64_t dropped;
};

void metrics_log_init(struct metrics_log *log);
void metrics_log_finish(struct metrics_log *log);

/* One line, without its newline; the time (UTC) is put before it. */
void metrics_log_add(struct metrics_log *log, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * Before step 1: the folder of the segment is made if it is not there, and a completion marker of
 * an earlier attempt goes. 0 or a negative errno.
 */
int metrics_begin(const char *dir);

/*
 * Write all files, the marker last. 0, or a negative errno with error naming file and cause
 * ("enospc" is -ENOSPC); then there is no marker.
 */
int metrics_write(const struct metrics_segment *s, struct metrics_files *files, char *error,
	size_t error_bytes);

/* What segment.done carries; a new reference. */
json_t *metrics_summary(const struct metrics_segment *s, const struct metrics_files *files);

#endif
