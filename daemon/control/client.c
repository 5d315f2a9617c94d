#include "daemon/control/client.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "proto/host/clock.h"
#include "daemon/config/log.h"
#include "proto/frame.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"

enum { READ_BYTES = 64 << 10 }; /* read ahead, besides the current line */

struct client {
	struct client_options o;
	struct client_peer peer;
	struct bufferevent *io;
	struct event *next; /* takes requests, in the next iteration of the loop */
	struct frame *frame;
	struct reply *reply; /* of the request in progress; NULL: there is none */
	bool greeted;
	bool eof;     /* the client has closed its sending side */
	bool closing; /* the connection ends once the client has read everything */
	int follows;
	int64_t heard_ns; /* time of its last bytes or its last reply */
};

/*
 * A timer, not event_active(): libevent runs activated events before it polls descriptors and
 * timers again, so one client's thousand requests would delay all others.
 */
static void take_next(struct client *client)
{
	static const struct timeval at_once = {0};

	evtimer_add(client->next, &at_once);
}

void client_destroy(struct client *client)
{
	client->o.gone(client, client->o.arg);
	reply_forget_client(client->reply);
	event_free(client->next);
	bufferevent_free(client->io);
	frame_destroy(client->frame);
	free(client);
}

size_t client_unwritten_bytes(const struct client *client)
{
	return evbuffer_get_length(bufferevent_get_output(client->io));
}

static bool is_full(const struct client *client)
{
	return client_unwritten_bytes(client) > (size_t)client->o.buffer_bytes;
}

/* ---- output ---- */

static void free_line(const void *line, size_t n, void *arg)
{
	free((void *)line);
}

/* Takes line. */
static void write_line(struct client *client, char *line, size_t n)
{
	evbuffer_add_reference(bufferevent_get_output(client->io), line, n, free_line, NULL);
}

/* reply.h: sends the reply to the request in progress. */
static void on_answer(struct client *client, char *line, size_t n, bool close)
{
	if (n > 0)
		write_line(client, line, n);
	client->closing |= close;
	client->reply = NULL;
	client->heard_ns = clock_mono_ns();
	take_next(client);
}

bool client_event(struct client *client, const char *line, size_t n)
{
	if (client->closing || client_unwritten_bytes(client) + n > (size_t)client->o.buffer_bytes)
		return false;
	client_last_event(client, line, n);
	return true;
}

void client_last_event(struct client *client, const char *line, size_t n)
{
	if (!client->closing)
		bufferevent_write(client->io, line, n);
}

void client_dismiss(struct client *client, const char *why)
{
	const bool reads = client_unwritten_bytes(client) == 0;
	char *line;
	size_t n = 0;

	log_write(LOG_INFO, "client %llu: disconnected: %s",
		(unsigned long long)client->peer.number, why);
	if (!reads) {
		client_destroy(client);
		return;
	}
	line = rpc_error(NULL, PROTOCOL_BUSY, why, NULL, &n);
	write_line(client, line, n);
	client->closing = true;
}

/* ---- requests ---- */

static void handle_line(struct client *client, const char *line, size_t n)
{
	struct rpc_message m;
	char error[256];
	json_t *id = NULL;
	int code = rpc_parse(line, n, &m, &id, error, sizeof(error));

	client->reply = reply_create(client, &client->peer, id, on_answer);
	if (code != 0 && !client->greeted) {
		reply_error_and_close(client->reply, code, NULL, "%s", error);
	} else if (code != 0) {
		reply_error(client->reply, code, NULL, "%s", error);
	} else {
		if (m.kind != RPC_REQUEST)
			reply_error(client->reply, PROTOCOL_INVALID_REQUEST, NULL,
				m.kind == RPC_NOTIFICATION ? "id is missing"
							   : "a request is expected");
		else
			client->o.request(client->reply, &m, client->o.arg);
		rpc_clear(&m);
	}
}

static void handle_broken(struct client *client, enum frame_status status)
{
	client->reply = reply_create(client, &client->peer, json_null(), on_answer);
	if (status == FRAME_TOO_LONG)
		reply_error_and_close(client->reply, PROTOCOL_INVALID_REQUEST, NULL,
			"a line longer than %d bytes", PROTOCOL_CLIENT_LINE_MAX);
	else
		reply_error_and_close(
			client->reply, PROTOCOL_PARSE_ERROR, NULL, "a NUL byte in a line");
}

/* Moves the read bytes into the frame: whether there were any. */
static bool feed(struct client *client)
{
	struct evbuffer *in = bufferevent_get_input(client->io);
	struct evbuffer_iovec piece;

	if (evbuffer_peek(in, -1, NULL, &piece, 1) <= 0 || piece.iov_len == 0)
		return false;
	frame_feed(client->frame, piece.iov_base, piece.iov_len);
	evbuffer_drain(in, piece.iov_len);
	bufferevent_enable(client->io, EV_READ);
	return true;
}

