/*
 * log.h: gpt2d's log, one line each: "2026-01-08T19:50:57.123Z info run 3: queued". Main thread
 * only. Where a reader may stand still (a terminal, a pipe, the journal), or a disk, a thread
 * writes, see log_writer.h: no call here waits for a reader, nor long for a disk.
 */
#ifndef GPT2D_DAEMON_CONFIG_LOG_H
#define GPT2D_DAEMON_CONFIG_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/log_level.h"

/*
 * to: a file, appended to; NULL or "stderr": standard error; "journal": systemd's, which keeps time
 * and level itself. 0 or a negative errno, see log_error_text. to must stay.
 */
int log_open(const char *to);
/* Whether the log can go to path by what is there: not a FIFO, whose reader would be waited for,
 * or a socket. */
bool log_can_be(const char *path);
/* -ESPIPE: log_can_be says no; -EINPROGRESS: lines wait for the disk */
const char *log_error_text(int rc);
/* Open the file anew, which may have been moved away: 0, or a negative errno and the log goes on
 * where it was. */
int log_reopen(void);
/* What is not written yet is, within LOG_WRITER_END_S; then as before log_open. */
void log_finish(void);
int64_t log_lost(void); /* lines that nobody took in time, or that could not be written */
void log_set_level(enum log_level least); /* what is below it is not written */
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What engines say and print, which may be much: it is kept apart in memory. */
void log_write_engine(enum log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* A line on standard output, after the log's before it and as patiently. */
void log_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The newest lines of each source, as they were written, are kept in memory too. */
enum log_source { LOG_OWN, LOG_ENGINE, LOG_SOURCES };
enum { LOG_RECENT = 256, LOG_RECENT_BYTES = 512 };
struct log_line {
	int64_t n; /* from 1, of all sources together */
	int64_t at_ns;
	enum log_level level;
	char message[LOG_RECENT_BYTES]; /* its beginning */
};
/* The first one that is kept and numbered n or above: whether there is one. */
bool log_recent(int64_t n, struct log_line *out);
int64_t log_forgotten(void); /* lines that are not kept any more */

#endif
