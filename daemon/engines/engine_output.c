#include "daemon/engines/engine_output.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/host/clock.h"
#include "daemon/config/log.h"
#include "proto/host/memory.h"
#include "proto/size.h"
#include "proto/text.h"

enum {
	PIPE_BYTES = 256 * 1024, /* requested size: for a long report while gpt2d is busy */
	PIECE_BYTES = 16 * 1024,
	TURN_BYTES = 4 * PIECE_BYTES, /* per engine in one iteration of the loop */
	LINE_BYTES = 1900,            /* the log cuts at 2 KiB, with time and prefix */
	LINE_EXTRA = 64,              /* estimate of time, level and prefix */
	TAIL_BYTES = 16 * 1024,
	TAIL_LINES = 100,
	REPORT_S = 2,
	ALLOW_MS = 100,
};

struct engine_output {
	char what[32];
	pid_t pid;
	int fd, child_fd;
	struct event *readable;
	struct event *report; /* after dropped lines, when no more come */
	char line[LINE_BYTES];
	size_t n;                          /* of the unfinished line, */
	int64_t over;                      /* and bytes of it beyond these */
	int64_t allowed_bytes, allowed_ns; /* bytes that may be logged, at that time */
	bool full;                         /* nothing is logged until a second's worth is allowed */
	int64_t dropped_lines, dropped_bytes; /* and not reported yet */
	char tail[TAIL_BYTES]; /* the last lines that were dropped, each with its newline */
	size_t tail_n;
	bool tail_cut; /* the first line is incomplete */
};

static void log_line(const struct engine_output *o, const char *line, size_t n, int64_t over)
{
	char text[LINE_BYTES + 1], cut[64] = "";

	for (size_t i = 0; i < n; i++)
		text[i] = line[i] != '\0' ? line[i] : ' ';
	text[n] = '\0';
	text_printable(text, ' ');
	if (over > 0)
		snprintf(cut, sizeof(cut), " (cut: it has %" PRId64 " bytes)", (int64_t)n + over);
	log_write_engine(LOG_WARNING, "%s printed: %s%s", o->what, text, cut);
}

/* ---- limits ---- */

static void drop_line(struct engine_output *o)
{
	static const struct timeval pause = {REPORT_S, 0};
	const size_t rest = o->tail_n / 2;

	o->dropped_lines++;
	o->dropped_bytes += (int64_t)o->n + o->over + 1;
	if (o->tail_n + o->n + 1 > TAIL_BYTES) {
		memmove(o->tail, o->tail + o->tail_n - rest, rest);
		o->tail_n = rest;
		o->tail_cut = true;
	}
	memcpy(o->tail + o->tail_n, o->line, o->n);
	o->tail_n += o->n;
	o->tail[o->tail_n++] = '\n';
	if (!evtimer_pending(o->report, NULL))
		evtimer_add(o->report, &pause);
}

static void report_dropped(struct engine_output *o)
{
	char size[SIZE_BYTES];

	evtimer_del(o->report);
	if (o->dropped_lines == 0)
		return;
	log_write_engine(LOG_WARNING,
		"%s (pid %d): %" PRId64 " lines (%s) of what it prints left out", o->what,
		(int)o->pid, o->dropped_lines, size_text(o->dropped_bytes, size));
	o->dropped_lines = o->dropped_bytes = 0;
}

static void on_report(evutil_socket_t fd, short what, void *arg)
{
	report_dropped(arg);
}

static void forget_tail(struct engine_output *o)
{
	o->tail_n = 0;
	o->tail_cut = false;
}

/* The end of a report is more useful than its beginning. */
static void log_tail(struct engine_output *o)
{
	const char *at = o->tail, *end = o->tail + o->tail_n, *newline;
	int lines = 0;

	for (const char *c = at; c < end; c++)
		lines += *c == '\n';
	while ((newline = memchr(at, '\n', (size_t)(end - at))) != NULL) {
		if (lines-- <= TAIL_LINES && !(o->tail_cut && at == o->tail))
			log_line(o, at, (size_t)(newline - at), 0);
		at = newline + 1;
	}
	forget_tail(o);
}

/* ---- lines ---- */

