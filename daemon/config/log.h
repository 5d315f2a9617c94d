/*
 * log.h: gpt2d's log, one line each: "2026-01-08T19:50:57.123Z info run 3: queued". Main thread
 * only. One thread writes the lines, so gpt2d does not wait for a terminal, a pipe, the journal or
 * a disk that blocks. Up to LOG_HELD_BYTES of lines wait. Further lines are dropped and counted.
 */
#ifndef GPT2D_DAEMON_CONFIG_LOG_H
#define GPT2D_DAEMON_CONFIG_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/log_level.h"

enum { LOG_HELD_BYTES = 4 << 20 }; /* 16 engines may print ENGINE_OUTPUT_BURST_BYTES at once */

/*
 * to: a file, appended to; "stderr"; "journal", which keeps time and level itself; or NULL: the
 * journal if systemd connected standard error to it, else standard error. 0 or a negative errno
 * with error. to must stay.
 */
int log_open(const char *to, char *error, size_t error_bytes);
/*
 * Whether the log can go to `to`. A FIFO and a socket are refused, because the log would wait for
 * their reader, and so is a journal that does not exist. 0, or a negative errno with error.
 */
int log_check(const char *to, char *error, size_t error_bytes);
/*
 * Opens the file again, which may have been moved away. The writing thread does it after the lines
 * that wait, and logs the outcome. On an error the log stays in the open file.
 */
void log_reopen(void);
/* Writes the waiting lines, for 1 s at most, and ends the thread. */
void log_finish(void);
int64_t log_lost(void); /* lines that were dropped or could not be written */

void log_set_level(enum log_level least); /* lines below it are not written */
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A line of an engine; kept in memory apart from gpt2d's own lines, because there may be many. */
void log_write_engine(enum log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* A line on standard output. It is lost if nobody reads there while the log goes to a file. */
void log_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* gpt2d also keeps the newest lines of each source in memory. */
enum log_source { LOG_OWN, LOG_ENGINE, LOG_SOURCES };
enum { LOG_RECENT = 256, LOG_RECENT_BYTES = 512 };
struct log_line {
	int64_t n; /* from 1, of all sources together */
	int64_t at_ns;
	enum log_level level;
	char message[LOG_RECENT_BYTES]; /* the start of its text */
};
/* The first kept line with a number of n or above. false: there is none. */
bool log_recent(int64_t n, struct log_line *out);
int64_t log_forgotten(void); /* lines that were dropped */

#endif
