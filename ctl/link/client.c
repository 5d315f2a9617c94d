#include "ctl/link/client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "ctl/link/endpoint.h"
#include "ctl/link/exits.h"
#include "ctl/link/fate.h"
#include "ctl/print/format.h"
#include "ctl/link/greeting.h"
#include "ctl/link/interrupt.h"
#include "ctl/link/pulse.h"
#include "proto/host/clock.h"
#include "proto/frame.h"
#include "proto/rpc.h"

struct event {
	struct event *next;
	char name[64];
	json_t *params;
};

/* What is waited for. */
enum wait {
	WAIT_REPLY,   /* soon */
	WAIT_EVENT,   /* for ever, perhaps */
	WAIT_OUTCOME, /* the same, a reply; it holds up all that is asked on this connection */
};

struct client {
	int fd;
	struct endpoint endpoint;
	FILE *notice_to;   /* NULL: nobody is told that gpt2d is waited for */
	int64_t notice_ns; /* when, -1: not, or told already */
	const char *verb;  /* that the user gave, or NULL */
	const char *asked; /* what is waited for: that verb, or the method */
	const char *expected; /* what is known to take long of it, or NULL */
	enum wait wait;
	struct pulse pulse;
	json_int_t last_id, pulse_id; /* the latter: of the last request that is but a pulse */
	int64_t until_ns; /* no wait for a reply is longer; -1: as long as each may take */
	bool lost;        /* the connection ended or broke */
	bool unsent;      /* before all of a request was sent */
	bool changed;     /* a request that changes something was answered */
	struct frame *frame;
	json_t *hello;
	struct event *first, **end; /* events not taken yet */
};

/* In so many seconds, but not after until_ns (-1: never). */
static int64_t deadline_in(int seconds, int64_t until_ns)
{
	const int64_t ns = clock_mono_ns() + seconds * CLOCK_S_NS;

	return until_ns >= 0 && until_ns < ns ? until_ns : ns;
}

/* ---- connecting ---- */

static double seconds_since(int64_t then_ns)
{
	return (double)(clock_mono_ns() - then_ns) / 1e9;
}

/* Once, when it is time to. */
static void notice(struct client *c, int64_t deadline_ns)
{
	if (c->notice_ns < 0 || clock_mono_ns() < c->notice_ns)
		return;
	c->notice_ns = -1;
	if (c->notice_to && c->hello && c->expected && !endpoint_is_stopped(&c->endpoint))
		fprintf(c->notice_to, "gpt2ctl: %s\n", c->expected);
	else if (c->notice_to)
		endpoint_notice(&c->endpoint, c->notice_to, c->hello ? c->asked : NULL,
			-seconds_since(deadline_ns));
}

/* Whether it is the caller's own limit that has passed. */
static bool is_over(const struct client *c)
{
	return c->until_ns >= 0 && clock_mono_ns() >= c->until_ns;
}

/* A full backlog shows as EAGAIN: try again until the deadline. */
static int connect_until(struct client *c, int64_t deadline_ns, struct ctl_error *e)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const int64_t begun_ns = clock_mono_ns();

	memcpy(address.sun_path, c->endpoint.path, sizeof(address.sun_path));
	for (;;) {
		if (connect(c->fd, (struct sockaddr *)&address, sizeof(address)) == 0)
			return 0;
		if (errno != EAGAIN && errno != EINTR)
			return endpoint_absent(&c->endpoint, errno, e);
		if (interrupt_seen())
			return ctl_error_set(e, CTL_CANCELLED, "interrupted");
		if (clock_mono_ns() > deadline_ns)
			return endpoint_silent(
				&c->endpoint, seconds_since(begun_ns), is_over(c), e);
		notice(c, deadline_ns);
		interrupt_poll(NULL, 0, 20 * CLOCK_MS_NS);
	}
}

/* ---- bytes ---- */

