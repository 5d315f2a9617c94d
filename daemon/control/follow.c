#include "daemon/control/follow.h"

#include <errno.h>
#include <event2/event.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "daemon/config/clock.h"
#include "daemon/config/log.h"
#include "proto/protocol.h"
#include "proto/rpc.h"

enum {
	KEPT_EVENTS = 1024, /* of a run, for late followers */
	KEPT_BYTES = 1 << 20,
	FOLLOWS_PER_CLIENT = 64,
	STEP_MS = 100,
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

struct follow_stream {
	TAILQ_ENTRY(follow_stream) link;
	struct follow *follow;
	struct run *run;
	int64_t seq;
	TAILQ_HEAD(kept_head, kept) kept;
	int64_t n_kept;
	size_t kept_bytes;
	TAILQ_HEAD(follower_head, follower) followers;
	json_t *progress; /* the newest step */
	bool step_waits;  /* progress has not been sent */
	int64_t step_sent_ns;
	struct event *timer;
};

struct follow {
	struct event_base *base;
	const char *state_dir;
	TAILQ_HEAD(, follow_stream) streams;
};

struct follow *follow_create(struct event_base *base, const char *state_dir)
{
	struct follow *f = calloc(1, sizeof(*f));

	if (f == NULL)
		return NULL;
	f->base = base;
	f->state_dir = state_dir;
	TAILQ_INIT(&f->streams);
	return f;
}

static void drop_oldest(struct follow_stream *s)
{
	struct kept *k = TAILQ_FIRST(&s->kept);

	TAILQ_REMOVE(&s->kept, k, link);
	s->n_kept--;
	s->kept_bytes -= k->n;
	free(k->line);
	free(k);
}

static void stream_destroy(struct follow_stream *s)
{
	struct follower *w;

	while ((w = TAILQ_FIRST(&s->followers)) != NULL) {
		TAILQ_REMOVE(&s->followers, w, link);
		free(w);
	}
	while (s->n_kept > 0)
		drop_oldest(s);
	TAILQ_REMOVE(&s->follow->streams, s, link);
	s->run->stream = NULL;
	json_decref(s->progress);
	event_free(s->timer);
	free(s);
}

void follow_destroy(struct follow *f)
{
	if (f == NULL)
		return;
	while (!TAILQ_EMPTY(&f->streams))
		stream_destroy(TAILQ_FIRST(&f->streams));
	free(f);
}

static void on_timer(evutil_socket_t fd, short what, void *arg);

static struct follow_stream *stream_of(struct follow *f, struct run *run)
{
	struct follow_stream *s = run->stream;

