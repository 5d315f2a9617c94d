#include "daemon/control/control.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/host/clock.h"
#include "daemon/config/log.h"
#include "daemon/config/place.h"
#include "daemon/config/settings.h"
#include "daemon/control/role.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"

enum { ACCEPT_PAUSE_S = 1, BACKLOG = 128, CHECK_S = 2 };

struct seat {
	TAILQ_ENTRY(seat) link;
	struct control *control;
	struct client *client;
};

struct control {
	struct control_options o;
	struct evconnlistener *listener; /* NULL: gpt2d does not listen */
	struct event *resume;            /* accepts again */
	struct event *check;             /* checks whether the socket still exists */
	struct place_mark mark;          /* of the socket */
	bool lost;                       /* already logged */
	TAILQ_HEAD(, seat) seats;
	int64_t n_clients;
	uint64_t last_number;
};

/* ---- clients ---- */

static void on_gone(struct client *client, void *arg)
{
	struct seat *seat = arg;
	struct control *c = seat->control;

	c->o.client.gone(client, c->o.client.arg);
	TAILQ_REMOVE(&c->seats, seat, link);
	c->n_clients--;
	free(seat);
}

static void on_request(struct reply *reply, const struct rpc_message *message, void *arg)
{
	const struct control *c = ((struct seat *)arg)->control;

	c->o.client.request(reply, message, c->o.client.arg);
}

static int64_t clients_of(const struct control *c, uid_t uid)
{
	struct seat *seat;
	int64_t n = 0;

	TAILQ_FOREACH(seat, &c->seats, link)
		n += client_peer(seat->client)->uid == uid;
	return n;
}

/* Sends one line to a client that is refused: as much as the socket takes at once. */
__attribute__((format(printf, 2, 3))) static void refuse(int fd, const char *format, ...)
{
	char why[256], *line;
	va_list args;
	size_t n = 0;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	line = rpc_error(NULL, PROTOCOL_BUSY, why, NULL, &n);
	if (send(fd, line, n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		log_write(LOG_DEBUG, "client: turned away: %s", why);
	free(line);
	close(fd);
}

static void let_in(struct control *c, int fd, const struct ucred *peer)
{
	struct client_options options = c->o.client;
	struct client_peer who = {
		.number = ++c->last_number,
		.uid = peer->uid,
		.pid = peer->pid,
		.admin = role_is_admin(fd, peer->uid, peer->gid, &c->o.settings->admin_group),
		.member = role_is_member(fd, peer->uid, peer->gid, &c->o.settings->socket_group),
	};
	struct seat *seat = memory_zeroed(1, sizeof(*seat));

	options.idle_s = c->o.settings->client_idle_s;
	options.request = on_request;
	options.gone = on_gone;
	options.arg = seat;
	seat->control = c;
	seat->client = client_create(&options, fd, &who);
	c->n_clients++;
	TAILQ_INSERT_TAIL(&c->seats, seat, link);
}

/* Closes the client that has been idle longest, so that idle clients lock nobody out. */
static bool make_room(struct control *c, bool any_uid, uid_t uid)
{
	int64_t since, longest = clock_mono_ns() - c->o.settings->client_idle_s * CLOCK_S_NS;
	struct client *idle = NULL;
	struct seat *seat;
	char why[160];

	TAILQ_FOREACH(seat, &c->seats, link) {
		since = client_idle_since_ns(seat->client);
		if ((any_uid || client_peer(seat->client)->uid == uid) && since <= longest) {
			longest = since;
			idle = seat->client;
		}
	}
	if (idle == NULL)
		return false;
	snprintf(why, sizeof(why), "closed: idle for %lld s, and the limit of clients%s is reached",
		(long long)((clock_mono_ns() - longest) / CLOCK_S_NS),
		any_uid ? "" : " of this user");
	client_dismiss(idle, why);
	return true;
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address,
	int n, void *arg)
{
	struct control *c = arg;
	const struct settings *s = c->o.settings;
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0) {
		log_write(LOG_WARNING, "client: no credentials: %s", strerror(errno));
		close(fd);
	} else if (c->n_clients >= s->clients_max && !make_room(c, true, 0)) {
		refuse(fd,
			"too many clients: %lld are connected; end some, or raise clients in "
			"gpt2d.conf(5)",
			(long long)s->clients_max);
	} else if (clients_of(c, peer.uid) >= s->clients_per_uid &&
		!make_room(c, false, peer.uid)) {
		refuse(fd,
			"too many clients of this user: %lld are connected; end some, or raise "
			"clients_per_user in gpt2d.conf(5)",
			(long long)s->clients_per_uid);
	} else {
		let_in(c, fd, &peer);
	}
}

/* ---- the socket ---- */

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
	struct control *c = arg;

	if (c->listener)
		evconnlistener_enable(c->listener);
}

