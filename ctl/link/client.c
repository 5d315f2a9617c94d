#include "ctl/link/client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "ctl/link/endpoint.h"
#include "ctl/link/interrupt.h"
#include "proto/frame.h"
#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/rpc.h"
#include "proto/version.h"

enum { NOTICE_S = 5, QUIET_S = 4, SILENT_S = 12 };

static const int64_t NEVER_NS = INT64_MAX;

struct event {
	struct event *next;
	char name[64];
	json_t *params;
};

struct client {
	struct client_options options;
	struct endpoint endpoint;
	int fd;
	struct frame *frame;
	json_t *hello;
	json_int_t last_id;
	const char *asked;    /* the verb or method of the current wait */
	const char *expected; /* why its reply may take long, or NULL */
	void (*before_notice)(void *of);
	void *of;
	int64_t asked_ns; /* start of the wait */
	/* when to report that gpt2d is silent; NEVER_NS: never, or already reported */
	int64_t notice_ns;
	bool awaits_event; /* first send a ping */
	bool pinged;       /* a ping was sent, and nothing was received since */
	bool patient;      /* no deadline: also report when gpt2d answers again */
	bool silent;       /* the silence was reported */
	bool lost, unsent;
	bool reopened, restarted;   /* by client_reopen */
	bool progressed;            /* an event came, or gpt2d was restarted, since then */
	struct event *first, **end; /* kept for client_next */
};

/* ---- time ---- */

static double seconds_since(int64_t then_ns)
{
	return (double)(clock_mono_ns() - then_ns) / 1e9;
}

/* In this many seconds, at the latest when the user's time limit passes. */
static int64_t deadline_in(const struct client *c, int seconds)
{
	const int64_t until_ns = c->options.until_ns ? c->options.until_ns : NEVER_NS;
	const int64_t ns = seconds < 0 ? NEVER_NS : clock_mono_ns() + seconds * CLOCK_S_NS;

	return until_ns < ns ? until_ns : ns;
}

static bool limit_passed(const struct client *c)
{
	return c->options.until_ns && clock_mono_ns() >= c->options.until_ns;
}

/* Starts to measure gpt2d's silence. */
static void expect_answer(struct client *c, const char *asked, int notice_s)
{
	c->asked = asked;
	c->asked_ns = clock_mono_ns();
	c->notice_ns = notice_s < 0 ? NEVER_NS : c->asked_ns + notice_s * CLOCK_S_NS;
}

static void print_silent(struct client *c)
{
	FILE *to = c->options.notices;

	c->notice_ns = NEVER_NS;
	c->silent = true;
	if (!to)
		return;
	if (c->before_notice)
		c->before_notice(c->of);
	if (c->expected && !endpoint_is_stopped(&c->endpoint)) {
		fprintf(to, "gpt2ctl: %s\n", c->expected);
		return;
	}
	endpoint_print_waiting(
		&c->endpoint, to, c->hello ? c->asked : NULL, seconds_since(c->asked_ns));
}

/* Data came from gpt2d. */
static void note_answer(struct client *c)
{
	if (c->silent && c->patient && c->options.notices) {
		if (c->before_notice)
			c->before_notice(c->of);
		fputs("gpt2ctl: gpt2d answers again\n", c->options.notices);
	}
	c->silent = c->pinged = false;
	if (c->awaits_event)
		expect_answer(c, NULL, QUIET_S);
}

/* ---- bytes ---- */

static int send_all(struct client *c, const char *bytes, size_t n, int64_t deadline_ns);

/* After QUIET_S without an event. */
static void ping(struct client *c)
{
	size_t n;
	char *line = rpc_request(++c->last_id, METHOD_VERSION, json_object(), &n);

	c->pinged = true;
	expect_answer(c, NULL, SILENT_S);
	send_all(c, line, n, 0);
	free(line);
}

/* Until the socket is ready: 0, -ETIMEDOUT, -EINTR after a signal, or another negative errno. */
static int wait_ready(struct client *c, short events, int64_t deadline_ns)
{
	for (;;) {
		const int64_t next_ns = c->notice_ns < deadline_ns ? c->notice_ns : deadline_ns;
		const int64_t left_ns = next_ns - clock_mono_ns();
		struct pollfd p = {c->fd, events, 0};
		const int n = interrupt_poll(&p, 1,
			next_ns == NEVER_NS   ? -1
				: left_ns > 0 ? left_ns
					      : 0);

		if (n != 0)
			return n < 0 ? -errno : 0;
		if (clock_mono_ns() >= deadline_ns)
			return -ETIMEDOUT;
		if (clock_mono_ns() < c->notice_ns)
			continue;
		if (c->awaits_event && !c->pinged)
			ping(c);
		else
			print_silent(c);
	}
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
		if (errno != EAGAIN || deadline_ns == 0)
			return -errno;
		error = wait_ready(c, POLLOUT, deadline_ns);
		if (error)
			return error;
	}
	return 0;
}

