#include "daemon/nodes/link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/nodes/tls.h"
#include "proto/frame.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"
#include "proto/rpc.h"

enum {
	LINES_PER_TURN = 256,
	OUTPUT_MAX = 4 * PROTOCOL_LINE_MAX, /* limit of output for a peer that does not read */
	/* longer than a line: else its rest waits in OpenSSL, without an event */
	TLS_RECORD = 16384,
	FINISH_S = 1,
	WHY_BYTES = 256,
};

struct link {
	struct link_options o;
	char name[LINK_NAME_BYTES];
	int fd; /* while it connects; -1: io owns it */
	struct event *connecting;
	struct bufferevent *io;
	struct event *again; /* lines are left, or the end must be reported */
	struct event *timer; /* the handshake, the end */
	struct frame *frame;
	char why[WHY_BYTES]; /* reported once the lines are handled; empty: no end */
	bool is_up, finishing, shut, reported;
	bool in_callback, dead; /* destroyed by a callback */
};

/* ---- addresses ---- */

socklen_t link_address_bytes(const struct sockaddr *address)
{
	return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					      : sizeof(struct sockaddr_in);
}

void link_format_address(const struct sockaddr *address, char out[LINK_NAME_BYTES])
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
	char ip[INET6_ADDRSTRLEN] = "?";

	if (address->sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &v6->sin6_addr, ip, sizeof(ip));
		snprintf(out, LINK_NAME_BYTES, "[%s]:%u", ip, ntohs(v6->sin6_port));
	} else {
		inet_ntop(AF_INET, &v4->sin_addr, ip, sizeof(ip));
		snprintf(out, LINK_NAME_BYTES, "%s:%u", ip, ntohs(v4->sin_port));
	}
}

/* ---- the end ---- */

/* From the loop: earlier messages are handled first. The first reason counts. */
static void end(struct link *link, const char *why)
{
	if (link->why[0] == '\0')
		snprintf(link->why, sizeof(link->why), "%s", why);
	event_active(link->again, 0, 0);
}

static void report(struct link *link)
{
	if (link->reported)
		return;
	link->reported = true;
	evtimer_del(link->timer);
	if (link->io != NULL)
		bufferevent_disable(link->io, EV_READ | EV_WRITE);
	link->in_callback = true;
	link->o.down(link, link->why, link->o.arg);
	link->in_callback = false;
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct link *link = arg;
	char why[64];

	snprintf(why, sizeof(why), "%s within %d s",
		link->io == NULL       ? "no connection"
			: !link->is_up ? "no TLS handshake"
				       : "no hello",
		LINK_HANDSHAKE_S);
	end(link, link->finishing ? "closed" : why);
}

static void arm(struct link *link, int seconds)
{
	const struct timeval t = {.tv_sec = seconds};

	evtimer_add(link->timer, &t);
}

/* Once all output is in the socket: the peer reads everything before it sees the close. */
static void shut_when_sent(struct link *link)
{
	if (!link->finishing || link->shut || link->io == NULL ||
		evbuffer_get_length(bufferevent_get_output(link->io)) > 0)
		return;
	link->shut = true;
	SSL_shutdown(bufferevent_openssl_get_ssl(link->io));
	shutdown(bufferevent_getfd(link->io), SHUT_WR);
}

/* ---- lines ---- */

static void handle_line(struct link *link, const char *line, size_t n)
{
	struct rpc_message m;
	char error[160], why[WHY_BYTES];

	if (rpc_parse(line, n, &m, NULL, error, sizeof(error)) != 0) {
		snprintf(why, sizeof(why), "sent an invalid message: %s", error);
		end(link, why);
		return;
	}
	if (m.kind == RPC_NOTIFICATION)
		link->o.message(link, m.method, m.params, link->o.arg);
	else
		end(link, "sent a request or a reply (expected a notification)");
	rpc_clear(&m);
}

/* Handles up to LINES_PER_TURN lines; whether there may be more. */
static bool take_lines(struct link *link)
{
	struct evbuffer *in = bufferevent_get_input(link->io);
	enum frame_status status = FRAME_LINE;
	struct evbuffer_iovec piece;
	char *line;
	size_t n;

	for (int taken = 0; taken < LINES_PER_TURN && !link->dead && !link->finishing; taken++) {
		status = frame_next(link->frame, &line, &n);
		if (status == FRAME_LINE) {
			handle_line(link, line, n);
		} else if (status != FRAME_MORE) {
			end(link,
				status == FRAME_BAD ? "sent a NUL byte"
						    : "sent a line that is too long");
			return false;
		} else if (evbuffer_peek(in, -1, NULL, &piece, 1) > 0 && piece.iov_len > 0) {
			frame_feed(link->frame, piece.iov_base, piece.iov_len);
			evbuffer_drain(in, piece.iov_len);
		} else {
			return false;
		}
	}
	return !link->dead && !link->finishing;
}

static void handle_lines(struct link *link)
{
	bool more = false;

	if (link->reported || link->in_callback)
		return;
	if (link->io != NULL && link->is_up) {
		link->in_callback = true;
		more = take_lines(link);
		link->in_callback = false;
	}
	if (!link->dead && more)
		event_active(link->again, 0, 0);
	else if (!link->dead && link->why[0] != '\0')
		report(link);
	if (link->dead)
		link_destroy(link);
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
	handle_lines(arg);
}

static void on_read(struct bufferevent *io, void *arg)
{
	struct link *link = arg;

	if (link->finishing)
		evbuffer_drain(bufferevent_get_input(io), SIZE_MAX);
	else
		handle_lines(link);
}

static void on_written(struct bufferevent *io, void *arg)
{
	shut_when_sent(arg);
}