	if (s != NULL)
		return s;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return NULL;
	s->timer = evtimer_new(f->base, on_timer, s);
	if (s->timer == NULL) {
		free(s);
		return NULL;
	}
	s->follow = f;
	s->run = run;
	TAILQ_INIT(&s->kept);
	TAILQ_INIT(&s->followers);
	TAILQ_INSERT_TAIL(&f->streams, s, link);
	run->stream = s;
	return s;
}

/* Takes line. */
static void keep(struct follow_stream *s, char *line, size_t n)
{
	struct kept *k = malloc(sizeof(*k));

	if (k == NULL) {
		free(line);
		return;
	}
	*k = (struct kept){.seq = s->seq, .line = line, .n = n};
	TAILQ_INSERT_TAIL(&s->kept, k, link);
	s->n_kept++;
	s->kept_bytes += n;
	while (s->n_kept > KEPT_EVENTS || (s->kept_bytes > KEPT_BYTES && s->n_kept > 1))
		drop_oldest(s);
}

/* Takes params. NULL without memory. */
static char *event_line(
	const struct run *run, int64_t seq, const char *method, json_t *params, size_t *n)
{
	json_t *whole = json_pack("{sI sI so}", "id", (json_int_t)run->id, "seq", (json_int_t)seq,
		"at", clock_json(clock_utc_ns()));

	if (whole == NULL || params == NULL || json_object_update_missing(whole, params) < 0) {
		json_decref(whole);
		whole = NULL;
	}
	json_decref(params);
	return rpc_notification(method, whole, n);
}

static void send_event(struct follow_stream *s, const char *method, json_t *params)
{
	struct follower *w;
	size_t n = 0;
	char *line = event_line(s->run, ++s->seq, method, params, &n);

	if (line == NULL) {
		log_write(LOG_ERROR, "run %lld: out of memory for an event", (long long)s->run->id);
		TAILQ_FOREACH(w, &s->followers, link)
			w->dropped++;
		return;
	}
	TAILQ_FOREACH(w, &s->followers, link)
		if (!client_event(w->client, line, n))
			w->dropped++;
	keep(s, line, n);
}

static void send_step(struct follow_stream *s)
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

void follow_event(struct follow *f, struct run *run, const char *method, json_t *params)
{
	struct follow_stream *s = stream_of(f, run);

	if (s == NULL) {
		json_decref(params);
		return;
	}
	send_step(s); /* a step that waits came before this */
	send_event(s, method, params);
}

void follow_step(struct follow *f, struct run *run, json_t *progress)
{
	static const struct timeval later = {0, STEP_MS * 1000};
	struct follow_stream *s = stream_of(f, run);

	if (s == NULL || progress == NULL) {
		json_decref(progress);
		return;
	}
	json_decref(s->progress);
	s->progress = progress;
	s->step_waits = true;
	if (clock_mono_ns() - s->step_sent_ns >= STEP_MS * CLOCK_MS_NS)
		send_step(s);
	else if (!evtimer_pending(s->timer, NULL))
		evtimer_add(s->timer, &later);
}

json_t *follow_progress(const struct run *run)
{
	if (run->stream == NULL || run->stream->progress == NULL)
		return json_null();
	if (run_state_ended(run->state))
		return json_null(); /* its end is not durable yet */
	return json_incref(run->stream->progress);
}

void follow_again(struct run *run)
{
	struct follow_stream *s = run->stream;

	if (s == NULL)
		return;
	json_decref(s->progress);
	s->progress = NULL;
	s->step_waits = false;
	evtimer_del(s->timer);
}

static json_t *done_params(const struct run *run, const char *dir, int64_t dropped)
{
	return json_pack("{ss ss? ss sI}", "state", run_state_name(run->state), "reason",
		run->reason[0] ? run->reason : NULL, "dir", dir, "dropped", (json_int_t)dropped);
}

static void send_done(
	struct client *client, const struct run *run, int64_t seq, const char *dir, int64_t dropped)
{
	size_t n = 0;
	char *line = event_line(run, seq, EVENT_DONE, done_params(run, dir, dropped), &n);

	client_last_event(client, line, n);
	free(line);
}

void follow_end(struct follow *f, struct run *run)
{
	struct follow_stream *s = run->stream;
	char dir[PATH_MAX] = "";
	struct follower *w;

	if (s == NULL)
		return;
	send_step(s);
	run_dir(run, f->state_dir, dir, sizeof(dir));
	s->seq++;
	TAILQ_FOREACH(w, &s->followers, link) {
		send_done(w->client, run, s->seq, dir, w->dropped);
		client_add_follows(w->client, -1);
	}
	stream_destroy(s);
}

void follow_store(struct follow *f, json_t *store)
{
	struct follow_stream *s;

	TAILQ_FOREACH(s, &f->streams, link)
		if (!TAILQ_EMPTY(&s->followers))
			follow_event(f, s->run, EVENT_STORE, json_pack("{sO}", "store", store));
}

void follow_ended(struct client *client, const struct run *run, const char *dir)
{
	send_done(client, run, 1, dir, 0);
}

static struct follower *follower_of(struct follow_stream *s, const struct client *client)
{
	struct follower *w;

	TAILQ_FOREACH(w, &s->followers, link)
		if (w->client == client)
			return w;
	return NULL;
}

int follow_add(
	struct follow *f, struct run *run, struct client *client, int64_t *seq, int64_t *first)
{
	struct follow_stream *s = stream_of(f, run);
	struct follower *w;

	if (s == NULL)
		return -ENOMEM;
	if (follower_of(s, client) != NULL)
		return -EALREADY;
	if (client_follows(client) >= FOLLOWS_PER_CLIENT)
		return -E2BIG;
	w = calloc(1, sizeof(*w));
	if (w == NULL)
		return -ENOMEM;
	w->client = client;
	TAILQ_INSERT_TAIL(&s->followers, w, link);
	client_add_follows(client, 1);
	*seq = s->seq;
	*first = s->n_kept > 0 ? TAILQ_FIRST(&s->kept)->seq : s->seq + 1;
	return 0;
}

void follow_replay(struct follow *f, struct run *run, struct client *client, int64_t after)
{
	struct follow_stream *s = run->stream;
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
	struct follow_stream *s;
	struct follower *w;

	TAILQ_FOREACH(s, &f->streams, link) {
		w = follower_of(s, client);
		if (w == NULL)
			continue;
		TAILQ_REMOVE(&s->followers, w, link);
		free(w);
	}
}
