#include <systemd/sd-journal.h>
/* <syslog.h>, which it includes, has other values for these names */
#undef LOG_DEBUG
#undef LOG_INFO
#undef LOG_WARNING

#include "daemon/config/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/host/starved.h"
#include "proto/host/thread.h"

enum { LINE_BYTES = 2048, END_S = 1, TO_JOURNAL = -1, TO_REOPEN = -2 };

static const char journal_socket[] = "/run/systemd/journal/socket";

/* A line that waits for the thread. */
struct held {
	struct held *next;
	int to; /* a descriptor, TO_JOURNAL or TO_REOPEN */
	enum log_level level;
	size_t n;
	char text[];
};

static struct {
	int to;           /* the log's own lines: a descriptor or TO_JOURNAL */
	const char *path; /* NULL: not a file */
	enum log_level least;
} log_state = {.to = STDERR_FILENO, .least = LOG_INFO};

static struct {
	pthread_t thread;
	bool started;
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t wake, idle;
	struct held *first, **last;
	size_t bytes; /* of the waiting lines */
	bool busy;    /* the thread drops waiting lines and ends */
	bool stop;
	int64_t lost;      /* lines since the start */
	int64_t unwritten; /* of these, lines that are not reported in the log yet */
} writer = {.lock = PTHREAD_MUTEX_INITIALIZER, .last = &writer.first};

/* The newest lines of gpt2d and of engines, numbered together. */
static struct {
	int64_t n;
	struct {
		int64_t n;
		struct log_line line[LOG_RECENT];
	} of[LOG_SOURCES];
} kept;

/* ---- the place ---- */

/* Whether systemd connected standard error to the journal: JOURNAL_STREAM in systemd.exec(5). */
static bool stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	char own[64];
	struct stat st;

	if (stream == NULL || fstat(STDERR_FILENO, &st) < 0 || access(journal_socket, W_OK) < 0)
		return false;
	snprintf(own, sizeof(own), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	return strcmp(own, stream) == 0;
}

static bool is_journal(const char *to)
{
	return to == NULL ? stderr_is_journal() : strcmp(to, "journal") == 0;
}

static bool is_stderr(const char *to)
{
	return to == NULL || strcmp(to, "stderr") == 0;
}

int log_check(const char *to, char *error, size_t error_bytes)
{
	struct statfs fs;
	struct stat st;
	int rc = 0;

	if (is_journal(to) && access(journal_socket, W_OK) < 0) {
		rc = -errno;
		snprintf(error, error_bytes,
			"log_file: journal: %s: %s; \"stderr\" or the path of a file needs no "
			"journal",
			journal_socket, strerror(-rc));
		return rc;
	}
	if (is_journal(to) || is_stderr(to) || stat(to, &st) < 0)
		return 0;
	/* a pipe without a name is inherited: /dev/stdout */
	if (S_ISSOCK(st.st_mode) ||
		(S_ISFIFO(st.st_mode) && (statfs(to, &fs) < 0 || fs.f_type != PIPEFS_MAGIC)))
		rc = -ESPIPE;
	if (rc < 0)
		snprintf(error, error_bytes,
			"log_file: %s: a FIFO or a socket (expected a file, stderr or journal)",
			to);
	return rc;
}

static int open_path(const char *path, char *error, size_t error_bytes)
{
	int fd = log_check(path, error, error_bytes);

	if (fd < 0)
		return fd;
	/* O_NONBLOCK: the path may have become a FIFO, for whose reader open() would wait */
	fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
	if (fd < 0) {
		fd = -errno;
		snprintf(error, error_bytes, "log_file: %s: %s", path, strerror(errno));
		return fd;
	}
	fcntl(fd, F_SETFL, O_APPEND); /* the thread waits in write() */
	return fd;
}

/* ---- the thread ---- */

static int write_all(int fd, const char *bytes, size_t n)
{
	while (n > 0) {
		struct pollfd room = {fd, POLLOUT, 0};
		ssize_t k = write(fd, bytes, n);

		if (k >= 0) {
			bytes += k;
			n -= (size_t)k;
		} else if (errno == EAGAIN) {
			poll(&room, 1, -1); /* another process made the stream non-blocking */
		} else if (errno != EINTR) {
			return -errno;
		}
	}
	return 0;
}

