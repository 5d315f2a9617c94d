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

void log_write(enum log_level level, const char *format, ...)
{
	char line[2048], at[CLOCK_TEXT_BYTES];
	va_list args;
	size_t n;
	int rc;

	if (level < log_state.least)
		return;
	clock_text(clock_utc_ns(), at);
	n = (size_t)snprintf(line, sizeof(line), "%s %s ", at, level_names[level]);
	va_start(args, format);
	rc = vsnprintf(line + n, sizeof(line) - n - 1, format, args);
	va_end(args);
	if (rc < 0)
		return;
	for (char *c = line; *c != '\0'; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = ' '; /* what a peer sent stays on one line */
	if (log_state.in_journal) {
		journal_write((int)level, line + n);
		return;
	}
	n = strlen(line);
	line[n++] = '\n';
	if (write(log_state.fd, line, n) < 0)
		return; /* nowhere to say so */
}

enum log_level log_level_of(const char *name)
{
	for (int i = LOG_DEBUG; i <= LOG_ERROR; i++)
		if (strcmp(name, level_names[i]) == 0)
			return (enum log_level)i;
	return LOG_INFO;
}
