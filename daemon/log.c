#include "daemon/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/journal.h"

static struct {
	int fd;
	const char *path; /* NULL: not a file */
	bool in_journal;
	enum log_level least;
} log_state = {.fd = STDERR_FILENO, .least = LOG_INFO};

static struct {
	int64_t n;
	struct log_line line[LOG_RECENT];
} log_kept;

static const char *const level_names[] = {"debug", "info", "warning", "error"};

static int open_path(const char *path)
{
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);

	return fd < 0 ? -errno : fd;
}

int log_open(const char *to)
{
	bool journal = to != NULL && strcmp(to, "journal") == 0;
	int fd;

	if (to == NULL || strcmp(to, "stderr") == 0)
		return 0;
	fd = journal ? journal_open() : open_path(to);
	if (fd < 0)
		return fd;
	log_state.fd = fd;
	log_state.in_journal = journal;
	log_state.path = journal ? NULL : to;
	return 0;
}

int log_reopen(void)
{
	int fd;

	if (log_state.path == NULL)
		return 0;
	fd = open_path(log_state.path);
	if (fd < 0)
		return fd;
	close(log_state.fd);
	log_state.fd = fd;
	return 0;
}

void log_set_level(enum log_level least)
{
	log_state.least = least;
}

int log_fd(void)
{
	return log_state.fd;
}

static void keep(int64_t at_ns, enum log_level level, const char *message)
{
	struct log_line *line = &log_kept.line[log_kept.n++ % LOG_RECENT];

	line->n = log_kept.n;
	line->at_ns = at_ns;
	line->level = level;
	snprintf(line->message, sizeof(line->message), "%s", message);
	for (char *c = line->message; *c != '\0'; c++)
		if ((unsigned char)*c >= 0x80)
			*c = '?'; /* it may have been cut within a character */
}

int64_t log_forgotten(void)
{
	return log_kept.n > LOG_RECENT ? log_kept.n - LOG_RECENT : 0;
}

bool log_recent(int64_t n, struct log_line *out)
{
	if (n <= log_forgotten())
		n = log_forgotten() + 1;
	if (n > log_kept.n)
		return false;
	*out = log_kept.line[(n - 1) % LOG_RECENT];
	return true;
}

void log_write(enum log_level level, const char *format, ...)
{
	char line[2048], at[CLOCK_TEXT_BYTES];
	int64_t now;
	va_list args;
	size_t n, start;
	int rc;

	if (level < log_state.least)
		return;
	now = clock_utc_ns();
	clock_text(now, at);
	n = (size_t)snprintf(line, sizeof(line), "%s %s ", at, level_names[level]);
	start = n;
	va_start(args, format);
	rc = vsnprintf(line + n, sizeof(line) - n - 1, format, args);
	va_end(args);
	if (rc < 0)
		return;
	for (char *c = line; *c != '\0'; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = ' '; /* what a peer sent stays on one line */
	keep(now, level, line + start);
	if (log_state.in_journal) {
		journal_write((int)level, line + start);
		return;
	}
	n = strlen(line);
	line[n++] = '\n';
	if (write(log_state.fd, line, n) < 0)
		return; /* nowhere to say so */
}

const char *log_level_name(enum log_level level)
{
	return level_names[level >= LOG_DEBUG && level <= LOG_ERROR ? level : LOG_INFO];
}

enum log_level log_level_of(const char *name)
{
	for (int i = LOG_DEBUG; i <= LOG_ERROR; i++)
		if (strcmp(name, level_names[i]) == 0)
			return (enum log_level)i;
	return LOG_INFO;
}