static int emit(int to, enum log_level level, const char *text, size_t n)
{
	static const int priorities[] = {7, 6, 4, 3}; /* of syslog(3) */

	if (to != TO_JOURNAL)
		return write_all(to, text, n);
	return sd_journal_send("MESSAGE=%.*s", (int)n, text, "PRIORITY=%d", priorities[level],
		"SYSLOG_IDENTIFIER=gpt2d", NULL);
}

/* Formats the line: text has LINE_BYTES bytes. Returns where the message begins. */
static size_t format_line(char *text, enum log_level level, int64_t at_ns, const char *format,
	va_list args) __attribute__((format(printf, 4, 0)));

static size_t format_line(
	char *text, enum log_level level, int64_t at_ns, const char *format, va_list args)
{
	char at[CLOCK_TEXT_BYTES];
	size_t start;

	clock_text(at_ns, at);
	start = (size_t)snprintf(text, LINE_BYTES, "%s %s ", at, log_level_name(level));
	vsnprintf(text + start, LINE_BYTES - start - 1, format, args);
	for (char *c = text; *c != '\0'; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = ' '; /* a message of a peer stays on one line */
	return start;
}

/*
 * The part of the text that is written to `to`, and its size. The journal keeps time and level
 * itself.
 */
static const char *line_for(int to, char *text, size_t start, size_t *n)
{
	*n = strlen(text);
	if (to == TO_JOURNAL) {
		*n -= start;
		return text + start;
	}
	text[(*n)++] = '\n';
	return text;
}

/* A line of the thread itself. */
static void say(enum log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void say(enum log_level level, const char *format, ...)
{
	char text[LINE_BYTES];
	const char *line;
	va_list args;
	size_t start, n;

	va_start(args, format);
	start = format_line(text, level, clock_utc_ns(), format, args);
	va_end(args);
	line = line_for(log_state.to, text, start, &n);
	emit(log_state.to, level, line, n);
}

static void reopen(void)
{
	char error[1024];
	int fd = open_path(log_state.path, error, sizeof(error));

	if (fd < 0) {
		say(LOG_ERROR, "%s: the log stays in the file that is open", error);
		return;
	}
	dup3(fd, log_state.to, O_CLOEXEC); /* the descriptor keeps its number */
	close(fd);
	say(LOG_INFO, "SIGHUP: the log is open");
}

/* The next line; NULL: there will be none. *unwritten: lines that were lost before it. */
static struct held *next(int64_t *unwritten)
{
	struct held *h;

	pthread_mutex_lock(&writer.lock);
	writer.busy = false;
	while (writer.first == NULL && writer.unwritten == 0 && !writer.stop) {
		pthread_cond_signal(&writer.idle);
		pthread_cond_wait(&writer.wake, &writer.lock);
	}
	h = writer.first;
	*unwritten = h == NULL ? writer.unwritten : 0;
	if (h != NULL) {
		writer.first = h->next;
		writer.bytes -= h->n;
		if (writer.first == NULL)
			writer.last = &writer.first;
	} else {
		writer.unwritten = 0;
	}
	writer.busy = h != NULL || *unwritten > 0;
	pthread_mutex_unlock(&writer.lock);
	return h;
}

static void count_lost(void)
{
	pthread_mutex_lock(&writer.lock);
	writer.lost++;
	pthread_mutex_unlock(&writer.lock);
}

static void *run_thread(void *arg)
{
	struct held *h;
	int64_t lost;

	while ((h = next(&lost)) != NULL || lost > 0) {
		if (h == NULL)
			say(LOG_WARNING, "log: %" PRId64 " lines lost", lost);
		else if (h->to == TO_REOPEN)
			reopen();
		else if (emit(h->to, h->level, h->text, h->n) < 0)
			count_lost();
		free(h);
	}
	return NULL;
}

/* ---- towards the thread ---- */

static bool is_idle(void)
{
	return writer.first == NULL && !writer.busy && writer.unwritten == 0;
}

static void put(int to, enum log_level level, const char *text, size_t n)
{
	struct held *h;

	if (!writer.started) {
		if (emit(to, level, text, n) < 0)
			count_lost();
		return;
	}
	pthread_mutex_lock(&writer.lock);
	if (writer.unwritten > 0 || writer.bytes + n > LOG_HELD_BYTES) {
		writer.lost++;
		writer.unwritten++;
	} else {
		h = memory_zeroed(1, sizeof(*h) + n);
		h->to = to;
		h->level = level;
		h->n = n;
		memcpy(h->text, text, n);
		*writer.last = h;
		writer.last = &h->next;
		writer.bytes += n;
	}
	pthread_mutex_unlock(&writer.lock);
	pthread_cond_signal(&writer.wake); /* without the lock: the thread takes it next */
}

int log_open(const char *to, char *error, size_t error_bytes)
{
	int fd = STDERR_FILENO, rc;

	if (is_journal(to))
		fd = log_check(to, error, error_bytes) < 0 ? -EINVAL : fd;
	else if (!is_stderr(to))
		fd = open_path(to, error, error_bytes);
	if (fd < 0)
		return fd;
	thread_condition_init(&writer.wake);
	thread_condition_init(&writer.idle);
	rc = thread_start(&writer.thread, run_thread, NULL, "log");
	if (rc < 0) {
		snprintf(error, error_bytes, "the thread of the log: %s", starved_text(rc));
		if (fd != STDERR_FILENO)
			close(fd);
		return rc;
	}
	writer.started = true;
	log_state.to = is_journal(to) ? TO_JOURNAL : fd;
	log_state.path = fd == STDERR_FILENO ? NULL : to;
	return 0;
}

void log_reopen(void)
{
	if (log_state.path != NULL && writer.started)
		put(TO_REOPEN, LOG_INFO, "", 0);
}

void log_finish(void)
{
	const struct timespec until = clock_timespec(clock_mono_ns() + END_S * CLOCK_S_NS);
	bool all;
	int rc = 0;

	if (!writer.started)
		return;
	pthread_mutex_lock(&writer.lock);
	while (!is_idle() && rc == 0)
		rc = pthread_cond_timedwait(&writer.idle, &writer.lock, &until);
	all = writer.stop = is_idle();
	pthread_cond_signal(&writer.wake);
	pthread_mutex_unlock(&writer.lock);
	if (!all)
		return; /* the thread ends with the process */
	pthread_join(writer.thread, NULL);
	writer.started = writer.stop = false;
}

int64_t log_lost(void)
{
	int64_t lost;

	pthread_mutex_lock(&writer.lock);
	lost = writer.lost;
	pthread_mutex_unlock(&writer.lock);
	return lost;
}

/* ---- lines ---- */

void log_set_level(enum log_level least)
{
	log_state.least = least;
}

static void keep(enum log_source source, int64_t at_ns, enum log_level level, const char *message)
{
	struct log_line *line = &kept.of[source].line[kept.of[source].n++ % LOG_RECENT];

	line->n = ++kept.n;
	line->at_ns = at_ns;
	line->level = level;
	snprintf(line->message, sizeof(line->message), "%s", message);
	for (char *c = line->message; *c != '\0'; c++)
		if ((unsigned char)*c >= 0x80)
			*c = '?'; /* it may have been cut within a character */
}

static void write_line(enum log_source source, enum log_level level, const char *format,
	va_list args) __attribute__((format(printf, 3, 0)));

static void write_line(
	enum log_source source, enum log_level level, const char *format, va_list args)
{
	const int64_t now_ns = clock_utc_ns();
	char text[LINE_BYTES];
	const char *line;
	size_t start, n;

	if (level < log_state.least)
		return;
	start = format_line(text, level, now_ns, format, args);
	keep(source, now_ns, level, text + start);
	line = line_for(log_state.to, text, start, &n);
	put(log_state.to, level, line, n);
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
	struct pollfd room = {STDOUT_FILENO, POLLOUT, 0};
	char text[LINE_BYTES];
	va_list args;
	size_t n;

	va_start(args, format);
	vsnprintf(text, sizeof(text) - 1, format, args);
	va_end(args);
	n = strlen(text);
	text[n++] = '\n';
	/* the lines of a file must not wait for a terminal */
	if (log_state.path == NULL || poll(&room, 1, 0) == 1)
		put(STDOUT_FILENO, LOG_INFO, text, n);
}

/* ---- lines in memory ---- */

int64_t log_forgotten(void)
{
	int64_t forgotten = 0;

	for (int i = 0; i < LOG_SOURCES; i++)
		if (kept.of[i].n > LOG_RECENT)
			forgotten += kept.of[i].n - LOG_RECENT;
	return forgotten;
}

/* The ring of one source; NULL: there is none. */
static const struct log_line *first_from(enum log_source source, int64_t n)
{
	const int64_t end = kept.of[source].n;

	for (int64_t i = end > LOG_RECENT ? end - LOG_RECENT : 0; i < end; i++)
		if (kept.of[source].line[i % LOG_RECENT].n >= n)
			return &kept.of[source].line[i % LOG_RECENT];
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
