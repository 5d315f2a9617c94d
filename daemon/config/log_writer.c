#include "daemon/config/log_writer.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/config/clock.h"
#include "daemon/config/journal.h"
#include "proto/host/thread.h"

enum { LINE_BYTES_MAX = 2048, WARNING = 2 };

struct record {
	int fd, severity;
	size_t n; /* of the text that follows */
};

static struct writer {
	const char *name;
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
} writers[LOG_WRITERS] = {
	[LOG_WRITER_STREAMS] = {.name = "log", .lock = PTHREAD_MUTEX_INITIALIZER},
	[LOG_WRITER_FILE] = {.name = "log_file", .lock = PTHREAD_MUTEX_INITIALIZER},
};

static int write_all(int fd, const char *bytes, size_t n)
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
		return write_all(r->fd, text, r->n);
	snprintf(line, sizeof(line), "%.*s", (int)r->n, text);
	journal_write(r->severity, line);
	return 0;
}

/* ---- the ring; under the lock ---- */

static bool fits(const struct writer *w, size_t n)
{
	return LOG_WRITER_BYTES - (w->put - w->taken) >= n;
}

static void copy_in(struct writer *w, const void *from, size_t n)
{
	size_t at = w->put % LOG_WRITER_BYTES, first = LOG_WRITER_BYTES - at;

	if (first > n)
		first = n;
	memcpy(w->ring + at, from, first);
	memcpy(w->ring, (const char *)from + first, n - first);
	w->put += n;
}

/* from: in bytes since the start */
static void copy_of(const struct writer *w, uint64_t from, void *to, size_t n)
{
	size_t at = from % LOG_WRITER_BYTES, first = LOG_WRITER_BYTES - at;

	if (first > n)
		first = n;
	memcpy(to, w->ring + at, first);
	memcpy((char *)to + first, w->ring, n - first);
}

static void copy_out(struct writer *w, void *to, size_t n)
{
	copy_of(w, w->taken, to, n);
	w->taken += n;
}

/* The line that tells of lost ones; text has LINE_BYTES_MAX bytes. */
static void tell_lost(struct writer *w, struct record *r, char *text)
{
	char at[CLOCK_TEXT_BYTES] = "";

	*r = (struct record){.fd = w->untold_fd, .severity = WARNING};
	if (r->fd == LOG_WRITER_JOURNAL) {
		snprintf(text, LINE_BYTES_MAX, "log: %" PRId64 " lines lost", w->untold);
	} else {
		clock_text(clock_utc_ns(), at);
		snprintf(text, LINE_BYTES_MAX, "%s warning log: %" PRId64 " lines lost\n", at,
			w->untold);
	}
	r->n = strlen(text);
	w->untold = 0;
}

static void put_lost(struct writer *w)
{
	char text[LINE_BYTES_MAX];
	struct record r;

	tell_lost(w, &r, text);
	copy_in(w, &r, sizeof(r));
	copy_in(w, text, r.n);
}

static bool idle(const struct writer *w)
{
	return w->put == w->taken && !w->busy && w->untold == 0;
}

static void wait_idle(struct writer *w, int64_t until_ns)
{
	const struct timespec until = clock_timespec(until_ns);
	int rc = 0;

	while (!idle(w) && rc == 0)
		rc = pthread_cond_timedwait(&w->idle, &w->lock, &until);
}

/* ---- a thread ---- */

static void count_lost(struct writer *w)
{
	pthread_mutex_lock(&w->lock);
	w->lost++;
	pthread_mutex_unlock(&w->lock);
}

/* The next line: true; false: there is none, and none is to come. */
static bool next(struct writer *w, struct record *r, char *text)
{
	bool any = true;

	pthread_mutex_lock(&w->lock);
	w->busy = false;
	while (w->put == w->taken && w->untold == 0 && !w->stop) {
		pthread_cond_signal(&w->idle);
		pthread_cond_wait(&w->wake, &w->lock);
	}
	if (w->put != w->taken) {
		copy_out(w, r, sizeof(*r));
		copy_out(w, text, r->n);
	} else if (w->untold > 0) {
		tell_lost(w, r, text);
	} else {
		any = false;
	}
	w->busy = any;
	if (any)
		w->busy_fd = r->fd;
	pthread_mutex_unlock(&w->lock);
	return any;
}

