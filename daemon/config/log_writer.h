/*
 * log_writer.h: lines to descriptors that may stand still: a reader's (a terminal that is stopped,
 * a pipe that nobody reads, systemd's journal), a file's on a disk that does not answer. A thread
 * for each of the two waits there, and what it does not get rid of is held up to LOG_WRITER_BYTES,
 * then dropped and counted.
 */
#ifndef GPT2D_DAEMON_CONFIG_LOG_WRITER_H
#define GPT2D_DAEMON_CONFIG_LOG_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_writer {
	LOG_WRITER_STREAMS,
	LOG_WRITER_FILE, /* a line is waited for, LOG_WRITER_FILE_MS, unless one is behind */
	LOG_WRITERS,
};

enum {
	LOG_WRITER_BYTES = 256 * 1024,
	LOG_WRITER_END_S = 1, /* for what is still held when gpt2d ends */
	LOG_WRITER_FILE_MS = 100,
	LOG_WRITER_JOURNAL = -1, /* in place of a descriptor */
};

/* 0 or a negative errno: there is no thread. Without one, lines are written at once. */
int log_writer_start(enum log_writer which);
/* What is held is written, which may last LOG_WRITER_END_S; where all was, the thread ends. */
void log_writer_finish(void);
/* The same wait, and the thread goes on: whether all is written. */
bool log_writer_catch_up(enum log_writer which);

/*
 * One line, with its newline if it goes to a descriptor; severity is the journal's, see journal.h.
 * Lines of one writer come out in the order they were put in. Where some are lost, a line says how
 * many.
 */
void log_writer_put(enum log_writer which, int fd, int severity, const char *line, size_t n);
/* What was put for fd has not all been written, or told as lost. */
bool log_writer_holds(enum log_writer which, int fd);
int64_t log_writer_lost(void); /* lines, since the start */

#endif