/* 0, -ETIMEDOUT, -EINTR, or another negative errno. deadline_ns -1: for ever. */
static int poll_until(struct pollfd *fds, size_t n_fds, int64_t deadline_ns)
{
	int64_t left = -1;
	int n;

	if (deadline_ns >= 0) {
		left = deadline_ns - clock_mono_ns();
		if (left < 0)
			left = 0;
	}
	n = interrupt_poll(fds, n_fds, left);
	if (n < 0)
		return -errno;
	return n == 0 ? -ETIMEDOUT : 0;
}

static int wait_for(struct client *c, short events, int64_t deadline_ns)
{
	struct pollfd p = {c->fd, events, 0};

	return poll_until(&p, 1, deadline_ns);
}

/* The same, and tell when it takes long. */
static int wait_patiently(struct client *c, short events, int64_t deadline_ns)
{
	if (c->notice_ns >= 0 && c->notice_ns < deadline_ns) {
		const int error = wait_for(c, events, c->notice_ns);

		if (error != -ETIMEDOUT)
			return error;
		notice(c, deadline_ns);
	}
	return wait_for(c, events, deadline_ns);
}

static int send_all(struct client *c, const char *bytes, size_t n, int64_t deadline_ns)
{
	while (n > 0) {
		const ssize_t k = send(c->fd, bytes, n, MSG_NOSIGNAL);
		int error;

		if (k >= 0) {
			bytes += k;
			n -= (size_t)k;
			continue;
		}
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return -errno;
		error = wait_for(c, POLLOUT, deadline_ns);
		if (error && error != -EINTR)
			return error;
	}
	return 0;
}

/* On this connection, if nothing that was asked on it holds that up. */
static void ask_pulse(struct client *c)
{
	size_t n;
	char *line;

	if (c->wait == WAIT_OUTCOME) {
		pulse_ask_beside(&c->pulse);
		return;
	}
	line = rpc_request(++c->last_id, METHOD_VERSION, json_object(), &n);
	c->pulse_id = c->last_id;
	c->pulse.asked = line && send_all(c, line, n, 0) == 0;
	free(line);
}

/* What may rightly take for ever: see meanwhile whether gpt2d lives. */
static int wait_watchfully(struct client *c, int64_t deadline_ns)
{
	for (;;) {
		const int64_t see_ns = pulse_see(&c->pulse);
		const bool last = deadline_ns >= 0 && (see_ns < 0 || deadline_ns <= see_ns);
		struct pollfd fds[2] = {{.fd = c->fd, .events = POLLIN}};
		int error;

		if (c->pulse.wanted && !c->pulse.asked)
			ask_pulse(c);
		fds[1] = (struct pollfd){.fd = c->pulse.fd, .events = POLLIN};
		error = poll_until(fds, 2, last ? deadline_ns : see_ns);
		if (error && (last || error != -ETIMEDOUT))
			return error;
		if (fds[0].revents)
			return 0;
		if (fds[1].revents)
			pulse_read_beside(&c->pulse);
	}
}

/* One read into the frame: 0, -EAGAIN, -ECONNRESET at the end of the stream, or another negative
 * errno. */
static int receive(struct client *c)
{
	char bytes[65536];
	const ssize_t n = recv(c->fd, bytes, sizeof(bytes), 0);

	if (n < 0)
		return -errno;
	if (n == 0)
		return -ECONNRESET;
	pulse_heard(&c->pulse);
	return frame_feed(c->frame, bytes, (size_t)n);
}

static int lost(struct client *c, struct ctl_error *e, int error)
{
	c->lost = true;
	if (error == -ECONNRESET || error == -EPIPE)
		return ctl_error_set(e, CTL_TRANSPORT, "gpt2d closed the connection");
	return ctl_error_set(e, CTL_TRANSPORT, "connection to gpt2d: %s", strerror(-error));
}

/*
 * The next message: 0; -ETIMEDOUT, -EINTR when a signal came; another negative errno, with e, when
 * the connection is of no more use.
 */