static void *run_thread(void *arg)
{
	struct writer *w = arg;
	char text[LINE_BYTES_MAX];
	struct record r;

	while (next(w, &r, text))
		if (emit(&r, text) < 0)
			count_lost(w);
	return NULL;
}

int log_writer_start(enum log_writer which)
{
	struct writer *w = &writers[which];
	int rc;

	if (w->started)
		return 0;
	thread_condition_init(&w->wake);
	thread_condition_init(&w->idle);
	/* it gets no SIGPIPE or SIGTTOU: errors of a write, or nothing */
	rc = thread_start(&w->thread, run_thread, w, w->name);
	w->started = rc == 0;
	return rc;
}

static void finish(struct writer *w, int64_t until_ns)
{
	bool all;

	if (!w->started)
		return;
	pthread_mutex_lock(&w->lock);
	wait_idle(w, until_ns);
	all = w->stop = idle(w);
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
	if (!all)
		return; /* it ends with the process, wherever it waits */
	pthread_join(w->thread, NULL);
	w->started = w->stop = false;
}

void log_writer_finish(void)
{
	int64_t until_ns = clock_mono_ns() + LOG_WRITER_END_S * CLOCK_S_NS;

	for (int i = 0; i < LOG_WRITERS; i++)
		finish(&writers[i], until_ns);
}

bool log_writer_catch_up(enum log_writer which)
{
	struct writer *w = &writers[which];
	bool all = true;

	if (!w->started)
		return all;
	pthread_mutex_lock(&w->lock);
	wait_idle(w, clock_mono_ns() + LOG_WRITER_END_S * CLOCK_S_NS);
	all = idle(w);
	pthread_mutex_unlock(&w->lock);
	return all;
}

void log_writer_put(enum log_writer which, int fd, int severity, const char *line, size_t n)
{
	struct record r = {.fd = fd, .severity = severity, .n = n};
	struct writer *w = &writers[which];
	bool prompt;

	if (n >= LINE_BYTES_MAX)
		return;
	if (!w->started) {
		if (emit(&r, line) < 0)
			count_lost(w);
		return;
	}
	pthread_mutex_lock(&w->lock);
	prompt = which == LOG_WRITER_FILE && idle(w);
	if (w->untold > 0 && fits(w, 2 * sizeof(r) + LINE_BYTES_MAX + n))
		put_lost(w);
	if (w->untold == 0 && fits(w, sizeof(r) + n)) {
		copy_in(w, &r, sizeof(r));
		copy_in(w, line, n);
	} else {
		w->lost++;
		w->untold++;
		w->untold_fd = fd;
	}
	pthread_cond_signal(&w->wake);
	if (prompt)
		wait_idle(w, clock_mono_ns() + LOG_WRITER_FILE_MS * CLOCK_MS_NS);
	pthread_mutex_unlock(&w->lock);
}

bool log_writer_holds(enum log_writer which, int fd)
{
	struct writer *w = &writers[which];
	struct record r;
	bool holds;

	pthread_mutex_lock(&w->lock);
	holds = (w->busy && w->busy_fd == fd) || (w->untold > 0 && w->untold_fd == fd);
	for (uint64_t at = w->taken; !holds && at != w->put; at += sizeof(r) + r.n) {
		copy_of(w, at, &r, sizeof(r));
		holds = r.fd == fd;
	}
	pthread_mutex_unlock(&w->lock);
	return holds;
}

int64_t log_writer_lost(void)
{
	int64_t lost = 0;

	for (int i = 0; i < LOG_WRITERS; i++) {
		pthread_mutex_lock(&writers[i].lock);
		lost += writers[i].lost;
		pthread_mutex_unlock(&writers[i].lock);
	}
	return lost;
}