/* Most likely no descriptor is free: clients in the backlog wait. */
static void on_accept_error(struct evconnlistener *listener, void *arg)
{
	static const struct timeval pause = {ACCEPT_PAUSE_S, 0};
	struct control *c = arg;

	log_write(LOG_WARNING, "control: accept: %s; none accepted for %d s", strerror(errno),
		ACCEPT_PAUSE_S);
	evconnlistener_disable(listener);
	event_add(c->resume, &pause);
}

static int bind_socket(struct control *c, char *error, size_t error_bytes)
{
	const struct place_access access = place_access(c->o.settings);
	int fd, rc = place_make_socket_dir(c->o.socket, &access, error, error_bytes);

	if (rc == 0)
		rc = place_bind(c->o.socket, &access, &fd, &c->mark, error, error_bytes);
	if (rc < 0)
		return rc;
	if (c->listener)
		evconnlistener_free(c->listener);
	c->listener = evconnlistener_new(c->o.client.base, on_accept, c,
		LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, BACKLOG, fd);
	evconnlistener_set_error_cb(c->listener, on_accept_error);
	return 0;
}

/*
 * logind removes /run/user/UID at the last logout of a user whose gpt2d still runs, and creates it
 * again at the next login.
 */
static void on_check(evutil_socket_t fd, short what, void *arg)
{
	struct control *c = arg;
	char error[512];

	if (place_unchanged(c->o.socket, &c->mark)) {
		c->lost = false;
	} else if (bind_socket(c, error, sizeof(error)) == 0) {
		c->lost = false;
		log_write(
			LOG_WARNING, "socket: %s: removed; gpt2d has bound it again", c->o.socket);
	} else if (!c->lost) {
		c->lost = true;
		log_write(LOG_ERROR, "socket: %s: removed, and clients cannot find gpt2d: %s",
			c->o.socket, error);
	}
}

void control_stop_listening(struct control *c)
{
	if (c->listener == NULL)
		return;
	event_del(c->check);
	evconnlistener_free(c->listener);
	c->listener = NULL;
	place_unlink(c->o.socket, &c->mark);
}

/* ---- all of it ---- */

int control_create(const struct control_options *options, struct control **out, char *error,
	size_t error_bytes)
{
	static const struct timeval every = {CHECK_S, 0};
	struct control *c = memory_zeroed(1, sizeof(*c));
	int rc;

	c->o = *options;
	TAILQ_INIT(&c->seats);
	c->resume = evtimer_new(c->o.client.base, on_resume, c);
	c->check = event_new(c->o.client.base, -1, EV_PERSIST, on_check, c);
	rc = bind_socket(c, error, error_bytes);
	if (rc < 0) {
		control_destroy(c);
		return rc;
	}
	event_add(c->check, &every);
	*out = c;
	return 0;
}

void control_destroy(struct control *c)
{
	if (c == NULL)
		return;
	if (c->listener)
		evconnlistener_free(c->listener);
	while (!TAILQ_EMPTY(&c->seats))
		client_destroy(TAILQ_FIRST(&c->seats)->client);
	event_free(c->resume);
	event_free(c->check);
	free(c);
}

int64_t control_clients(const struct control *c)
{
	return c->n_clients;
}

bool control_idle(const struct control *c)
{
	struct seat *seat;

	TAILQ_FOREACH(seat, &c->seats, link)
		if (client_unwritten_bytes(seat->client) > 0)
			return false;
	return true;
}

void control_end_requests(struct control *c)
{
	struct seat *seat;

	TAILQ_FOREACH(seat, &c->seats, link)
		client_end_requests(seat->client);
}

bool control_served(const struct control *c)
{
	struct seat *seat;

	TAILQ_FOREACH(seat, &c->seats, link)
		if (!client_served(seat->client))
			return false;
	return true;
}