static void begin(struct link *link)
{
	if (tls_peer(bufferevent_openssl_get_ssl(link->io)) < 0) {
		end(link, "TLS: no pre-shared key was used: not a gpt2d");
		return;
	}
	link->is_up = true;
	link->in_callback = true;
	link->o.up(link, link->o.arg);
	link->in_callback = false;
	if (link->dead)
		link_destroy(link);
}

/* Why the connection ended. OpenSSL has no code for errors of the socket. */
static void say_end(struct link *link, short what, char why[WHY_BYTES])
{
	const int number = EVUTIL_SOCKET_ERROR();
	unsigned long code = 0;

	while ((what & BEV_EVENT_ERROR) != 0 && ERR_GET_LIB(code) == 0 &&
		(code = bufferevent_get_openssl_error(link->io)) != 0)
		;
	if (code != 0 && ERR_GET_LIB(code) != 0)
		tls_error(code, why, WHY_BYTES);
	else if ((what & BEV_EVENT_ERROR) != 0 && number != 0)
		snprintf(why, WHY_BYTES, "%s", strerror(number));
	else
		snprintf(why, WHY_BYTES, "closed the connection%s",
			link->is_up ? "" : " during the TLS handshake");
}

static void on_event(struct bufferevent *io, short what, void *arg)
{
	struct link *link = arg;
	char why[WHY_BYTES];

	if ((what & BEV_EVENT_CONNECTED) != 0) {
		begin(link);
		return;
	}
	say_end(link, what, why);
	end(link, why);
}

/* ---- create, destroy ---- */

static struct link *create(const struct link_options *options, int fd)
{
	struct link *link = memory_zeroed(1, sizeof(*link));

	link->o = *options;
	link->fd = fd;
	link->frame = frame_create(PROTOCOL_LINE_MAX);
	link->again = event_new(options->base, -1, 0, on_again, link);
	link->timer = evtimer_new(options->base, on_timer, link);
	arm(link, LINK_HANDSHAKE_S);
	return link;
}

/* The socket is connected: the handshake begins. */
static void start_tls(struct link *link, enum bufferevent_ssl_state state)
{
	static const int on = 1;
	struct ssl_st *ssl = tls_session(link->o.tls);

	setsockopt(link->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (ssl != NULL) /* deferred: else an end of file would overtake the last lines */
		link->io = bufferevent_openssl_socket_new(link->o.base, link->fd, ssl, state,
			BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
	if (link->io == NULL) {
		end(link, "TLS: cannot create a session");
		return;
	}
	link->fd = -1;
	bufferevent_setcb(link->io, on_read, on_written, on_event, link);
	bufferevent_setwatermark(link->io, EV_READ, 0, PROTOCOL_LINE_MAX + TLS_RECORD);
	bufferevent_enable(link->io, EV_READ | EV_WRITE);
}

struct link *link_accept(const struct link_options *options, int fd, const struct sockaddr *from)
{
	struct link *link = create(options, fd);

	link_format_address(from, link->name);
	start_tls(link, BUFFEREVENT_SSL_ACCEPTING);
	return link;
}

static void on_connected(evutil_socket_t fd, short what, void *arg)
{
	struct link *link = arg;
	int number = 0;
	socklen_t bytes = sizeof(number);

	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &number, &bytes) < 0)
		number = errno;
	if (number != 0)
		end(link, strerror(number));
	else
		start_tls(link, BUFFEREVENT_SSL_CONNECTING);
}

int link_connect(const struct link_options *options, const struct sockaddr *to,
	const struct sockaddr *from, struct link **out)
{
	const int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct link *link;
	int rc;

	if (fd < 0 || (from != NULL && bind(fd, from, link_address_bytes(from)) < 0) ||
		(connect(fd, to, link_address_bytes(to)) < 0 && errno != EINPROGRESS)) {
		rc = -errno;
		if (fd >= 0)
			close(fd);
		return rc;
	}
	link = create(options, fd);
	link_format_address(to, link->name);
	link->connecting = event_new(options->base, fd, EV_WRITE, on_connected, link);
	event_add(link->connecting, NULL);
	*out = link;
	return 0;
}

void link_destroy(struct link *link)
{
	if (link == NULL)
		return;
	if (link->in_callback) {
		link->dead = true;
		return;
	}
	if (link->connecting != NULL)
		event_free(link->connecting);
	if (link->io != NULL)
		bufferevent_free(link->io);
	if (link->fd >= 0)
		close(link->fd);
	event_free(link->again);
	event_free(link->timer);
	frame_destroy(link->frame);
	free(link);
}

/* ---- for the owner ---- */

void link_hand_over(struct link *link,
	void (*message)(struct link *link, const char *method, json_t *params, void *arg),
	void (*down)(struct link *link, const char *why, void *arg), void *arg)
{
	link->o.message = message;
	link->o.down = down;
	link->o.arg = arg;
}

void link_keep(struct link *link)
{
	evtimer_del(link->timer);
}

void link_send(struct link *link, const char *method, json_t *params)
{
	size_t n = 0;
	char *line = rpc_notification(method, params, &n);

	if (!link->finishing && link->io != NULL && link->why[0] == '\0' &&
		(evbuffer_get_length(bufferevent_get_output(link->io)) > OUTPUT_MAX ||
			bufferevent_write(link->io, line, n) < 0))
		end(link, "does not read its messages");
	free(line);
}

void link_finish(struct link *link)
{
	link->finishing = true;
	if (link->is_up && link->why[0] == '\0')
		arm(link, FINISH_S);
	else
		end(link, "closed");
	shut_when_sent(link);
}

int link_peer(const struct link *link)
{
	return link->is_up ? tls_peer(bufferevent_openssl_get_ssl(link->io)) : -1;
}

const char *link_name(const struct link *link)
{
	return link->name;
}