static int next_message(
	struct client *c, int64_t deadline_ns, struct rpc_message *m, struct ctl_error *e)
{
	char *line, why[256];
	size_t n;
	int error;

	for (;;) {
		const enum frame_status status = frame_next(c->frame, &line, &n);

		if (status == FRAME_LINE) {
			if (rpc_parse(line, n, m, NULL, why, sizeof(why)) == 0)
				return 0;
			ctl_error_set(e, CTL_TRANSPORT,
				"gpt2d sent what is no JSON-RPC message: %s", why);
			return -EPROTO;
		}
		if (status != FRAME_MORE) {
			const bool too_long = status == FRAME_TOO_LONG;

			ctl_error_set(e, CTL_TRANSPORT, "gpt2d sent %s",
				too_long ? "a line longer than any message" : "a NUL byte");
			return -EPROTO;
		}
		if (interrupt_seen())
			return -EINTR;
		error = receive(c);
		if (error == -EAGAIN || error == -EINTR) {
			error = c->wait == WAIT_REPLY ? wait_patiently(c, POLLIN, deadline_ns)
						      : wait_watchfully(c, deadline_ns);
			if (error == -EINTR)
				continue;
		}
		if (error && error != -ETIMEDOUT)
			lost(c, e, error);
		if (error)
			return error;
	}
}

/* ---- replies ---- */

static void error_of(const struct rpc_message *m, struct ctl_error *e)
{
	char clean[1300];

	term_clean(m->error, clean, sizeof(clean));
	ctl_error_set(e, exits_of(m->code), "%s", clean);
	e->code = m->code;
	e->data = json_incref(m->data);
}

static void keep_event(struct client *c, const struct rpc_message *m)
{
	struct event *event = calloc(1, sizeof(*event));

	if (!event)
		return; /* the gap in seq is seen */
	snprintf(event->name, sizeof(event->name), "%s", m->method);
	event->params = json_incref(m->params);
	*c->end = event;
	c->end = &event->next;
}

/* No answer came: an exit code with e. */
static int unanswered(struct client *c, int64_t begun_ns, int error, struct ctl_error *e)
{
	if (error == -EINTR)
		return ctl_error_set(e, CTL_CANCELLED, "interrupted");
	if (error != -ETIMEDOUT)
		return e->exit;
	if (!c->hello || endpoint_is_stopped(&c->endpoint))
		return endpoint_silent(
			&c->endpoint, seconds_since(begun_ns), is_over(c), e);
	return ctl_error_set(e, CTL_TIMEOUT,
		"%sgpt2d (process %ld) has not answered for %.3g s\n"
		"whether it answers at all: gpt2ctl status",
		is_over(c) ? endpoint_time_over : "", (long)c->endpoint.pid,
		seconds_since(begun_ns));
}

/* The late answer to what was asked as a sign of life only. */
static bool is_pulse(const struct client *c, const struct rpc_message *m)
{
	return json_is_integer(m->id) && json_integer_value(m->id) <= c->pulse_id;
}

static int await_reply(
	struct client *c, json_int_t id, int64_t deadline_ns, json_t **result, struct ctl_error *e)
{
	const int64_t begun_ns = clock_mono_ns();
	struct rpc_message m;
	int error, exit;

	for (;;) {
		error = next_message(c, deadline_ns, &m, e);
		if (error)
			return unanswered(c, begun_ns, error, e);
		if (m.kind == RPC_NOTIFICATION) {
			keep_event(c, &m);
		} else if (m.kind != RPC_REQUEST && !is_pulse(c, &m)) {
			break;
		}
		rpc_clear(&m);
	}
	/* an error without an id tells of the connection as a whole */
	if (m.kind == RPC_ERROR && (json_is_null(m.id) || json_integer_value(m.id) == id)) {
		error_of(&m, e);
		exit = e->exit;
	} else if (m.kind == RPC_RESULT && json_integer_value(m.id) == id) {
		*result = json_incref(m.result);
		exit = 0;
	} else {
		exit = ctl_error_set(
			e, CTL_TRANSPORT, "gpt2d answered another request than was asked");
	}
	rpc_clear(&m);
	return exit;
}