/* One read into the frame: 0, -ECONNRESET at the end of the stream, or another negative errno. */
static int receive(struct client *c)
{
	char bytes[65536];
	const ssize_t n = recv(c->fd, bytes, sizeof(bytes), 0);

	if (n < 0)
		return -errno;
	if (n == 0)
		return -ECONNRESET;
	note_answer(c);
	frame_feed(c->frame, bytes, (size_t)n);
	return 0;
}

static int connection_lost(struct client *c, struct ctl_error *e, int error)
{
	c->lost = true;
	if (error == -ECONNRESET || error == -EPIPE)
		return ctl_error_set(e, CTL_TRANSPORT, "gpt2d closed the connection");
	return ctl_error_set(e, CTL_TRANSPORT, "connection to gpt2d: %s", strerror(-error));
}

/*
 * The next message: 0; -ETIMEDOUT; -EINTR after a signal; another negative errno, with e, if the
 * connection is unusable.
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
				"gpt2d sent an invalid JSON-RPC message: %s", why);
			return -EPROTO;
		}
		if (status != FRAME_MORE) {
			ctl_error_set(e, CTL_TRANSPORT, "gpt2d sent %s",
				status == FRAME_TOO_LONG ? "a line longer than any message"
							 : "a NUL byte");
			return -EPROTO;
		}
		if (interrupt_seen())
			return -EINTR;
		error = receive(c);
		if (error == -EAGAIN || error == -EINTR) {
			error = wait_ready(c, POLLIN, deadline_ns);
			if (error == -EINTR)
				continue;
		}
		if (error && error != -ETIMEDOUT)
			connection_lost(c, e, error);
		if (error)
			return error;
	}
}

static void keep_event(struct client *c, const struct rpc_message *m)
{
	struct event *event = memory_zeroed(1, sizeof(*event));

	snprintf(event->name, sizeof(event->name), "%s", m->method);
	event->params = json_incref(m->params);
	c->progressed = true;
	*c->end = event;
	c->end = &event->next;
}

static bool take_event(struct client *c, char event[64], json_t **params)
{
	struct event *first = c->first;

	if (!first)
		return false;
	memcpy(event, first->name, sizeof(first->name));
	*params = first->params;
	c->first = first->next;
	if (!c->first)
		c->end = &c->first;
	free(first);
	return true;
}

/* ---- effects of a request ---- */

/* Requests that change something, and the verb that shows whether they did. */
static const struct change {
	const char *method, *show;
	bool of_run; /* show takes the run's ID */
} changes[] = {
	{METHOD_SUBMIT, "list", false},
	{METHOD_CANCEL, "show", true},
	{METHOD_KEEP, "show", true},
	{METHOD_PRIORITY, "show", true},
	{METHOD_PRUNE, "list", false},
	{METHOD_DRAIN, "status", false},
	{METHOD_RESUME, "status", false},
	{METHOD_RELEASE, "status", false},
	{METHOD_WARM, "status", false},
	{METHOD_SHUTDOWN, "status", false},
};

struct request {
	const char *method;
	const struct change *change; /* NULL: it changes nothing */
	json_int_t run;
};

static struct request describe_request(const char *method, const json_t *params)
{
	struct request r = {
		.method = method, .run = json_integer_value(json_object_get(params, "id"))};
	const bool dry = json_is_true(json_object_get(params, "dry_run"));

	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]) && !dry; i++)
		if (strcmp(changes[i].method, method) == 0)
			r.change = &changes[i];
	return r;
}

/* A line about how to find out whether the request took effect. */
static void add_check(const struct request *r, const char *before, struct ctl_error *e)
{
	if (r->change && r->change->of_run)
		ctl_error_add(e, "%scheck with: gpt2ctl %s %lld", before, r->change->show,
			(long long)r->run);
	else
		ctl_error_add(e, "%scheck with: gpt2ctl %s", before,
			r->change ? r->change->show : "status");
}

