#include "daemon/config/log.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "daemon/config/clock.h"
#include "daemon/config/journal.h"
#include "daemon/config/log_writer.h"

enum { LOG_LINE_BYTES = 2048 };

static struct {
	int fd;
	const char *path; /* NULL: not a file */
	bool in_journal;
	bool to_file; /* no reader is waited for there, a disk is */
	enum log_level least;
} log_state = {.fd = STDERR_FILENO, .least = LOG_INFO};

/* The newest lines of gpt2d's own and of engines, numbered together. */
static struct {
	int64_t n;
	struct {
		int64_t n;
		struct log_line line[LOG_RECENT];
	} of[LOG_SOURCES];
} log_kept;

bool log_can_be(const char *path)
{
	struct statfs fs;
	struct stat st;

	if (stat(path, &st) < 0)
		return true;
	if (S_ISSOCK(st.st_mode))
		return false;
	/* a pipe without a name is an own stream: /dev/stdout */
	return !S_ISFIFO(st.st_mode) || (statfs(path, &fs) == 0 && fs.f_type == PIPEFS_MAGIC);
}

const char *log_error_text(int rc)
{
	if (rc == -ESPIPE)
		return "a FIFO or a socket, a file or \"stderr\" is expected";
	return rc == -EINPROGRESS ? "its disk does not answer, lines wait for it" : strerror(-rc);
}

/* What it is may change before it is open: nothing waits in open(2) for a reader. */
static int open_path(const char *path)
{
	int fd;

	if (!log_can_be(path))
		return -ESPIPE;
	fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
	if (fd < 0)
		return errno == ENXIO && !log_can_be(path) ? -ESPIPE : -errno;
	fcntl(fd, F_SETFL, O_APPEND); /* whoever writes waits */
	return fd;
}

static bool is_file(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

int log_open(const char *to)
{
	bool journal = to != NULL && strcmp(to, "journal") == 0;
	int fd = STDERR_FILENO, rc = journal ? journal_there() : 0;

	if (rc < 0)
		return rc;
	if (!journal && to != NULL && strcmp(to, "stderr") != 0)
		fd = open_path(to);
	if (fd < 0)
		return fd;
	rc = log_writer_start(LOG_WRITER_STREAMS);
	if (rc == 0 && is_file(fd))
		rc = log_writer_start(LOG_WRITER_FILE);
	if (rc < 0) {
		if (fd != STDERR_FILENO)
			close(fd);
		return rc;
	}
	log_state.fd = fd;
	log_state.in_journal = journal;
	log_state.to_file = is_file(fd);
	log_state.path = fd == STDERR_FILENO ? NULL : to;
	return 0;
}

int log_reopen(void)
{
	int fd, rc = 0;

	if (log_state.path == NULL)
		return 0;
	if (!log_writer_catch_up(LOG_WRITER_FILE))
		return -EINPROGRESS; /* open(2) would wait there too */
	fd = open_path(log_state.path);
	if (fd < 0)
		return fd;
	/* with its number: the writer may be at it */
	if (dup3(fd, log_state.fd, O_CLOEXEC) < 0)
		rc = -errno;
	close(fd);
	log_state.to_file = is_file(log_state.fd);
	if (log_state.to_file && rc == 0)
		rc = log_writer_start(LOG_WRITER_FILE);
	return rc;
}

void log_finish(void)
{
	log_writer_finish();
}

int64_t log_lost(void)
{
	return log_writer_lost();
}

void log_set_level(enum log_level least)
{
	log_state.least = least;
}

static void keep(enum log_source source, int64_t at_ns, enum log_level level, const char *message)
{
	struct log_line *line =
		&log_kept.of[source].line[log_kept.of[source].n++ % LOG_RECENT];

	line->n = ++log_kept.n;
	line->at_ns = at_ns;
	line->level = level;
	snprintf(line->message, sizeof(line->message), "%s", message);
	for (char *c = line->message; *c != '\0'; c++)
		if ((unsigned char)*c >= 0x80)
			*c = '?'; /* it may have been cut within a character */
}

int64_t log_forgotten(void)
{
	int64_t forgotten = 0;

	for (int i = 0; i < LOG_SOURCES; i++)
		if (log_kept.of[i].n > LOG_RECENT)
			forgotten += log_kept.of[i].n - LOG_RECENT;
	return forgotten;
}

/* Of one source; NULL: there is none. */
static const struct log_line *first_from(enum log_source source, int64_t n)
{
	const int64_t end = log_kept.of[source].n;

	for (int64_t i = end > LOG_RECENT ? end - LOG_RECENT : 0; i < end; i++)
		if (log_kept.of[source].line[i % LOG_RECENT].n >= n)
			return &log_kept.of[source].line[i % LOG_RECENT];
	return NULL;
}

bool log_recent(int64_t n, struct log_line *out)
{
	const struct log_line *first = NULL, *line;

	for (int i = 0; i < LOG_SOURCES; i++) {
		line = first_from((enum log_source)i, n);
		if (line != NULL && (first == NULL || line->n < first->n))
			first = line;
	}
	if (first == NULL)
		return false;
	*out = *first;
	return true;
}

static void write_line(enum log_source source, enum log_level level, const char *format,
	va_list args) __attribute__((format(printf, 3, 0)));

static void write_line(
	enum log_source source, enum log_level level, const char *format, va_list args)
{
	char line[LOG_LINE_BYTES], at[CLOCK_TEXT_BYTES];
	enum log_writer writer;
	int64_t now;
	size_t n, start;

	if (level < log_state.least)
		return;
	now = clock_utc_ns();
	clock_text(now, at);
	n = (size_t)snprintf(line, sizeof(line), "%s %s ", at, log_level_name(level));
	start = n;
	if (vsnprintf(line + n, sizeof(line) - n - 1, format, args) < 0)
		return;
	for (char *c = line; *c != '\0'; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = ' '; /* what a peer sent stays on one line */
	keep(source, now, level, line + start);
	if (log_state.in_journal) {
		log_writer_put(LOG_WRITER_STREAMS, LOG_WRITER_JOURNAL, (int)level, line + start,
			strlen(line + start));
		return;
	}
	n = strlen(line);
	line[n++] = '\n';
	/* a file has what was said even if gpt2d is killed next, or nobody reads its output */
	writer = log_state.to_file && !log_writer_holds(LOG_WRITER_STREAMS, log_state.fd)
		? LOG_WRITER_FILE
		: LOG_WRITER_STREAMS;
	log_writer_put(writer, log_state.fd, (int)level, line, n);
}

void log_write(enum log_level level, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	write_line(LOG_OWN, level, format, args);
	va_end(args);
}

void log_write_engine(enum log_level level, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	write_line(LOG_ENGINE, level, format, args);
	va_end(args);
}

void log_print(const char *format, ...)
{
	char line[LOG_LINE_BYTES];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line, sizeof(line) - 1, format, args);
	va_end(args);
	if (n < 0)
		return;
	n = (int)strlen(line);
	line[n++] = '\n';
	log_writer_put(LOG_WRITER_STREAMS, STDOUT_FILENO, (int)LOG_INFO, line, (size_t)n);
}
