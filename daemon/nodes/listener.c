#include "daemon/nodes/listener.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "daemon/config/log.h"
#include "daemon/nodes/facts.h"
#include "daemon/nodes/link.h"
#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"

enum {
	BACKLOG = 1024, /* all members connect at once after a restart of the leader */
	LOG_LINES = 10, /* in LOG_S */
	LOG_S = 10,
};

struct unknown {
	TAILQ_ENTRY(unknown) link;
	struct listener *listener;
	struct link *peer;
	bool refused; /* it was logged */
};

struct listener {
	struct listener_options o;
	struct evconnlistener *socket;
	struct event *pause; /* no descriptor is free: accept later */
	char address[LINK_NAME_BYTES];
	TAILQ_HEAD(, unknown) unknown;
	int n_unknown;
	int64_t log_ns; /* start of the window for log lines */
	int64_t log_lines;
};

/* ---- the log ---- */

/* Of a refused connection, unless there are too many. */
static void log_refused(struct listener *l, const struct link *link, const char *why)
{
	const int64_t now = clock_mono_ns();

	if (now - l->log_ns > LOG_S * CLOCK_S_NS) {
		if (l->log_lines > LOG_LINES)
			log_write(LOG_WARNING, "link: %lld more connections were refused",
				(long long)(l->log_lines - LOG_LINES));
		l->log_ns = now;
		l->log_lines = 0;
	}
	if (l->log_lines++ < LOG_LINES)
		log_write(LOG_WARNING, "link: %s refused: %s", link_name(link), why);
}

/* ---- unknown connections ---- */

static void forget(struct unknown *u)
{
	TAILQ_REMOVE(&u->listener->unknown, u, link);
	u->listener->n_unknown--;
	free(u);
}

static void on_up(struct link *link, void *arg)
{
	/* node.hello comes next */
}

static void on_message(struct link *link, const char *method, json_t *params, void *arg)
{
	struct unknown *u = arg;
	struct listener *l = u->listener;

	if (strcmp(method, NODE_HELLO) != 0) {
		u->refused = true;
		log_refused(l, link, "sent another message than " NODE_HELLO " first");
		link_finish(link);
		return;
	}
	forget(u);
	l->o.hello(link, params, l->o.arg);
}

static void on_down(struct link *link, const char *why, void *arg)
{
	struct unknown *u = arg;

	if (!u->refused)
		log_refused(u->listener, link, why);
	forget(u);
	link_destroy(link);
}

static int unknown_max(const struct listener *l)
{
	return l->o.peers > LISTENER_UNKNOWN_LEAST ? l->o.peers : LISTENER_UNKNOWN_LEAST;
}

static void evict_oldest(struct listener *l)
{
	struct unknown *oldest = TAILQ_FIRST(&l->unknown);
	struct link *peer = oldest->peer;
	char why[64];

	snprintf(
		why, sizeof(why), "more than %d connections are not authenticated", unknown_max(l));
	if (!oldest->refused)
		log_refused(l, peer, why);
	forget(oldest);
	link_destroy(peer);
}

static struct unknown *add(struct listener *l)
{
	struct unknown *u = memory_zeroed(1, sizeof(*u));

	if (l->n_unknown == unknown_max(l))
		evict_oldest(l);
	u->listener = l;
	TAILQ_INSERT_TAIL(&l->unknown, u, link);
	l->n_unknown++;
	return u;
}

void listener_refuse(struct listener *l, struct link *link, const char *why)
{
	struct unknown *u = add(l);

	u->peer = link;
	u->refused = true;
	link_hand_over(link, on_message, on_down, u);
	log_refused(l, link, why);
	link_send(link, NODE_REFUSED, json_pack("{ss}", "reason", why));
	link_finish(link);
}