/* No reply came: e gets the subject, and the consequence. exit: the code so far. */
static int explain(struct client *c, const struct request *r, int exit, struct ctl_error *e)
{
	const bool submits = r->change || strcmp(r->method, METHOD_DRY_RUN) == 0;
	struct ctl_error old = *e;

	if (exit == CTL_CANCELLED && !r->change)
		return exit;
	if (c->lost && c->unsent)
		return ctl_error_set(e, CTL_NOT_NOW,
			"%s: gpt2d closed the connection before it had the whole request%s\n"
			"check with: gpt2ctl status",
			c->asked, submits ? ", which changes nothing" : "");
	ctl_error_set(e, exit, "%s: %.1300s%s", c->asked, old.message,
		c->lost ? " before it replied" : "");
	if (e->code)
		return exit; /* gpt2d refused it */
	if (c->lost)
		add_check(r, "", e);
	else if (c->unsent && submits)
		ctl_error_add(e, "gpt2d does not have the whole request, which changes nothing");
	else if (exit != CTL_TRANSPORT && r->change)
		add_check(r, "gpt2d may still do it; ", e);
	return exit;
}

/* ---- requests ---- */

/* No reply came: an exit code with e. */
static int unanswered(struct client *c, int error, struct ctl_error *e)
{
	if (error == -EINTR)
		return ctl_error_set(e, CTL_CANCELLED, "interrupted");
	if (error != -ETIMEDOUT)
		return e->exit;
	return endpoint_timed_out(&c->endpoint, seconds_since(c->asked_ns), limit_passed(c), e);
}

static int await_reply(struct client *c, int64_t deadline_ns, json_t **result, struct ctl_error *e)
{
	struct rpc_message m;
	int exit = 0;

	for (;;) {
		const int error = next_message(c, deadline_ns, &m, e);

		if (error)
			return unanswered(c, error, e);
		if (m.kind == RPC_NOTIFICATION)
			keep_event(c, &m);
		else if (m.kind != RPC_REQUEST &&
			(json_is_null(m.id) || json_integer_value(m.id) >= c->last_id))
			break; /* an earlier id is that of a ping */
		rpc_clear(&m);
	}
	/* an error without an id concerns the connection as a whole */
	if (m.kind == RPC_ERROR) {
		exit = ctl_error_set(e, ctl_error_exit(m.code), "%s", m.error);
		e->code = m.code;
		e->data = json_incref(m.data);
	} else if (json_integer_value(m.id) == c->last_id) {
		*result = json_incref(m.result);
	} else {
		exit = ctl_error_set(e, CTL_TRANSPORT, "gpt2d replied to an unknown request");
	}
	rpc_clear(&m);
	return exit;
}

int client_request(struct client *c, const char *method, json_t *params, int deadline_s,
	json_t **result, struct ctl_error *e)
{
	const struct request r = describe_request(method, params);
	const int64_t deadline_ns = deadline_in(c, deadline_s);
	size_t n;
	char *line = rpc_request(++c->last_id, method, params, &n);
	int error, exit;

	c->awaits_event = false;
	c->patient = deadline_s == CLIENT_PATIENT;
	if (c->hello)
		expect_answer(c, c->options.verb ? c->options.verb : method,
			deadline_s == CLIENT_DEFERRED ? -1
				: c->patient          ? SILENT_S
						      : NOTICE_S);
	error = send_all(c, line, n, deadline_ns);
	free(line);
	c->unsent = error != 0;
	/* a gpt2d that refuses a client first sends the reason: continue to read */
	if (error == 0 || error == -EPIPE || error == -ECONNRESET)
		exit = await_reply(c, deadline_ns, result, e);
	else if (error == -ETIMEDOUT || error == -EINTR)
		exit = unanswered(c, error, e);
	else
		exit = connection_lost(c, e, error);
	if (exit && c->hello && !e->data && (!e->code || ctl_error_leaves_open(exit)))
		exit = explain(c, &r, exit, e);
	return exit;
}

/* Adds the arrays of page to those of all, and its count. */
static void add_page(json_t *all, json_t *page, const char *count)
{
	const char *key;
	json_t *value;

	json_object_foreach(page, key, value) {
		json_t *sum = json_object_get(all, key);

		if (json_is_array(value))
			json_array_extend(sum, value);
		else if (count && strcmp(key, count) == 0)
			json_integer_set(sum, json_integer_value(sum) + json_integer_value(value));
	}
}

