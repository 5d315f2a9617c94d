#include "daemon/control/address.h"

#include <errno.h>
#include <event2/event.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/control/control.h"
#include "daemon/daemon.h"
#include "daemon/config/log.h"
#include "daemon/config/settings.h"

enum { LOOK_S = 2 };

struct address {
	struct daemon *daemon;
	struct event *timer;
	struct place_mark mark; /* of the socket that is ours */
	bool lost;              /* told already: the name does not stand for it */
	char obstacle[512];     /* told already: why there is no new one */
};

struct place_access address_access(const struct settings *s)
{
	bool grouped = s->socket_group.name != NULL;
	int64_t mode = s->socket_mode >= 0 ? s->socket_mode : grouped ? 0660 : 0600;

	return (struct place_access){(mode_t)mode, grouped ? s->socket_group.gid : (gid_t)-1};
}

/* The lock's file may have gone, alone or with the socket; then another gpt2d may have its own. */
static int keep_lock(struct daemon *d, char *error, size_t error_bytes)
{
	int fd, rc;

	if (place_lock_stands(d->socket, d->lock_fds[1]))
		return 0;
	rc = place_lock_now(d->socket, &fd, error, error_bytes);
	if (rc < 0)
		return rc;
	log_write(LOG_WARNING, "%s.lock: it was removed; made and locked anew", d->socket);
	close(d->lock_fds[1]);
	d->lock_fds[1] = fd;
	return 0;
}

static int bind_anew(struct address *a, char *error, size_t error_bytes)
{
	struct daemon *d = a->daemon;
	struct place_access access = address_access(d->settings);
	char parent[sizeof(d->socket)];
	int fd, rc;

	memcpy(parent, d->socket, sizeof(parent));
	rc = place_make_socket_dir(dirname(parent), &access, error, error_bytes);
	if (rc == 0)
		rc = keep_lock(d, error, error_bytes);
	if (rc == 0 && place_answers(d->socket)) {
		snprintf(error, error_bytes, "%s: another program listens there", d->socket);
		rc = -EADDRINUSE;
	}
	if (rc == 0)
		rc = place_bind(d->socket, &access, &fd, &a->mark, error, error_bytes);
	if (rc < 0)
		return rc;
	rc = control_listen(d->control, fd);
	if (rc < 0) {
		place_unlink(d->socket, &a->mark);
		snprintf(error, error_bytes, "%s: %s", d->socket, strerror(-rc));
	}
	return rc;
}

/* What is in the way, "" when nothing is: said when it is new. */
static void tell(struct address *a, const char *error, const char *consequence)
{
	if (error[0] != '\0' && strcmp(error, a->obstacle) != 0)
		log_write(LOG_ERROR, "socket: %s; %s; tried again every %d s", error, consequence,
			LOOK_S);
	strcpy(a->obstacle, error);
}

static void look(struct address *a)
{
	const char *path = a->daemon->socket;
	char error[sizeof(a->obstacle)] = "";

	if (place_stands(path, &a->mark)) {
		if (a->lost)
			log_write(LOG_WARNING, "socket: %s: it is there again", path);
		a->lost = false;
		keep_lock(a->daemon, error, sizeof(error));
		tell(a, error, "the socket is this one's still");
		return;
	}
	if (!a->lost)
		log_write(LOG_WARNING, "socket: %s: it was removed or replaced", path);
	a->lost = true;
	if (bind_anew(a, error, sizeof(error)) == 0) {
		log_write(LOG_WARNING, "socket: %s: bound anew: clients find gpt2d again", path);
		a->lost = false;
		error[0] = '\0';
	}
	tell(a, error, "no client finds gpt2d");
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	look(arg);
}

int address_create(struct daemon *d, int *fd, struct address **out, char *error, size_t error_bytes)
{
	static const struct timeval every = {LOOK_S, 0};
	struct place_access access = address_access(d->settings);
	struct address *a = calloc(1, sizeof(*a));
	int rc = -ENOMEM;

	if (a == NULL)
		return rc;
	a->daemon = d;
	a->timer = event_new(d->base, -1, EV_PERSIST, on_timer, a);
	if (a->timer && event_add(a->timer, &every) == 0)
		rc = place_bind(d->socket, &access, fd, &a->mark, error, error_bytes);
	if (rc < 0)
		address_destroy(a);
	else
		*out = a;
	return rc;
}

void address_destroy(struct address *a)
{
	if (a == NULL)
		return;
	if (a->timer)
		event_free(a->timer);
	free(a);
}

void address_check(struct address *a)
{
	a->obstacle[0] = '\0';
	if (event_pending(a->timer, EV_TIMEOUT, NULL))
		look(a);
}

void address_withdraw(struct address *a)
{
	event_del(a->timer);
	place_unlink(a->daemon->socket, &a->mark);
}
