#include "daemon/control/follow.h"

#include <errno.h>
#include <event2/event.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"
#include "proto/rpc.h"

enum {
	KEPT_EVENTS = 1024, /* of a run, for late followers */
	KEPT_BYTES = 1 << 20,
	FOLLOWS_PER_CLIENT = 64,
	STEP_MS = 100,
	BUCKETS = 1024,
};

struct kept {
	TAILQ_ENTRY(kept) link;
	int64_t seq;
	char *line;
	size_t n;
};

struct follower {
	TAILQ_ENTRY(follower) link;
	struct client *client;
	int64_t dropped;
};

/* The events of one run; made by the first event or follower. */
struct stream {
	LIST_ENTRY(stream) link;
	int64_t id;
	int64_t seq;
	TAILQ_HEAD(, kept) kept;
	int64_t n_kept;
	size_t kept_bytes;
	TAILQ_HEAD(, follower) followers;
	json_t *progress; /* the newest step */
	bool step_waits;  /* progress has not been sent */
	int64_t step_sent_ns;
	struct event *timer;
};

struct follow {
	struct event_base *base;
	LIST_HEAD(streams, stream) bucket[BUCKETS]; /* by id */
};

struct follow *follow_create(struct event_base *base)
{
	struct follow *f = memory_zeroed(1, sizeof(*f));

	f->base = base;
	return f;
}

/* ---- streams ---- */

static void drop_oldest(struct stream *s)
{
	struct kept *k = TAILQ_FIRST(&s->kept);

	TAILQ_REMOVE(&s->kept, k, link);
	s->n_kept--;
	s->kept_bytes -= k->n;
	free(k->line);
	free(k);
}

static void stream_destroy(struct stream *s)
{
	struct follower *w;

	while ((w = TAILQ_FIRST(&s->followers)) != NULL) {
		TAILQ_REMOVE(&s->followers, w, link);
		free(w);
	}
	while (s->n_kept > 0)
		drop_oldest(s);
	LIST_REMOVE(s, link);
	json_decref(s->progress);
	event_free(s->timer);
	free(s);
}

void follow_destroy(struct follow *f)
{
	if (f == NULL)
		return;
	for (int i = 0; i < BUCKETS; i++)
		while (!LIST_EMPTY(&f->bucket[i]))
			stream_destroy(LIST_FIRST(&f->bucket[i]));
	free(f);
}

static struct stream *find(const struct follow *f, int64_t id)
{
	struct stream *s;

	LIST_FOREACH(s, &f->bucket[(uint64_t)id % BUCKETS], link)
		if (s->id == id)
			return s;
	return NULL;
}

static void on_timer(evutil_socket_t fd, short what, void *arg);

static struct stream *stream_of(struct follow *f, int64_t id)
{
	struct stream *s = find(f, id);

	if (s != NULL)
		return s;
	s = memory_zeroed(1, sizeof(*s));
	s->timer = evtimer_new(f->base, on_timer, s);
	s->id = id;
	TAILQ_INIT(&s->kept);
	TAILQ_INIT(&s->followers);
	LIST_INSERT_HEAD(&f->bucket[(uint64_t)id % BUCKETS], s, link);
	return s;
}

/* ---- events ---- */

/* Takes line. */
static void keep(struct stream *s, char *line, size_t n)
{
	struct kept *k = memory_zeroed(1, sizeof(*k));

	*k = (struct kept){.seq = s->seq, .line = line, .n = n};
	TAILQ_INSERT_TAIL(&s->kept, k, link);
	s->n_kept++;
	s->kept_bytes += n;
	while (s->n_kept > KEPT_EVENTS || (s->kept_bytes > KEPT_BYTES && s->n_kept > 1))
		drop_oldest(s);
}

/* Takes params. */
static char *event_line(int64_t id, int64_t seq, const char *method, json_t *params, size_t *n)
{
	json_t *whole = json_pack("{sI sI so}", "id", (json_int_t)id, "seq", (json_int_t)seq, "at",
		clock_json(clock_utc_ns()));

	json_object_update_missing(whole, params);
	json_decref(params);
	return rpc_notification(method, whole, n);
}

static void send_event(struct stream *s, const char *method, json_t *params)
{
	struct follower *w;
	size_t n = 0;
	char *line = event_line(s->id, ++s->seq, method, params, &n);

	TAILQ_FOREACH(w, &s->followers, link)
		if (!client_event(w->client, line, n))
			w->dropped++;
	keep(s, line, n);
}

