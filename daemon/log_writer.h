/*
 * log_writer.h: lines to descriptors whose reader may stand still (a terminal that is stopped, a
 * pipe that nobody reads, systemd's journal): a thread of their own waits there, and what it does
 * not get rid of is held up to LOG_WRITER_BYTES, then dropped and counted.
 */
#ifndef GPT2D_LOG_WRITER_H
#define GPT2D_LOG_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	LOG_WRITER_BYTES = 256 * 1024,
	LOG_WRITER_END_S = 1,    /* for what is still held when gpt2d ends */
	LOG_WRITER_JOURNAL = -1, /* in place of a descriptor */
};

/* 0 or a negative errno: there is no thread. Without one, lines are written at once. */
int log_writer_start(void);
/* What is held is written, which may last LOG_WRITER_END_S; if all was, the thread ends. */
void log_writer_finish(void);

/*
 * One line, with its newline if it goes to a descriptor; severity is the journal's, see journal.h.
 * Lines come out in the order they were put in. Where some are lost, a line says how many.
 */
void log_writer_put(int fd, int severity, const char *line, size_t n);
bool log_writer_holds(int fd); /* what was put for it has not all been written, or told as lost */
/* n bytes, waiting for room; 0 or a negative errno. */
int log_writer_emit(int fd, const char *bytes, size_t n);

void log_writer_count_lost(void); /* one that was lost elsewhere */
int64_t log_writer_lost(void);    /* lines, since the start */

#endif
