#include "daemon/store/stuck.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/host/clock.h"
#include "daemon/daemon.h"
#include "daemon/config/log.h"
#include "daemon/config/notify.h"
#include "daemon/store/store.h"

enum {
	LOOK_S = 2,
	STUCK_S = 7, /* a database that is locked is waited for 5 s, and then said to be */
	/* So often it is seen again at least: a gpt2d that was stopped itself has not waited. */
	LOOKS = 3,
};

static const int64_t end_ns = CLOCK_S_NS / 2; /* the end is silent no longer */

static const char advice[] =
	"what was accepted is kept, and all that waits for it goes on by itself once it answers: "
	"see what dmesg(1) says of its disk, or whether the server that it is on can be reached";
static const char advice_files[] =
	"or the data that a run names has not; what was accepted is kept, and all that waits for "
	"it goes on by itself once it answers: see what dmesg(1) says of these disks, or whether "
	"the servers that they are on can be reached";

struct stuck {
	struct daemon *daemon;
	struct event *timer;
	int64_t begun_ns; /* of what was being done at the last look */
	int looks;        /* after the first that saw it */
	bool told;
	struct stuck_found found; /* when told */
};

/* ---- in the store's thread ---- */

void stuck_begin(struct stuck_watch *w, bool files)
{
	atomic_store(&w->files, files);
	atomic_store(&w->begun_ns, clock_mono_ns());
}

void stuck_end(struct stuck_watch *w)
{
	atomic_store(&w->begun_ns, 0);
}

/* ---- in the loop ---- */

double stuck_busy_s(const struct stuck_watch *w)
{
	const int64_t begun_ns = atomic_load(&w->begun_ns);

	return begun_ns ? (double)(clock_mono_ns() - begun_ns) / 1e9 : 0;
}

static void describe(const struct daemon *d, int64_t begun_ns, struct stuck_found *out)
{
	const bool files = atomic_load(&store_stuck(d->store)->files);

	snprintf(out->path, sizeof(out->path), "%s", files ? d->state_dir : store_path(d->store));
	out->since_ns = clock_utc_ns() - (clock_mono_ns() - begun_ns);
	out->advice = files ? advice_files : advice;
}

static void tell_begin(struct stuck *s)
{
	char since[CLOCK_TEXT_BYTES];

	s->told = true;
	describe(s->daemon, s->begun_ns, &s->found);
	clock_text(s->found.since_ns, since);
	log_write(LOG_WARNING, "%s: has not answered since %s; %s", s->found.path, since,
		s->found.advice);
}

static void tell_over(struct stuck *s)
{
	s->told = false;
	log_write(LOG_INFO, "%s: answers again, after %lld s", s->found.path,
		(long long)((clock_mono_ns() - s->begun_ns) / CLOCK_S_NS));
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct stuck *s = arg;
	const int64_t begun_ns = atomic_load(&store_stuck(s->daemon->store)->begun_ns);

	if (s->told && begun_ns != s->begun_ns)
		tell_over(s);
	s->looks = begun_ns != 0 && begun_ns == s->begun_ns ? s->looks + 1 : 0;
	s->begun_ns = begun_ns;
	if (!s->told && s->looks >= LOOKS && clock_mono_ns() - begun_ns >= STUCK_S * CLOCK_S_NS)
		tell_begin(s);
}

int stuck_create(struct daemon *d, struct stuck **out)
{
	static const struct timeval every = {LOOK_S, 0};
	struct stuck *s = calloc(1, sizeof(*s));

	if (s == NULL)
		return -ENOMEM;
	s->daemon = d;
	s->timer = event_new(d->base, -1, EV_PERSIST, on_timer, s);
	if (s->timer == NULL || event_add(s->timer, &every) < 0) {
		stuck_destroy(s);
		return -ENOMEM;
	}
	*out = s;
	return 0;
}

void stuck_destroy(struct stuck *s)
{
	if (s == NULL)
		return;
	if (s->timer)
		event_free(s->timer);
	free(s);
}

bool stuck_look(const struct daemon *d, struct stuck_found *out)
{
	if (d->stuck->told)
		*out = d->stuck->found;
	return d->stuck->told;
}

json_t *stuck_json(const struct daemon *d)
{
	struct stuck_found found;

	if (!stuck_look(d, &found))
		return json_null();
	return json_pack("{ss so ss}", "path", found.path, "since", clock_json(found.since_ns),
		"advice", found.advice);
}

void stuck_tell_end(const struct daemon *d)
{
	const int64_t begun_ns = d->store ? atomic_load(&store_stuck(d->store)->begun_ns) : 0;
	struct stuck_found found;
	char since[CLOCK_TEXT_BYTES];

	if (begun_ns == 0 || clock_mono_ns() - begun_ns < end_ns)
		return;
	describe(d, begun_ns, &found);
	clock_text(found.since_ns, since);
	log_write(LOG_WARNING, "%s: has not answered since %s: gpt2d ends when it does", found.path,
		since);
	notify_send("STATUS=stopping, the disk of %.200s has not answered since %s", d->state_dir,
		since);
}
