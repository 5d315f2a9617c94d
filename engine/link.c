#include "engine/link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "proto/frame.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"
#include "proto/host/thread.h"

#define ALIVE_NS CLOCK_S_NS
#define FLUSH_NS (2 * CLOCK_S_NS)
#define TICK_NS  (100 * CLOCK_MS_NS)

enum { READ_BYTES = 1 << 16, BACKLOG_BYTES = 1 << 20 };

struct message {
	struct rpc_message rpc;
	struct message *next;
};

struct link {
	int fd, wake;
	pthread_t thread;
	bool started;
	enum link_reader reader;
	struct frame *frame; /* private to the reader */

	pthread_mutex_t lock;
	pthread_cond_t arrived;
	struct message *first, **last;
	char *out; /* bytes [out_from, out_to) are not written yet */
	size_t out_from, out_to, out_room;
	json_t *(*vitals)(void *arg); /* may be NULL */
	void *vitals_arg;
	int64_t tick_ns, suspended_ns; /* of the thread's latest run; initially the machine's */
	int64_t standstill_ns;         /* the longest since link_watch_begin */
	bool closed;                   /* the input has ended */
	bool closing;                  /* link_destroy: write the rest and end */
};

static void wake(struct link *l)
{
	uint64_t one = 1;

	if (write(l->wake, &one, sizeof(one)) < 0)
		return; /* the counter is full: the thread is already awake */
}

/* ---- input ---- */

static void close_input(struct link *l)
{
	pthread_mutex_lock(&l->lock);
	l->closed = true;
	pthread_cond_broadcast(&l->arrived);
	pthread_mutex_unlock(&l->lock);
}

/* Keeps a notification; false if the line is not one. */
static bool keep_line(struct link *l, const char *line, size_t n)
{
	struct message *m = memory_zeroed(1, sizeof(*m));
	char error[128];

	if (rpc_parse(line, n, &m->rpc, NULL, error, sizeof(error))) {
		free(m);
		return false;
	}
	if (m->rpc.kind != RPC_NOTIFICATION) {
		rpc_clear(&m->rpc);
		free(m);
		return false;
	}
	pthread_mutex_lock(&l->lock);
	*l->last = m;
	l->last = &m->next;
	pthread_cond_broadcast(&l->arrived);
	pthread_mutex_unlock(&l->lock);
	return true;
}

static bool keep_lines(struct link *l)
{
	enum frame_status status;
	char *line;
	size_t n;

	while ((status = frame_next(l->frame, &line, &n)) == FRAME_LINE)
		if (!keep_line(l, line, n))
			return false;
	return status == FRAME_MORE;
}

static void read_input(struct link *l)
{
	char buf[READ_BYTES];
	ssize_t n = read(l->fd, buf, sizeof(buf));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0)
		frame_feed(l->frame, buf, (size_t)n);
	if (n <= 0 || !keep_lines(l))
		close_input(l);
}

/* With the lock, which is not held during the wait. */
static void wait_for_message(struct link *l)
{
	struct pollfd input = {.fd = l->fd, .events = POLLIN};

	if (l->reader == LINK_THREAD_READS) {
		pthread_cond_wait(&l->arrived, &l->lock);
		return;
	}
	pthread_mutex_unlock(&l->lock);
	if (poll(&input, 1, -1) > 0)
		read_input(l);
	pthread_mutex_lock(&l->lock);
}

int link_receive(struct link *l, struct rpc_message *out)
{
	struct message *m;

	pthread_mutex_lock(&l->lock);
	while (!l->first && !l->closed)
		wait_for_message(l);
	m = l->first;
	if (m) {
		l->first = m->next;
		if (!l->first)
			l->last = &l->first;
	}
	pthread_mutex_unlock(&l->lock);
	if (!m)
		return -EPIPE;
	*out = m->rpc;
	free(m);
	return 0;
}

static bool cancels(const struct rpc_message *rpc, int64_t run, int64_t segment)
{
	return strcmp(rpc->method, SEGMENT_CANCEL) == 0 &&
		json_integer_value(json_object_get(rpc->params, "run")) == run &&
		json_integer_value(json_object_get(rpc->params, "segment")) == segment;
}

static bool asks_to_stop(const struct rpc_message *rpc, int64_t run, int64_t segment)
{
	return strcmp(rpc->method, ENGINE_EXIT) == 0 || cancels(rpc, run, segment);
}

bool link_stop_asked(struct link *l, int64_t run, int64_t segment)
{
	bool asked;

	pthread_mutex_lock(&l->lock);
	asked = l->closed;
	for (const struct message *m = l->first; m && !asked; m = m->next)
		asked = asks_to_stop(&m->rpc, run, segment);
	pthread_mutex_unlock(&l->lock);
	return asked;
}