static void send_step(struct stream *s)
{
	if (!s->step_waits)
		return;
	s->step_waits = false;
	s->step_sent_ns = clock_mono_ns();
	send_event(s, EVENT_STEP, json_copy(s->progress));
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	send_step(arg);
}

void follow_event(struct follow *f, int64_t id, const char *method, json_t *params)
{
	struct stream *s = stream_of(f, id);

	send_step(s); /* a waiting step came before this event */
	send_event(s, method, params);
}

void follow_step(struct follow *f, int64_t id, json_t *progress)
{
	static const struct timeval later = {0, STEP_MS * 1000};
	struct stream *s = stream_of(f, id);

	json_decref(s->progress);
	s->progress = progress;
	s->step_waits = true;
	if (clock_mono_ns() - s->step_sent_ns >= STEP_MS * CLOCK_MS_NS)
		send_step(s);
	else if (!evtimer_pending(s->timer, NULL))
		evtimer_add(s->timer, &later);
}

json_t *follow_progress(const struct follow *f, int64_t id)
{
	const struct stream *s = find(f, id);

	return s != NULL && s->progress != NULL ? json_incref(s->progress) : json_null();
}

void follow_clear_progress(struct follow *f, int64_t id)
{
	struct stream *s = find(f, id);

	if (s == NULL)
		return;
	send_step(s);
	json_decref(s->progress);
	s->progress = NULL;
}

/* Takes done. */
static void send_done(struct client *client, int64_t id, int64_t seq, json_t *done, int64_t dropped)
{
	size_t n = 0;
	char *line;

	json_object_set_new(done, "dropped", json_integer(dropped));
	line = event_line(id, seq, EVENT_DONE, done, &n);
	client_last_event(client, line, n);
	free(line);
}

void follow_end(struct follow *f, int64_t id, json_t *done)
{
	struct stream *s = find(f, id);
	struct follower *w;

	if (s != NULL) {
		send_step(s);
		s->seq++;
		TAILQ_FOREACH(w, &s->followers, link) {
			send_done(w->client, id, s->seq, json_copy(done), w->dropped);
			client_add_follows(w->client, -1);
		}
		stream_destroy(s);
	}
	json_decref(done);
}

void follow_ended(struct client *client, int64_t id, json_t *done)
{
	send_done(client, id, 1, done, 0);
}

void follow_store(struct follow *f, json_t *store)
{
	struct stream *s;

	for (int i = 0; i < BUCKETS; i++)
		LIST_FOREACH(s, &f->bucket[i], link)
			if (!TAILQ_EMPTY(&s->followers))
				follow_event(
					f, s->id, EVENT_STORE, json_pack("{sO}", "store", store));
}

/* ---- followers ---- */

static struct follower *follower_of(struct stream *s, const struct client *client)
{
	struct follower *w;

	TAILQ_FOREACH(w, &s->followers, link)
		if (w->client == client)
			return w;
	return NULL;
}

int follow_add(struct follow *f, int64_t id, struct client *client, int64_t *seq, int64_t *first)
{
	struct stream *s = stream_of(f, id);
	struct follower *w;

	if (follower_of(s, client) != NULL)
		return -EALREADY;
	if (client_follows(client) >= FOLLOWS_PER_CLIENT)
		return -E2BIG;
	w = memory_zeroed(1, sizeof(*w));
	w->client = client;
	TAILQ_INSERT_TAIL(&s->followers, w, link);
	client_add_follows(client, 1);
	*seq = s->seq;
	*first = s->n_kept > 0 ? TAILQ_FIRST(&s->kept)->seq : s->seq + 1;
	return 0;
}

void follow_replay(struct follow *f, int64_t id, struct client *client, int64_t after)
{
	struct stream *s = find(f, id);
	struct follower *w = s ? follower_of(s, client) : NULL;
	struct kept *k;

	if (w == NULL)
		return;
	TAILQ_FOREACH(k, &s->kept, link)
		if (k->seq > after && !client_event(client, k->line, k->n))
			w->dropped++;
}

void follow_forget(struct follow *f, struct client *client)
{
	struct stream *s;
	struct follower *w;

	for (int i = 0; i < BUCKETS && client_follows(client) > 0; i++)
		LIST_FOREACH(s, &f->bucket[i], link) {
			w = follower_of(s, client);
			if (w == NULL)
				continue;
			client_add_follows(client, -1);
			TAILQ_REMOVE(&s->followers, w, link);
			free(w);
		}
}
