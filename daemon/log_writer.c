#include "daemon/log_writer.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/journal.h"
#include "proto/thread.h"

enum { LINE_BYTES_MAX = 2048, WARNING = 2 };

struct record {
	int fd, severity;
	size_t n; /* of the text that follows */
};

static struct {
	pthread_t thread;
	bool started;
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t wake, idle;
	bool busy; /* a line is out of the ring and not written yet */
	int busy_fd;
	bool stop;
	uint64_t put, taken; /* bytes since the start */
	int64_t lost;        /* lines since the start */
	int64_t untold;      /* of these, lines that no line has told of yet */
	int untold_fd;       /* where they should have gone */
	char ring[LOG_WRITER_BYTES];
} writer = {.lock = PTHREAD_MUTEX_INITIALIZER};

int log_writer_emit(int fd, const char *bytes, size_t n)
{
	while (n > 0) {
		struct pollfd room = {fd, POLLOUT, 0};
		ssize_t k = write(fd, bytes, n);

		if (k >= 0) {
			bytes += k;
			n -= (size_t)k;
		} else if (errno == EAGAIN) {
			poll(&room, 1, -1); /* who shares it has made it non-blocking */
		} else if (errno != EINTR) {
			return -errno;
		}
	}
	return 0;
}

static int emit(const struct record *r, const char *text)
{
	char line[LINE_BYTES_MAX];

	if (r->fd != LOG_WRITER_JOURNAL)
		return log_writer_emit(r->fd, text, r->n);
	snprintf(line, sizeof(line), "%.*s", (int)r->n, text);
	journal_write(r->severity, line);
	return 0;
}

/* ---- the ring; under the lock ---- */

static bool fits(size_t n)
{
	return LOG_WRITER_BYTES - (writer.put - writer.taken) >= n;
}

static void copy_in(const void *from, size_t n)
{
	size_t at = writer.put % LOG_WRITER_BYTES, first = LOG_WRITER_BYTES - at;

	if (first > n)
		first = n;
	memcpy(writer.ring + at, from, first);
	memcpy(writer.ring, (const char *)from + first, n - first);
	writer.put += n;
}

/* from: in bytes since the start */
static void copy_of(uint64_t from, void *to, size_t n)
{
	size_t at = from % LOG_WRITER_BYTES, first = LOG_WRITER_BYTES - at;

	if (first > n)
		first = n;
	memcpy(to, writer.ring + at, first);
	memcpy((char *)to + first, writer.ring, n - first);
}

static void copy_out(void *to, size_t n)
{
	copy_of(writer.taken, to, n);
	writer.taken += n;
}

/* The line that tells of lost ones; text has LINE_BYTES_MAX bytes. */
static void tell_lost(struct record *r, char *text)
{
	char at[CLOCK_TEXT_BYTES] = "";

	*r = (struct record){.fd = writer.untold_fd, .severity = WARNING};
	if (r->fd == LOG_WRITER_JOURNAL) {
		snprintf(text, LINE_BYTES_MAX, "log: %" PRId64 " lines lost", writer.untold);
	} else {
		clock_text(clock_utc_ns(), at);
		snprintf(text, LINE_BYTES_MAX, "%s warning log: %" PRId64 " lines lost\n", at,
			writer.untold);
	}
	r->n = strlen(text);
	writer.untold = 0;
}

static void put_lost(void)
{
	char text[LINE_BYTES_MAX];
	struct record r;

	tell_lost(&r, text);
	copy_in(&r, sizeof(r));
	copy_in(text, r.n);
}

/* ---- the thread ---- */

/* The next line: true; false: there is none, and none is to come. */
static bool next(struct record *r, char *text)
{
	bool any = true;

	pthread_mutex_lock(&writer.lock);
	writer.busy = false;
	while (writer.put == writer.taken && writer.untold == 0 && !writer.stop) {
		pthread_cond_signal(&writer.idle);
		pthread_cond_wait(&writer.wake, &writer.lock);
	}
	if (writer.put != writer.taken) {
		copy_out(r, sizeof(*r));
		copy_out(text, r->n);
	} else if (writer.untold > 0) {
		tell_lost(r, text);
	} else {
		any = false;
	}
	writer.busy = any;
	if (any)
		writer.busy_fd = r->fd;
	pthread_mutex_unlock(&writer.lock);
	return any;
}

static void *run_thread(void *arg)
{
	char text[LINE_BYTES_MAX];
	struct record r;

	while (next(&r, text))
		if (emit(&r, text) < 0)
			log_writer_count_lost();
	return NULL;
}

int log_writer_start(void)
{
	int rc;

	thread_condition_init(&writer.wake);
	thread_condition_init(&writer.idle);
	/* it gets no SIGPIPE or SIGTTOU: errors of a write, or nothing */
	rc = thread_start(&writer.thread, run_thread, NULL, "log");
	writer.started = rc == 0;
	return rc;
}

static bool idle(void)
{
	return writer.put == writer.taken && !writer.busy && writer.untold == 0;
}

void log_writer_finish(void)
{
	const struct timespec until =
		clock_timespec(clock_mono_ns() + LOG_WRITER_END_S * CLOCK_S_NS);
	int rc = 0;
	bool all;

	if (!writer.started)
		return;
	pthread_mutex_lock(&writer.lock);
	while (!idle() && rc == 0)
		rc = pthread_cond_timedwait(&writer.idle, &writer.lock, &until);
	all = writer.stop = idle();
	pthread_cond_signal(&writer.wake);
	pthread_mutex_unlock(&writer.lock);
	if (!all)
		return; /* it ends with the process, wherever it waits */
	pthread_join(writer.thread, NULL);
	writer.started = writer.stop = false;
}

void log_writer_put(int fd, int severity, const char *line, size_t n)
{
	struct record r = {.fd = fd, .severity = severity, .n = n};

	if (n >= LINE_BYTES_MAX)
		return;
	if (!writer.started) {
		if (emit(&r, line) < 0)
			log_writer_count_lost();
		return;
	}
	pthread_mutex_lock(&writer.lock);
	if (writer.untold > 0 && fits(2 * sizeof(r) + LINE_BYTES_MAX + n))
		put_lost();
	if (writer.untold == 0 && fits(sizeof(r) + n)) {
		copy_in(&r, sizeof(r));
		copy_in(line, n);
	} else {
		writer.lost++;
		writer.untold++;
		writer.untold_fd = fd;
	}
	pthread_cond_signal(&writer.wake);
	pthread_mutex_unlock(&writer.lock);
}

bool log_writer_holds(int fd)
{
	struct record r;
	bool holds;

	pthread_mutex_lock(&writer.lock);
	holds = (writer.busy && writer.busy_fd == fd) ||
		(writer.untold > 0 && writer.untold_fd == fd);
	for (uint64_t at = writer.taken; !holds && at != writer.put; at += sizeof(r) + r.n) {
		copy_of(at, &r, sizeof(r));
		holds = r.fd == fd;
	}
	pthread_mutex_unlock(&writer.lock);
	return holds;
}

void log_writer_count_lost(void)
{
	pthread_mutex_lock(&writer.lock);
	writer.lost++;
	pthread_mutex_unlock(&writer.lock);
}

int64_t log_writer_lost(void)
{
	int64_t lost;

	pthread_mutex_lock(&writer.lock);
	lost = writer.lost;
	pthread_mutex_unlock(&writer.lock);
	return lost;
}