/* A request and its reply, as c->wait says; deadline_ns -1: for ever. Takes params. */
static int ask(struct client *c, const char *method, json_t *params, int64_t deadline_ns,
	json_t **result, struct ctl_error *e)
{
	const int64_t begun_ns = clock_mono_ns();
	char why[sizeof(e->message)], *line;
	struct fate fate;
	size_t n;
	int error, exit;

	fate_of(method, params, &fate);
	line = rpc_request(++c->last_id, method, params, &n);
	if (!line)
		return ctl_error_set(e, CTL_TRANSPORT, "out of memory");
	c->asked = c->verb ? c->verb : method;
	error = send_all(c, line, n, deadline_ns);
	c->unsent = error < 0;
	free(line);
	/* a daemon that refuses a client says why before it closes: read on */
	if (error == -ETIMEDOUT)
		exit = unanswered(c, begun_ns, error, e);
	else if (error && error != -EPIPE && error != -ECONNRESET)
		return lost(c, e, error);
	else
		exit = await_reply(c, c->last_id, deadline_ns, result, e);
	c->notice_ns = -1;
	c->changed |= exit == 0 && fate_changes(&fate);
	if (exit && c->lost && c->hello)
		exit = c->unsent ? fate_untaken(&fate, c->changed, e) : fate_unknown(&fate, e);
	else if (exit == CTL_TIMEOUT && c->hello)
		exit = fate_late(&fate, c->unsent, c->changed, e);
	if (exits_leave_open(exit) && !e->data && c->hello) {
		memcpy(why, e->message, sizeof(why));
		ctl_error_set(e, exit, "%s: %.1300s", c->asked, why);
	}
	return exit;
}

int client_request(struct client *c, const char *method, json_t *params, int deadline_s,
	json_t **result, struct ctl_error *e)
{
	c->wait = WAIT_REPLY;
	if (c->hello)
		c->notice_ns = deadline_in(CLIENT_STILL_S, -1);
	return ask(c, method, params, deadline_in(deadline_s, c->until_ns), result, e);
}

int client_await(struct client *c, const char *method, json_t *params, json_t **result,
	struct ctl_error *e)
{
	c->wait = WAIT_OUTCOME;
	return ask(c, method, params, c->until_ns, result, e);
}

/* ---- hello ---- */

static int say_hello(struct client *c, struct ctl_error *e)
{
	const int exit = client_request(
		c, METHOD_HELLO, greeting_params(), CLIENT_HELLO_S, &c->hello, e);

	if (exit == CTL_VERSION_MISMATCH)
		return greeting_refused(e);
	return exit ? exit : greeting_check(c->hello, e);
}

/* With a socket of its own. */
static int dial(struct client *c, struct ctl_error *e)
{
	int exit;

	frame_destroy(c->frame);
	if (c->fd >= 0)
		close(c->fd);
	c->lost = false;
	c->frame = frame_create(PROTOCOL_LINE_MAX);
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (!c->frame || c->fd < 0)
		return ctl_error_set(
			e, CTL_TRANSPORT, "socket: %s", strerror(c->frame ? errno : ENOMEM));
	exit = connect_until(c, deadline_in(CLIENT_CONNECT_S, c->until_ns), e);
	if (exit)
		return exit;
	endpoint_ask(&c->endpoint, c->fd);
	return say_hello(c, e);
}

int client_open(const struct ctl *ctl, struct client **out, struct ctl_error *e)
{
	return client_open_until(ctl, -1, out, e);
}