int client_request_pages(struct client *c, const char *method, json_t *params, int deadline_s,
	const char *count, json_t **result, struct ctl_error *e)
{
	json_t *all = NULL, *page;
	json_int_t after = 0, next;
	int exit;

	do {
		exit = client_request(c, method, json_incref(params), deadline_s, &page, e);
		if (exit)
			break;
		next = json_integer_value(json_object_get(page, "next"));
		if (next != 0 && next <= after)
			exit = ctl_error_set(
				e, CTL_TRANSPORT, "%s: gpt2d sent no next page", c->asked);
		after = next;
		json_object_set_new(params, "after", json_integer(after));
		if (all)
			add_page(all, page, count);
		else
			all = json_incref(page);
		json_decref(page);
	} while (!exit && after != 0);
	json_decref(params);
	json_object_del(all, "next");
	if (exit)
		json_decref(all);
	else
		*result = all;
	return exit;
}

int client_ask(const struct client_options *options, const char *method, json_t *params,
	json_t **result, struct ctl_error *e)
{
	struct client *c = NULL;
	int exit = client_open(options, &c, e);

	if (exit)
		json_decref(params);
	else
		exit = client_request(c, method, params, CLIENT_REPLY_S, result, e);
	client_close(c);
	return exit;
}

enum client_news client_next(
	struct client *c, int64_t deadline_ns, char event[64], json_t **params, struct ctl_error *e)
{
	struct rpc_message m;
	int error;

	if (interrupt_seen())
		return CLIENT_INTERRUPTED;
	c->awaits_event = c->patient = true;
	if (take_event(c, event, params))
		return CLIENT_EVENT;
	if (!c->pinged && !c->silent)
		expect_answer(c, NULL, QUIET_S);
	for (;;) {
		error = next_message(c, deadline_ns < 0 ? NEVER_NS : deadline_ns, &m, e);
		if (error == -EINTR)
			return CLIENT_INTERRUPTED;
		if (error == -ETIMEDOUT)
			return CLIENT_QUIET;
		if (error)
			return CLIENT_LOST;
		if (m.kind == RPC_NOTIFICATION)
			break;
		rpc_clear(&m); /* the reply to a ping */
	}
	c->progressed = true;
	snprintf(event, 64, "%s", m.method);
	*params = json_incref(m.params);
	rpc_clear(&m);
	return CLIENT_EVENT;
}

/* ---- connections ---- */

/* A full backlog shows as EAGAIN: try again until the deadline. */
static int connect_until(struct client *c, int64_t deadline_ns, struct ctl_error *e)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	memcpy(address.sun_path, c->endpoint.path, sizeof(address.sun_path));
	while (connect(c->fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
		if (errno != EAGAIN && errno != EINTR)
			return endpoint_unreachable(&c->endpoint, errno, e);
		if (interrupt_seen())
			return ctl_error_set(e, CTL_CANCELLED, "interrupted");
		if (clock_mono_ns() > deadline_ns)
			return unanswered(c, -ETIMEDOUT, e);
		if (clock_mono_ns() > c->notice_ns)
			print_silent(c);
		interrupt_poll(NULL, 0, 20 * CLOCK_MS_NS);
	}
	return 0;
}

static int other_version(const json_t *theirs, const char *why, struct ctl_error *e)
{
	const char *build = json_string_value(json_object_get(theirs, "build"));

	if (json_object_get(theirs, "protocol"))
		ctl_error_set(e, CTL_VERSION_MISMATCH,
			"gpt2ctl has protocol %d (build %s), gpt2d has %lld (build %.100s)",
			PROTOCOL_VERSION, version_build,
			(long long)json_integer_value(json_object_get(theirs, "protocol")),
			build ? build : "unknown");
	else
		ctl_error_set(e, CTL_VERSION_MISMATCH, "%.600s", why);
	return ctl_error_add(e, "install both from the same build, then restart gpt2d");
}

static int say_hello(struct client *c, struct ctl_error *e)
{
	json_t *params = json_pack("{s:i, s:s, s:s}", "protocol", PROTOCOL_VERSION, "build",
		version_build, "client", "gpt2ctl");
	json_t *hello = NULL;
	char why[sizeof(e->message)];
	int exit = client_request(c, METHOD_HELLO, params, CLIENT_HELLO_S, &hello, e);

	if (exit == CTL_VERSION_MISMATCH) {
		memcpy(why, e->message, sizeof(why));
		return other_version(e->data, why, e);
	}
	if (!exit && !json_is_integer(json_object_get(hello, "protocol")))
		exit = ctl_error_set(e, CTL_TRANSPORT, "hello: gpt2d named no protocol version");
	else if (!exit &&
		json_integer_value(json_object_get(hello, "protocol")) != PROTOCOL_VERSION)
		exit = other_version(hello, "", e);
	c->hello = hello;
	return exit;
}