static void on_accept(struct evconnlistener *socket, evutil_socket_t fd, struct sockaddr *from,
	int bytes, void *arg)
{
	struct listener *l = arg;
	struct unknown *u = add(l);

	u->peer = link_accept(&(struct link_options){.base = l->o.base,
				      .tls = l->o.tls,
				      .up = on_up,
				      .message = on_message,
				      .down = on_down,
				      .arg = u},
		fd, from);
}

/* ---- the socket ---- */

static void on_pause(evutil_socket_t fd, short what, void *arg)
{
	evconnlistener_enable(((struct listener *)arg)->socket);
}

static void on_accept_error(struct evconnlistener *socket, void *arg)
{
	static const struct timeval second = {1, 0};
	struct listener *l = arg;

	log_write(LOG_WARNING, "link: no connection can be accepted: %s", strerror(errno));
	evconnlistener_disable(socket);
	evtimer_add(l->pause, &second);
}

/* ADDR:PORT as a socket address. */
static int find_address(const struct listener_options *o, struct sockaddr_storage *out, char *error,
	size_t error_bytes)
{
	const struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV,
		.ai_socktype = SOCK_STREAM};
	const char *colon = strrchr(o->address, ':');
	char host[LINK_NAME_BYTES], *name = host;
	struct addrinfo *found = NULL;
	int rc;

	snprintf(host, sizeof(host), "%.*s", (int)(colon - o->address), o->address);
	if (host[0] == '\0') {
		rc = facts_interface_address(o->interface, out, error, error_bytes);
		if (rc == 0)
			((struct sockaddr_in *)(void *)out)->sin_port =
				htons((in_port_t)atoi(colon + 1));
		return rc;
	}
	if (host[0] == '[' && host[strlen(host) - 1] == ']') {
		host[strlen(host) - 1] = '\0';
		name++;
	}
	rc = getaddrinfo(name, colon + 1, &hints, &found);
	if (rc != 0) {
		snprintf(error, error_bytes, "listen: %s: %s (expected an IP address of this node)",
			o->address, gai_strerror(rc));
		return -EINVAL;
	}
	memcpy(out, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	return 0;
}

static int open_socket(struct listener *l, char *error, size_t error_bytes)
{
	struct sockaddr_storage at;
	struct sockaddr *address = (struct sockaddr *)(void *)&at;
	socklen_t bytes = sizeof(at);
	static const int on = 1;
	int rc = find_address(&l->o, &at, error, error_bytes), fd;

	if (rc < 0)
		return rc;
	fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
		bind(fd, address, link_address_bytes(address)) < 0 || listen(fd, BACKLOG) < 0 ||
		getsockname(fd, address, &bytes) < 0) {
		rc = -errno;
		snprintf(error, error_bytes, "listen: %s: %s", l->o.address, strerror(-rc));
		if (fd >= 0)
			close(fd);
		return rc;
	}
	link_format_address(address, l->address);
	l->socket = evconnlistener_new(
		l->o.base, on_accept, l, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
	evconnlistener_set_error_cb(l->socket, on_accept_error);
	return 0;
}

int listener_create(const struct listener_options *options, struct listener **out, char *error,
	size_t error_bytes)
{
	struct listener *l = memory_zeroed(1, sizeof(*l));
	int rc;

	l->o = *options;
	TAILQ_INIT(&l->unknown);
	l->pause = evtimer_new(options->base, on_pause, l);
	rc = open_socket(l, error, error_bytes);
	if (rc < 0) {
		listener_destroy(l);
		return rc;
	}
	*out = l;
	return 0;
}

void listener_destroy(struct listener *l)
{
	struct unknown *u;

	if (l == NULL)
		return;
	while ((u = TAILQ_FIRST(&l->unknown)) != NULL) {
		link_destroy(u->peer);
		forget(u);
	}
	if (l->socket != NULL)
		evconnlistener_free(l->socket);
	event_free(l->pause);
	free(l);
}

const char *listener_address(const struct listener *l)
{
	return l->address;
}
