/* log.h: gpt2d's log, one line each: "2026-01-08T19:50:57.123Z info run 3: queued". Main thread
 * only. */
#ifndef GPT2D_LOG_H
#define GPT2D_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR };

/*
 * to: a file, appended to; NULL or "stderr": standard error; "journal": systemd's, which keeps time
 * and level itself. 0 or a negative errno. to must stay.
 */
int log_open(const char *to);
/* Open the file anew, which may have been moved away: 0, or a negative errno and the log goes on
 * where it was. */
int log_reopen(void);
void log_set_level(enum log_level least); /* what is below it is not written */
int log_fd(void);                         /* what children print goes there */
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *log_level_name(enum log_level level);
/* "debug", "info", ... to a level; LOG_INFO for any other text. */
enum log_level log_level_of(const char *name);

/* The newest lines, as they were written, are kept in memory too. */
enum { LOG_RECENT = 256, LOG_RECENT_BYTES = 512 };
struct log_line {
	int64_t n; /* from 1 */
	int64_t at_ns;
	enum log_level level;
	char message[LOG_RECENT_BYTES]; /* its beginning */
};
/* The first one that is kept and numbered n or above: whether there is one. */
bool log_recent(int64_t n, struct log_line *out);
int64_t log_forgotten(void); /* lines that are not kept any more */

#endif