static void disconnect(struct client *c)
{
	char event[64];
	json_t *params;

	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	frame_destroy(c->frame);
	c->frame = NULL;
	json_decref(c->hello);
	c->hello = NULL;
	while (take_event(c, event, &params))
		json_decref(params);
}

static int connect_once(struct client *c, struct ctl_error *e)
{
	int exit;

	disconnect(c);
	c->lost = c->unsent = c->pinged = c->silent = false;
	c->endpoint.pid = 0;
	c->frame = frame_create(PROTOCOL_LINE_MAX);
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (c->fd < 0)
		return ctl_error_set(e, CTL_TRANSPORT, "socket: %s", strerror(errno));
	exit = connect_until(c, deadline_in(c, CLIENT_CONNECT_S), e);
	if (exit)
		return exit;
	endpoint_identify(&c->endpoint, c->fd);
	return say_hello(c, e);
}

/* Connects again once if gpt2d closes the connection before its hello. */
static int connect_twice(struct client *c, struct ctl_error *e)
{
	int exit;

	expect_answer(c, NULL, 2);
	exit = connect_once(c, e);
	if (exit == CTL_TRANSPORT && c->lost) {
		ctl_error_clear(e);
		exit = connect_once(c, e);
	}
	return exit;
}

int client_open(const struct client_options *options, struct client **out, struct ctl_error *e)
{
	struct client *c = memory_zeroed(1, sizeof(*c));
	int exit;

	c->options = *options;
	c->fd = -1;
	c->end = &c->first;
	exit = endpoint_find(options->socket, &c->endpoint, e);
	if (!exit)
		exit = connect_twice(c, e);
	if (exit)
		client_close(c);
	else
		*out = c;
	return exit;
}

/* In a container each gpt2d may have the same pid. */
static bool same_start(const json_t *a, const json_t *b)
{
	return json_equal(json_object_get(a, "pid"), json_object_get(b, "pid")) &&
		json_equal(json_object_get(a, "started_at"), json_object_get(b, "started_at"));
}

int client_reopen(struct client *c, struct ctl_error *e)
{
	const int64_t until_ns = clock_mono_ns() + CLIENT_RETURN_S * CLOCK_S_NS;
	json_t *before = json_incref(c->hello);
	const bool again = c->reopened && !c->progressed;
	int exit;

	ctl_error_clear(e);
	if (again) {
		json_decref(before);
		return ctl_error_set(e, CTL_TRANSPORT, "connection to gpt2d lost twice");
	}
	if (c->before_notice)
		c->before_notice(c->of);
	if (c->options.notices)
		fputs("gpt2ctl: connection to gpt2d lost, reconnecting\n", c->options.notices);
	do {
		ctl_error_clear(e);
		interrupt_poll(NULL, 0, 100 * CLOCK_MS_NS);
		exit = interrupt_seen() ? ctl_error_set(e, CTL_CANCELLED, "interrupted")
					: connect_twice(c, e);
		/* a gpt2d that is ending accepts a connection and closes it */
	} while ((exit == CTL_NO_DAEMON || exit == CTL_TRANSPORT) && clock_mono_ns() < until_ns);
	if (exit == CTL_NO_DAEMON || exit == CTL_TRANSPORT)
		exit = ctl_error_set(e, CTL_TRANSPORT,
			"connection to gpt2d lost, and gpt2d did not come back within %d s\n"
			"check with: gpt2ctl status",
			CLIENT_RETURN_S);
	c->restarted = !exit && !same_start(before, c->hello);
	c->progressed = c->restarted;
	c->reopened = true;
	json_decref(before);
	return exit;
}

void client_close(struct client *c)
{
	if (!c)
		return;
	disconnect(c);
	free(c);
}

bool client_restarted(const struct client *c)
{
	return c->restarted;
}

const json_t *client_hello(const struct client *c)
{
	return c->hello;
}

bool client_answers(const struct client *c)
{
	return !c->pinged && !c->silent;
}

bool client_lost(const struct client *c)
{
	return c->lost;
}

bool client_unsent(const struct client *c)
{
	return c->unsent;
}

int client_fd(const struct client *c)
{
	return c->fd;
}

void client_expect(struct client *c, const char *what)
{
	c->expected = what;
}

void client_before_notice(struct client *c, void (*before)(void *of), void *of)
{
	c->before_notice = before;
	c->of = of;
}