/* With the lock held. */
static bool find_stop(const struct link *l, int64_t run, int64_t segment, struct link_stop *out)
{
	const char *state, *reason;

	for (const struct message *m = l->first; m; m = m->next) {
		state = json_string_value(json_object_get(m->rpc.params, "state"));
		reason = json_string_value(json_object_get(m->rpc.params, "reason"));
		if (!cancels(&m->rpc, run, segment) || state == NULL || reason == NULL)
			continue;
		snprintf(out->state, sizeof(out->state), "%s", state);
		snprintf(out->reason, sizeof(out->reason), "%s", reason);
		return true;
	}
	return false;
}

bool link_stop_why(struct link *l, int64_t run, int64_t segment, struct link_stop *out)
{
	const int64_t end_ns = clock_mono_ns() + LINK_STOP_NS;
	const struct timespec end = {end_ns / CLOCK_S_NS, end_ns % CLOCK_S_NS};
	bool found;

	pthread_mutex_lock(&l->lock);
	while (!(found = find_stop(l, run, segment, out)) && !l->closed)
		if (pthread_cond_clockwait(&l->arrived, &l->lock, CLOCK_MONOTONIC, &end) != 0)
			break;
	pthread_mutex_unlock(&l->lock);
	return found;
}

/* ---- output ---- */

/* With the lock held. */
static void make_room(struct link *l, size_t n)
{
	if (l->out_from) {
		memmove(l->out, l->out + l->out_from, l->out_to - l->out_from);
		l->out_to -= l->out_from;
		l->out_from = 0;
	}
	if (l->out_to + n <= l->out_room)
		return;
	l->out_room = (l->out_to + n) * 2;
	l->out = memory_resized(l->out, l->out_room);
}

/* With the lock held. The thread sends what the socket does not take. */
static void write_output(struct link *l)
{
	ssize_t n;

	if (l->out_to == l->out_from)
		return;
	n = write(l->fd, l->out + l->out_from, l->out_to - l->out_from);
	if (n > 0) {
		l->out_from += (size_t)n;
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) { /* the reader has gone */
		l->out_from = l->out_to = 0;
		l->closed = true;
		pthread_cond_broadcast(&l->arrived);
	}
}

static void send_line(struct link *l, const char *method, json_t *params, bool lossy)
{
	bool left;
	size_t n;
	char *line = rpc_notification(method, params, &n);

	pthread_mutex_lock(&l->lock);
	if (lossy && l->out_to - l->out_from > BACKLOG_BYTES) {
		/* a later message replaces it */
	} else if (line) {
		make_room(l, n);
		memcpy(l->out + l->out_to, line, n);
		l->out_to += n;
	} else {
		l->closed = true; /* it is not JSON, and gpt2d would wait for it for ever */
		pthread_cond_broadcast(&l->arrived);
	}
	write_output(l);
	left = l->closed || l->out_to > l->out_from;
	pthread_mutex_unlock(&l->lock);
	free(line);
	if (left)
		wake(l);
}

void link_send(struct link *l, const char *method, json_t *params)
{
	send_line(l, method, params, false);
}

void link_send_lossy(struct link *l, const char *method, json_t *params)
{
	send_line(l, method, params, true);
}

void link_log(struct link *l, const char *level, const char *format, ...)
{
	char message[2048];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	link_send(l, ENGINE_LOG, json_pack("{s:s, s:s}", "level", level, "message", message));
}

void link_set_vitals(struct link *l, json_t *(*vitals)(void *arg), void *arg)
{
	pthread_mutex_lock(&l->lock);
	l->vitals = vitals;
	l->vitals_arg = arg;
	pthread_mutex_unlock(&l->lock);
}

static void say_alive(struct link *l)
{
	json_t *params;

	pthread_mutex_lock(&l->lock);
	params = l->vitals ? l->vitals(l->vitals_arg) : json_object();
	pthread_mutex_unlock(&l->lock);
	link_send_lossy(l, ENGINE_ALIVE, params);
}

/* ---- standstills ---- */

/* CLOCK_BOOTTIME counts while the machine is suspended, CLOCK_MONOTONIC does not. */
static int64_t suspended_ns(void)
{
	struct timespec boot;

	clock_gettime(CLOCK_BOOTTIME, &boot);
	return boot.tv_sec * CLOCK_S_NS + boot.tv_nsec - clock_mono_ns();
}

/* With the lock held. */
static void tick(struct link *l)
{
	const int64_t now = clock_mono_ns(), suspended = suspended_ns();
	const int64_t late = now - l->tick_ns - TICK_NS, slept = suspended - l->suspended_ns;
	const int64_t longer = late > slept ? late : slept;

	if (longer > LINK_STANDSTILL_NS && longer > l->standstill_ns)
		l->standstill_ns = longer;
	l->tick_ns = now;
	l->suspended_ns = suspended;
}