int client_open_until(
	const struct ctl *ctl, int64_t until_ns, struct client **out, struct ctl_error *e)
{
	struct client *c = calloc(1, sizeof(*c));
	int exit;

	if (!c)
		return ctl_error_set(e, CTL_TRANSPORT, "out of memory");
	c->fd = -1;
	c->notice_to = ctl->drawn ? NULL : ctl->err.file;
	c->notice_ns = deadline_in(CLIENT_NOTICE_S, -1);
	c->until_ns = until_ns;
	c->verb = ctl->verb;
	c->end = &c->first;
	pulse_begin(&c->pulse, &c->endpoint, c->notice_to);
	exit = endpoint_find(ctl, &c->endpoint, e);
	if (exit)
		goto fail;
	exit = dial(c, e);
	/* one that ends lets go of who waits for its hello; another may have come */
	if (exit == CTL_TRANSPORT && c->lost) {
		ctl_error_clear(e);
		exit = dial(c, e);
	}
	if (exit)
		goto fail;
	*out = c;
	return 0;
fail:
	client_close(c);
	return exit;
}

void client_close(struct client *c)
{
	if (!c)
		return;
	if (c->fd >= 0)
		close(c->fd);
	pulse_end(&c->pulse);
	frame_destroy(c->frame);
	json_decref(c->hello);
	while (c->first) {
		struct event *event = c->first;

		c->first = event->next;
		json_decref(event->params);
		free(event);
	}
	free(c);
}

void client_expect(struct client *c, const char *what)
{
	c->expected = what;
}

void client_before_notice(struct client *c, void (*before)(void *arg), void *arg)
{
	c->pulse.before = before;
	c->pulse.arg = arg;
}

bool client_is_silent(const struct client *c)
{
	return c->pulse.told;
}

int client_fd(const struct client *c)
{
	return c->fd;
}

bool client_lost(const struct client *c)
{
	return c->lost;
}

bool client_untaken(const struct client *c)
{
	return c->unsent;
}

const json_t *client_hello(const struct client *c)
{
	return c->hello;
}

bool client_note_start(const struct client *c, char start[CLIENT_START_BYTES])
{
	char at[48], here[CLIENT_START_BYTES];

	/* in a container the process may have the same number each time */
	snprintf(here, sizeof(here), "%lld %s", (long long)format_int(c->hello, "pid", 0),
		format_string(c->hello, "started_at", "", at, sizeof(at)));
	if (strcmp(here, start) == 0)
		return false;
	memcpy(start, here, sizeof(here));
	return true;
}

int client_ask(const struct ctl *ctl, const char *method, json_t *params, json_t **result,
	struct ctl_error *e)
{
	struct client *c = NULL;
	int exit = client_open(ctl, &c, e);

	if (exit) {
		json_decref(params);
		return exit;
	}
	exit = client_request(c, method, params, CLIENT_REPLY_S, result, e);
	client_close(c);
	return exit;
}

/* ---- events ---- */

static bool take_kept(struct client *c, char event[64], json_t **params)
{
	struct event *first = c->first;

	if (!first)
		return false;
	memcpy(event, first->name, 64);
	*params = first->params;
	c->first = first->next;
	if (!c->first)
		c->end = &c->first;
	free(first);
	return true;
}

enum client_news client_next(
	struct client *c, int64_t deadline_ns, char event[64], json_t **params, struct ctl_error *e)
{
	struct rpc_message m;
	int error;

	if (interrupt_seen())
		return CLIENT_INTERRUPTED;
	if (take_kept(c, event, params))
		return CLIENT_EVENT;
	c->wait = WAIT_EVENT;
	for (;;) {
		error = next_message(c, deadline_ns, &m, e);
		if (error == -EINTR)
			return CLIENT_INTERRUPTED;
		if (error == -ETIMEDOUT)
			return CLIENT_QUIET;
		if (error)
			return CLIENT_LOST;
		if (m.kind == RPC_NOTIFICATION)
			break;
		rpc_clear(&m); /* no request is open: nothing to answer */
	}
	snprintf(event, 64, "%s", m.method);
	*params = json_incref(m.params);
	rpc_clear(&m);
	return CLIENT_EVENT;
}