static void allow_more(struct engine_output *o)
{
	const int64_t now_ns = clock_mono_ns(), past_ns = now_ns - o->allowed_ns;

	if (past_ns < ALLOW_MS * CLOCK_MS_NS)
		return;
	o->allowed_ns = now_ns;
	o->allowed_bytes += past_ns / CLOCK_MS_NS * ENGINE_OUTPUT_BYTES_PER_S / 1000;
	if (o->allowed_bytes > ENGINE_OUTPUT_BURST_BYTES)
		o->allowed_bytes = ENGINE_OUTPUT_BURST_BYTES;
}

static void end_line(struct engine_output *o)
{
	const int64_t cost = (int64_t)o->n + LINE_EXTRA;

	o->full = o->allowed_bytes < (o->full ? ENGINE_OUTPUT_BYTES_PER_S : cost);
	if (o->full) {
		drop_line(o);
	} else {
		o->allowed_bytes -= cost;
		forget_tail(o);
		report_dropped(o);
		log_line(o, o->line, o->n, o->over);
	}
	o->n = 0;
	o->over = 0;
}

static void take(struct engine_output *o, const char *bytes, size_t n)
{
	while (n > 0) {
		const char *end = memchr(bytes, '\n', n);
		size_t k = end != NULL ? (size_t)(end - bytes) : n;
		size_t room = LINE_BYTES - o->n, fits = k < room ? k : room;

		memcpy(o->line + o->n, bytes, fits);
		o->n += fits;
		o->over += (int64_t)(k - fits);
		if (end != NULL) {
			end_line(o);
			k++;
		}
		bytes += k;
		n -= k;
	}
}

/* Reads about max bytes at most. */
static void read_some(struct engine_output *o, size_t max)
{
	char piece[PIECE_BYTES];
	ssize_t n;

	allow_more(o);
	for (size_t all = 0; all < max; all += (size_t)n) {
		n = read(o->fd, piece, sizeof(piece));
		if (n == 0)
			event_del(o->readable); /* the engine closed both streams, and is alive */
		if (n <= 0)
			return;
		take(o, piece, (size_t)n);
	}
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	read_some(arg, TURN_BYTES);
}

/* ---- create and destroy ---- */

static int open_pipe(struct engine_output *o)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	o->fd = fds[0];
	o->child_fd = fds[1];
	fcntl(o->fd, F_SETPIPE_SZ, PIPE_BYTES); /* if a limit refuses it, 64 KiB are enough */
	return 0;
}

int engine_output_create(struct event_base *base, const char *what, struct engine_output **out)
{
	struct engine_output *o = memory_zeroed(1, sizeof(*o));
	int rc;

	o->fd = o->child_fd = -1;
	snprintf(o->what, sizeof(o->what), "%s", what);
	o->allowed_bytes = ENGINE_OUTPUT_BURST_BYTES;
	o->allowed_ns = clock_mono_ns();
	rc = open_pipe(o);
	if (rc == 0) {
		o->readable = event_new(base, o->fd, EV_READ | EV_PERSIST, on_readable, o);
		o->report = evtimer_new(base, on_report, o);
		event_add(o->readable, NULL);
	}
	if (rc < 0)
		engine_output_destroy(o);
	else
		*out = o;
	return rc;
}

static void close_all(struct engine_output *o)
{
	if (o->readable)
		event_free(o->readable);
	if (o->report)
		event_free(o->report);
	if (o->fd >= 0)
		close(o->fd);
	if (o->child_fd >= 0)
		close(o->child_fd);
	o->readable = o->report = NULL;
	o->fd = o->child_fd = -1;
}

void engine_output_destroy(struct engine_output *o)
{
	if (o == NULL)
		return;
	close_all(o);
	free(o);
}

int engine_output_fd(const struct engine_output *o)
{
	return o->child_fd;
}

void engine_output_started(struct engine_output *o, pid_t pid)
{
	o->pid = pid;
	close(o->child_fd);
	o->child_fd = -1;
}

void engine_output_drain(struct engine_output *o)
{
	int holds = o->fd >= 0 ? fcntl(o->fd, F_GETPIPE_SZ) : 0;

	if (holds > 0)
		read_some(o, (size_t)holds);
}

void engine_output_end(struct engine_output *o)
{
	if (o->fd < 0)
		return;
	engine_output_drain(o);
	if (o->n > 0)
		end_line(o);
	report_dropped(o);
	log_tail(o);
	close_all(o);
}