/* Takes a request: whether there was one. */
static bool take_request(struct client *client)
{
	enum frame_status status;
	char *line;
	size_t n;

	if (client->reply != NULL || client->closing || is_full(client))
		return false;
	do
		status = frame_next(client->frame, &line, &n);
	while (status == FRAME_MORE && feed(client));
	if (status == FRAME_LINE)
		handle_line(client, line, n);
	else if (status != FRAME_MORE)
		handle_broken(client, status);
	return status != FRAME_MORE;
}

/* Handles the client's requests for a millisecond; then others get their turn. */
static void on_next(evutil_socket_t fd, short what, void *arg)
{
	struct client *client = arg;
	const int64_t until_ns = clock_mono_ns() + CLOCK_MS_NS;
	bool done;

	while (take_request(client))
		if (clock_mono_ns() >= until_ns) {
			take_next(client);
			return;
		}
	done = client->closing || (client->eof && client->reply == NULL && client->follows == 0);
	if (done && client_unwritten_bytes(client) == 0)
		client_destroy(client);
}

/*
 * Libevent calls a reader at its watermark again and again, so a full one is not read for a while.
 */
static void on_read(struct bufferevent *io, void *arg)
{
	struct client *client = arg;

	if (evbuffer_get_length(bufferevent_get_input(io)) >= READ_BYTES)
		bufferevent_disable(io, EV_READ);
	client->heard_ns = clock_mono_ns();
	take_next(client);
}

/* The client has read everything: one of its requests may have waited for that. */
static void on_written(struct bufferevent *io, void *arg)
{
	take_next(arg);
}

/* ---- the connection ---- */

static bool peer_closed(struct bufferevent *io)
{
	struct pollfd p = {.fd = bufferevent_getfd(io), .events = 0};

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR)) != 0;
}

static void on_timeout(struct client *client, short what)
{
	char why[80];

	if ((what & BEV_EVENT_READING) != 0) {
		snprintf(why, sizeof(why), "closed: no hello within %lld s",
			(long long)client->o.idle_s);
		client_dismiss(client, why);
	} else if (client->closing || is_full(client)) {
		snprintf(why, sizeof(why), "closed: %zu bytes not read for %lld s",
			client_unwritten_bytes(client), (long long)client->o.idle_s);
		client_dismiss(client, why);
	} else {
		bufferevent_enable(client->io, EV_WRITE); /* a follower that is suspended */
	}
}

static void on_event(struct bufferevent *io, short what, void *arg)
{
	struct client *client = arg;

	if ((what & BEV_EVENT_TIMEOUT) != 0) {
		on_timeout(client, what);
	} else if ((what & BEV_EVENT_EOF) != 0 && !peer_closed(io)) {
		client->eof = true; /* it may still read: `printf ... | socat - UNIX:...` */
		take_next(client);
	} else {
		client_destroy(client);
	}
}

struct client *client_create(
	const struct client_options *options, int fd, const struct client_peer *peer)
{
	const struct timeval idle = {.tv_sec = (time_t)options->idle_s};
	struct client *client = memory_zeroed(1, sizeof(*client));

	client->o = *options;
	client->peer = *peer;
	client->heard_ns = clock_mono_ns();
	client->frame = frame_create(PROTOCOL_CLIENT_LINE_MAX);
	client->next = evtimer_new(options->base, on_next, client);
	client->io = bufferevent_socket_new(options->base, fd, BEV_OPT_CLOSE_ON_FREE);
	bufferevent_setcb(client->io, on_read, on_written, on_event, client);
	bufferevent_setwatermark(client->io, EV_READ, 0, READ_BYTES);
	bufferevent_set_timeouts(client->io, &idle, &idle);
	bufferevent_enable(client->io, EV_READ | EV_WRITE);
	return client;
}

const struct client_peer *client_peer(const struct client *client)
{
	return &client->peer;
}

bool client_greeted(const struct client *client)
{
	return client->greeted;
}

void client_set_greeted(struct client *client)
{
	const struct timeval idle = {.tv_sec = (time_t)client->o.idle_s};

	client->greeted = true;
	bufferevent_set_timeouts(client->io, NULL, &idle);
}

void client_add_follows(struct client *client, int n)
{
	client->follows += n;
}

int client_follows(const struct client *client)
{
	return client->follows;
}

int64_t client_idle_since_ns(const struct client *client)
{
	if (client->reply != NULL || evtimer_pending(client->next, NULL) || client->follows > 0 ||
		client->closing)
		return INT64_MAX;
	return client->heard_ns;
}

void client_end_requests(struct client *client)
{
	/* gpt2d first reads what has arrived, then sees the end of file that this causes */
	if (shutdown(bufferevent_getfd(client->io), SHUT_RD) < 0)
		client->eof = true; /* the client has disconnected */
}

bool client_served(const struct client *client)
{
	return client->eof && client->reply == NULL && !evtimer_pending(client->next, NULL) &&
		client_unwritten_bytes(client) == 0;
}