void link_watch_begin(struct link *l)
{
	pthread_mutex_lock(&l->lock);
	tick(l);
	l->standstill_ns = 0;
	pthread_mutex_unlock(&l->lock);
}

int64_t link_watch_end(struct link *l)
{
	int64_t longest;

	pthread_mutex_lock(&l->lock);
	tick(l);
	longest = l->standstill_ns;
	pthread_mutex_unlock(&l->lock);
	return longest;
}

/* ---- the thread ---- */

/* The thread's work at one moment: the lock is not held while it waits. */
struct duty {
	bool closed, closing, output;
};

static struct duty see_duty(struct link *l)
{
	struct duty d;

	pthread_mutex_lock(&l->lock);
	tick(l);
	d = (struct duty){l->closed, l->closing, l->out_to > l->out_from};
	pthread_mutex_unlock(&l->lock);
	return d;
}

static void wait_for_events(struct link *l, const struct duty *d, int64_t until_ns)
{
	const bool reads = !d->closed && l->reader == LINK_THREAD_READS;
	struct pollfd fds[2] = {
		{.fd = l->wake, .events = POLLIN},
		{.fd = l->fd, .events = (short)((reads ? POLLIN : 0) | (d->output ? POLLOUT : 0))},
	};
	int64_t left_ns = until_ns - clock_mono_ns();
	uint64_t count;

	if (!reads && !d->output)
		fds[1].fd = -1;
	poll(fds, 2, left_ns <= 0 ? 0 : (int)(left_ns / CLOCK_MS_NS + 1));
	if ((fds[0].revents & POLLIN) && read(l->wake, &count, sizeof(count)) < 0)
		return;
	if (reads && (fds[1].revents & (POLLIN | POLLHUP | POLLERR)))
		read_input(l);
	if (d->output) {
		pthread_mutex_lock(&l->lock);
		write_output(l);
		pthread_mutex_unlock(&l->lock);
	}
}

static void *run(void *arg)
{
	struct link *l = arg;
	int64_t alive_ns = clock_mono_ns() + ALIVE_NS, end_ns = INT64_MAX, until_ns;

	for (;;) {
		struct duty d = see_duty(l);

		if (d.closing && (!d.output || d.closed))
			return NULL;
		if ((d.closed || d.closing) && end_ns == INT64_MAX)
			end_ns = clock_mono_ns() + (d.closing ? FLUSH_NS : LINK_ORPHAN_NS);
		if (clock_mono_ns() >= end_ns) {
			if (d.closing)
				return NULL;
			_exit(ENGINE_EXIT_ORPHAN);
		}
		if (clock_mono_ns() >= alive_ns) {
			say_alive(l);
			alive_ns = clock_mono_ns() + ALIVE_NS;
		}
		until_ns = clock_mono_ns() + TICK_NS;
		if (alive_ns < until_ns)
			until_ns = alive_ns;
		wait_for_events(l, &d, end_ns < until_ns ? end_ns : until_ns);
	}
}

static int start_thread(struct link *l)
{
	int rc = thread_start(&l->thread, run, l, "link");

	l->started = rc == 0;
	return rc;
}

int link_create(int fd, enum link_reader reader, struct link **out)
{
	int rc, flags = fcntl(fd, F_GETFL);
	struct link *l;

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	l = memory_zeroed(1, sizeof(*l));
	l->fd = fd;
	l->reader = reader;
	l->last = &l->first;
	l->tick_ns = clock_mono_ns();
	l->suspended_ns = suspended_ns();
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->arrived, NULL);
	l->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	l->frame = frame_create(PROTOCOL_LINE_MAX);
	rc = l->wake < 0 ? -errno : start_thread(l);
	if (rc) {
		l->fd = -1;
		link_destroy(l);
		return rc;
	}
	*out = l;
	return 0;
}

void link_destroy(struct link *l)
{
	struct message *m;

	if (!l)
		return;
	if (l->started) {
		pthread_mutex_lock(&l->lock);
		l->closing = true;
		pthread_mutex_unlock(&l->lock);
		wake(l);
		pthread_join(l->thread, NULL);
	}
	while ((m = l->first)) {
		l->first = m->next;
		rpc_clear(&m->rpc);
		free(m);
	}
	frame_destroy(l->frame);
	pthread_cond_destroy(&l->arrived);
	pthread_mutex_destroy(&l->lock);
	if (l->fd >= 0)
		close(l->fd);
	if (l->wake >= 0)
		close(l->wake);
	free(l->out);
	free(l);
}
