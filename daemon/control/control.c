#include "daemon/control/control.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/config/clock.h"
#include "daemon/config/log.h"
#include "daemon/control/role.h"
#include "daemon/config/settings.h"
#include "daemon/config/userns.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"

enum { ACCEPT_PAUSE_S = 1, BACKLOG = 128 };
enum {
	DESCRIPTORS_PER_RANK = 2, /* its link, what it prints */
	DESCRIPTORS_ELSE = 62,    /* and the other ends of those while a process is started */
};

struct seat {
	TAILQ_ENTRY(seat) link;
	struct client *client;
};

struct control {
	struct control_options o;
	struct evconnlistener *listener;
	struct event *resume;
	TAILQ_HEAD(, seat) seats;
	int64_t n_clients;
	uint64_t last_number;
};

static void on_gone(struct client *client, void *arg)
{
	struct control *c = arg;
	struct seat *seat;

	c->o.client.gone(client, c->o.client.arg);
	TAILQ_FOREACH(seat, &c->seats, link)
		if (seat->client == client)
			break;
	if (seat == NULL)
		return;
	TAILQ_REMOVE(&c->seats, seat, link);
	c->n_clients--;
	free(seat);
}

static void on_request(struct reply *reply, const struct rpc_message *message, void *arg)
{
	struct control *c = arg;

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

/* A line of its own to somebody who is not let in: as much as the socket takes at once. */
static void turn_away(int fd, const char *why)
{
	size_t n = 0;
	char *line = rpc_error(NULL, PROTOCOL_BUSY, why, NULL, &n);

	if (line == NULL || send(fd, line, n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		log_write(LOG_DEBUG, "client: turned away without a word");
	free(line);
	close(fd);
}

/* For a limit that is a setting. */
static void turn_away_all(int fd, const char *why, int64_t limit, const char *setting)
{
	char text[160];

	snprintf(text, sizeof(text),
		"%s: %lld are connected; end some, or raise %s in gpt2d.conf(5)", why,
		(long long)limit, setting);
	turn_away(fd, text);
}

int64_t control_descriptors_kept(int64_t ranks)
{
	return DESCRIPTORS_ELSE + ranks * DESCRIPTORS_PER_RANK;
}

/* Whether all but those that are kept are clients'. */
static bool descriptors_taken(const struct control *c)
{
	const int64_t kept = control_descriptors_kept(c->o.settings->ranks);
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur > INT_MAX)
		return false;
	return c->n_clients >= (int64_t)limit.rlim_cur - kept;
}

static void turn_away_starved(const struct control *c, int fd)
{
	char text[160];

	snprintf(text, sizeof(text),
		"gpt2d has no more descriptors for clients: %lld are kept for %lld rank%s and "
		"files; end some clients, or raise LimitNOFILE= of the unit, ulimit -Hn",
		(long long)control_descriptors_kept(c->o.settings->ranks),
		(long long)c->o.settings->ranks, c->o.settings->ranks == 1 ? "" : "s");
	turn_away(fd, text);
}

static void let_in(struct control *c, int fd, const struct ucred *peer)
{
	struct client_options options = c->o.client;
	struct client_peer who = {c->last_number + 1, peer->uid, peer->pid,
		role_is_admin(fd, peer->uid, peer->gid, &c->o.settings->admin_group),
		userns_is_anybody(peer->uid)};
	struct seat *seat = memory_zeroed(1, sizeof(*seat));

	options.idle_s = c->o.settings->client_idle_s;
	options.request = on_request;
	options.gone = on_gone;
	options.arg = c;
	seat->client = client_create(&options, fd, &who);
	c->last_number++;
	c->n_clients++;
	TAILQ_INSERT_TAIL(&c->seats, seat, link);
}

/* Whoever has been idle longest goes, so that nobody is locked out by clients that do nothing. */
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
	snprintf(why, sizeof(why),
		"closed: idle for %lld s, and there are as many clients%s as may be",
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
	} else if (descriptors_taken(c) && !make_room(c, true, 0)) {
		turn_away_starved(c, fd);
	} else if (c->n_clients >= s->clients_max && !make_room(c, true, 0)) {
		turn_away_all(fd, "too many clients", s->clients_max, "clients");
	} else if (clients_of(c, peer.uid) >= s->clients_per_uid &&
		!make_room(c, false, peer.uid)) {
		turn_away_all(fd, "too many clients of this user", s->clients_per_uid,
			"clients_per_user");
	} else {
		let_in(c, fd, &peer);
	}
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
	struct control *c = arg;

	if (c->listener)
		evconnlistener_enable(c->listener);
}

/* Descriptors have run out, most likely: those who wait in the backlog wait on. */
static void on_accept_error(struct evconnlistener *listener, void *arg)
{
	static const struct timeval pause = {ACCEPT_PAUSE_S, 0};
	struct control *c = arg;

	log_write(LOG_WARNING, "control: accept: %s; none accepted for %d s", strerror(errno),
		ACCEPT_PAUSE_S);
	evconnlistener_disable(listener);
	event_add(c->resume, &pause);
}

int control_create(const struct control_options *options, struct control **out)
{
	struct control *c = calloc(1, sizeof(*c));

	if (c == NULL) {
		close(options->fd);
		return -ENOMEM;
	}
	c->o = *options;
	TAILQ_INIT(&c->seats);
	c->resume = evtimer_new(c->o.client.base, on_resume, c);
	if (control_listen(c, c->o.fd) < 0 || !c->resume) {
		control_destroy(c);
		return -ENOMEM;
	}
	*out = c;
	return 0;
}

int control_listen(struct control *c, int fd)
{
	struct evconnlistener *listener = evconnlistener_new(c->o.client.base, on_accept, c,
		LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, BACKLOG, fd);

	if (listener == NULL) {
		close(fd);
		return -ENOMEM;
	}
	control_stop_listening(c);
	evconnlistener_set_error_cb(listener, on_accept_error);
	c->listener = listener;
	return 0;
}

void control_stop_listening(struct control *c)
{
	if (c->listener)
		evconnlistener_free(c->listener);
	c->listener = NULL;
}

void control_destroy(struct control *c)
{
	if (c == NULL)
		return;
	control_stop_listening(c);
	while (!TAILQ_EMPTY(&c->seats))
		client_destroy(TAILQ_FIRST(&c->seats)->client);
	if (c->resume)
		event_free(c->resume);
	free(c);
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

int64_t control_clients(const struct control *c)
{
	return c->n_clients;
}
