/*
 * metrics_log.h: the lines of train.log, collected in memory while the segment runs. Bounded: lines
 * beyond the bound, or for want of memory, are counted instead.
 */
#ifndef GPT2D_ENGINE_REPORT_METRICS_LOG_H
#define GPT2D_ENGINE_REPORT_METRICS_LOG_H

#include <stddef.h>
#include <stdint.h>

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

#endif
