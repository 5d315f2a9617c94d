#include "engine/report/metrics_log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/report/metrics_host.h"
#include "proto/host/clock.h"

void metrics_log_init(struct metrics_log *log)
{
	*log = (struct metrics_log){0};
}

void metrics_log_finish(struct metrics_log *log)
{
	free(log->text);
	metrics_log_init(log);
}

/* Room for bytes more, NUL included. */
static int reserve(struct metrics_log *log, size_t bytes)
{
	size_t capacity = log->capacity > 0 ? log->capacity : 4096;
	char *text;

	if (bytes > METRICS_LOG_BYTES_MAX - log->n)
		return -1;
	while (capacity < log->n + bytes)
		capacity *= 2;
	if (capacity == log->capacity)
		return 0;
	text = realloc(log->text, capacity);
	if (text == NULL)
		return -1;
	log->text = text;
	log->capacity = capacity;
	return 0;
}

void metrics_log_add(struct metrics_log *log, const char *format, ...)
{
	char line[1024], at[CLOCK_TEXT_BYTES];
	va_list args;
	size_t bytes;
	int length;

	va_start(args, format);
	length = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	clock_text(clock_utc_ns(), at);
	bytes = strlen(at) + 1 + strlen(line) + 2;
	/* a line that was cut must not pass for the whole */
	if (length < 0 || (size_t)length >= sizeof(line) || reserve(log, bytes) < 0) {
		log->dropped++;
		return;
	}
	log->n += (size_t)snprintf(log->text + log->n, bytes, "%s %s\n", at, line);
}
