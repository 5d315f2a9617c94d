#include "ctl/link/watch.h"

#include <string.h>
#include <time.h>

#include "ctl/print/format.h"
#include "ctl/link/interrupt.h"
#include "ctl/verbs/look.h"
#include "ctl/print/output.h"
#include "ctl/verbs/queued.h"
#include "ctl/print/states.h"
#include "ctl/print/text.h"
#include "proto/host/clock.h"

/* What is last here tells more. */
int watch_worse(int a, int b)
{
	static const int order[] = {CTL_OK, CTL_CANCELLED, CTL_GATE_FAILED, CTL_RUN_FAILED,
		CTL_NO_SUCH_RUN, CTL_WRONG_STATE, CTL_NOT_ALLOWED, CTL_USAGE, CTL_NOT_NOW,
		CTL_GPT2D_FAILED, CTL_TIMEOUT, CTL_TRANSPORT};
	int at_a = -1, at_b = -1;

	for (int i = 0; i < (int)(sizeof(order) / sizeof(order[0])); i++) {
		if (order[i] == a)
			at_a = i;
		if (order[i] == b)
			at_b = i;
	}
	return at_b > at_a ? b : a;
}

static void show(struct ctl *ctl, const struct watch *w, const char *event, json_t *params)
{
	if (!w->progress)
		return;
	/* events carry the id only; people want the name */
	if (*w->name && !json_object_get(params, "name"))
		json_object_set_new(params, "name", json_string(w->name));
	ctl->output->event(ctl, w->progress, event, params);
}

static void remember_end(struct watch *w, const json_t *object)
{
	format_string(object, "state", "", w->state, sizeof(w->state));
	format_string(object, "reason", "", w->reason, sizeof(w->reason));
	format_string(object, "dir", w->dir, w->dir, sizeof(w->dir));
}

void watch_last_take(struct watch_last *l, const json_t *object)
{
	char state[32], reason[sizeof(l->unstored)];
	const char *unstored;

	format_string(object, "reason", "", reason, sizeof(reason));
	unstored = text_unstored(reason);
	snprintf(l->unstored, sizeof(l->unstored), "%s", unstored ? unstored : "");
	format_string(object, "state", "", state, sizeof(state));
	l->queued = strcmp(state, "queued") == 0;
}

const char *watch_last_does(const struct watch_last *l)
{
	return l->queued ? "stays queued" : "goes on";
}

const char *watch_last_say(const struct watch_last *l, int64_t id, char out[WATCH_LAST_BYTES])
{
	if (l->unstored[0] != '\0')
		snprintf(out, WATCH_LAST_BYTES, "run %lld has ended, but %s\nsee: gpt2ctl status",
			(long long)id, l->unstored);
	else
		snprintf(out, WATCH_LAST_BYTES,
			"run %lld %s\nsee it: gpt2ctl follow %lld; end it: gpt2ctl cancel %lld",
			(long long)id, watch_last_does(l), (long long)id, (long long)id);
	return out;
}

/* What is known of the stream of events: numbers start anew with each start. */
struct stream {
	struct watch_last last;
	struct queued queued;
	char start[CLIENT_START_BYTES]; /* of the daemon that numbers them */
	int64_t seq;                    /* the last event seen, 0 before the first */
	bool ended; /* the run had ended when it was asked for: only run.done is to come */
	/* something since the connection was made: an event, or the answer of another start */
	bool heard;
};

/* With --json the events alone are printed. */
static bool tells_queued(const struct ctl *ctl, const struct watch *w, const struct stream *s)
{
	return !ctl->json && w->progress && s->last.queued;
}

/* reply: to follow or show. */
static void show_queued(struct ctl *ctl, struct watch *w, struct stream *s, const json_t *reply)
{
	const json_t *outlook = json_object_get(reply, "outlook");
	const bool told = w->told;

	if (!tells_queued(ctl, w, s))
		return;
	w->told = false;
	if (!queued_take(&s->queued, outlook) || told)
		return;
	show(ctl, w, EVENT_STATE, json_object_get(reply, "run"));
	text_outlook(w->progress->term, outlook);
	output_goes_on(ctl);
}

static void look_queued(
	struct ctl *ctl, const struct client *c, struct watch *w, struct stream *s)
{
	json_t *shown = client_is_silent(c) ? NULL : look_once(ctl, w->id);

	show_queued(ctl, w, s, shown);
	json_decref(shown);
}

/* When to look up from the events; clock_mono_ns, -1: never. */
static int64_t next_look_ns(const struct ctl *ctl, const struct watch *w, const struct stream *s)
{
	if (tells_queued(ctl, w, s) &&
		(w->deadline_ns < 0 || s->queued.look_ns < w->deadline_ns))
		return s->queued.look_ns;
	return w->deadline_ns;
}

/*
 * Where a run is that had begun before it was followed; with --json the events alone are printed.
 */
static void show_begun(struct ctl *ctl, const struct watch *w, const json_t *reply)
{
	json_t *progress = json_object_get(reply, "progress");

	if (ctl->json)
		return;
	show(ctl, w, EVENT_STATE, json_object_get(reply, "run"));
	if (json_is_object(progress)) {
		json_object_set_new(progress, "id", json_integer(w->id));
		show(ctl, w, EVENT_STEP, progress);
	}
}

static int begin(
	struct ctl *ctl, struct client *c, struct watch *w, struct stream *s, struct ctl_error *e)
{
	json_t *params = json_pack("{s:I}", "id", (json_int_t)w->id), *reply, *run;
	const bool another = client_note_start(c, s->start);
	int exit;

	if (another)
		s->seq = 0;
	if (s->seq > 0)
		json_object_set_new(params, "after", json_integer(s->seq));
	exit = client_request(c, METHOD_FOLLOW, params, CLIENT_REPLY_S, &reply, e);
	if (exit)
		return exit;
	s->heard |= another;
	run = json_object_get(reply, "run");
	format_string(run, "name", "", w->name, sizeof(w->name));
	remember_end(w, run);
	watch_last_take(&s->last, run);
	/* an end that is not on disk yet may be another one after a restart */
	s->ended = states_exit(w->state) >= 0 && !json_is_object(json_object_get(reply, "store"));
	if (s->last.queued)
		show_queued(ctl, w, s, reply);
	else if (s->seq == 0 && !s->ended)
		show_begun(ctl, w, reply);
	if (!ctl->json && json_is_object(json_object_get(reply, "store")))
		show(ctl, w, EVENT_STORE, reply);
	json_decref(reply);
	return 0;
}

int watch_timed_out_silent(int64_t id, struct ctl_error *e)
{
	return ctl_error_set(e, CTL_TIMEOUT,
		"run %lld has not ended in time as far as is known: gpt2d does not answer; see: "
		"gpt2ctl status",
		(long long)id);
}

static int timed_out(
	const struct client *c, const struct watch *w, const struct stream *s, struct ctl_error *e)
{
	if (client_is_silent(c))
		return watch_timed_out_silent(w->id, e);
	return ctl_error_set(e, CTL_TIMEOUT,
		"run %lld has not ended in time; it %s, see: gpt2ctl follow %lld",
		(long long)w->id, watch_last_does(&s->last), (long long)w->id);
}

static int detached(const struct watch *w, const struct stream *s, struct ctl_error *e)
{
	char text[WATCH_LAST_BYTES];

	return ctl_error_set(
		e, CTL_CANCELLED, "detached; %s", watch_last_say(&s->last, w->id, text));
}

/* What happened, and, from the end of its line on, what one may do about it. */
static void split(const char *message, char *first, char *rest)
{
	const size_t n = strcspn(message, "\n");

	memcpy(first, message, n);
	first[n] = '\0';
	strcpy(rest, message + n);
}

int watch_reconnect(struct ctl *ctl, struct client **c, int64_t id, bool queued,
	int64_t deadline_ns, struct ctl_error *e)
{
	const int64_t until_ns = clock_mono_ns() + WATCH_RETURN_S * CLOCK_S_NS;
	const struct timespec pause = {0, 100000000};
	char why[sizeof(e->message)], look[sizeof(e->message)];
	int exit;

	split(e->message, why, look);
	if (!ctl->json)
		fprintf(ctl->err.file, "gpt2ctl: %s; looking for it again\n", why);
	client_close(*c);
	*c = NULL;
	do {
		nanosleep(&pause, NULL);
		ctl_error_clear(e);
		exit = client_open_until(ctl, deadline_ns, c, e);
		/* one that is ending takes a connection, and ends it */
	} while ((exit == CTL_NO_DAEMON || exit == CTL_TRANSPORT) && clock_mono_ns() < until_ns &&
		!interrupt_seen());
	if (exit != CTL_NO_DAEMON)
		return exit;
	if (id == 0)
		return ctl_error_set(e, CTL_TRANSPORT, "%s, and no daemon came back in %d s%s", why,
			WATCH_RETURN_S,
			look[0] != '\0' ? look : "\nwhether gpt2d runs: gpt2ctl status");
	if (queued)
		return ctl_error_set(e, CTL_TRANSPORT,
			"%s, and no daemon came back in %d s; run %lld was queued when it was last "
			"heard of, and what is queued waits for gpt2d\n"
			"once gpt2d runs again: gpt2ctl follow %lld",
			why, WATCH_RETURN_S, (long long)id, (long long)id);
	return ctl_error_set(e, CTL_TRANSPORT,
		"%s, and no daemon came back in %d s; how run %lld ended is not known\n"
		"once gpt2d runs again: gpt2ctl show %lld",
		why, WATCH_RETURN_S, (long long)id, (long long)id);
}

/* One event: true when it was the last of the run. */
static bool take_event(
	struct ctl *ctl, struct watch *w, struct stream *s, const char *event, json_t *params)
{
	const bool last = strcmp(event, EVENT_DONE) == 0;
	const int64_t seq = format_int(params, "seq", 0);

	if (format_int(params, "id", w->id) != w->id)
		return false; /* of a run followed before on this connection */
	if (!last && seq > 0 && seq <= s->seq)
		return false; /* seen before the reconnection */
	s->seq = seq;
	if (strcmp(event, EVENT_STATE) == 0) {
		watch_last_take(&s->last, params);
		s->queued = (struct queued){.code = ""};
	}
	show(ctl, w, event, params);
	if (last)
		remember_end(w, params);
	return last;
}

/*
 * Events until the end: 0; CTL_NO_DAEMON when the connection was lost; or the exit code of what
 * came between, with e.
 */
static int watch_events(
	struct ctl *ctl, struct client *c, struct watch *w, struct stream *s, struct ctl_error *e)
{
	/* a daemon that sends no run.done for a run that had ended is not waited for */
	const int64_t grace_ns = clock_mono_ns() + 2000000000;
	char event[64];
	json_t *params;
	bool last;

	while (!ctl->out_failed) {
		const int64_t look_ns = next_look_ns(ctl, w, s);

		switch (client_next(c, s->ended ? grace_ns : look_ns, event, &params, e)) {
		case CLIENT_EVENT:
			s->heard = true;
			last = take_event(ctl, w, s, event, params);
			json_decref(params);
			if (last)
				return 0;
			break;
		case CLIENT_QUIET:
			if (s->ended)
				return 0;
			if (look_ns == w->deadline_ns)
				return timed_out(c, w, s, e);
			look_queued(ctl, c, w, s);
			break;
		case CLIENT_INTERRUPTED:
			return detached(w, s, e);
		case CLIENT_LOST:
			return s->ended ? 0 : CTL_NO_DAEMON;
		}
	}
	return ctl_error_set(e, CTL_TRANSPORT, "nothing more is shown; run %lld %s",
		(long long)w->id, watch_last_does(&s->last));
}

int watch_lost_twice(int64_t id, bool queued, struct ctl_error *e)
{
	if (queued)
		return ctl_error_set(e, CTL_TRANSPORT,
			"connection to gpt2d lost twice; run %lld was queued when it was last "
			"heard of\n"
			"go on with: gpt2ctl follow %lld",
			(long long)id, (long long)id);
	return ctl_error_set(e, CTL_TRANSPORT,
		"connection to gpt2d lost twice; how run %lld ends is not known here\n"
		"go on with: gpt2ctl follow %lld",
		(long long)id, (long long)id);
}

static void clear_bar(void *progress)
{
	progress_clear(progress);
}

/* Until the run's end, over losses of the connection: 0, or an exit code with e. */
static int watch_to_end(struct ctl *ctl, struct client **c, struct watch *w, struct ctl_error *e)
{
	struct stream s = {.heard = true};
	int exit;

	for (;;) {
		if (w->progress)
			client_before_notice(*c, clear_bar, w->progress);
		exit = begin(ctl, *c, w, &s, e);
		if (exit == 0)
			exit = watch_events(ctl, *c, w, &s, e);
		else if (client_lost(*c))
			exit = CTL_NO_DAEMON;
		if (exit != CTL_NO_DAEMON)
			break;
		if (w->progress)
			progress_clear(w->progress);
		if (!s.heard)
			return watch_lost_twice(w->id, s.last.queued, e);
		s.heard = false;
		exit = watch_reconnect(ctl, c, w->id, s.last.queued, w->deadline_ns, e);
		if (exit)
			break;
	}
	return exit;
}

int watch_run(struct ctl *ctl, struct client **c, struct watch *w, struct ctl_error *e)
{
	int exit;

	w->name[0] = w->state[0] = w->reason[0] = w->dir[0] = '\0';
	exit = watch_to_end(ctl, c, w, e);
	if (w->progress)
		progress_clear(w->progress);
	if (exit) {
		w->state[0] = '\0';
		return exit;
	}
	exit = states_exit(w->state);
	if (exit >= 0)
		return exit;
	ctl_error_set(e, CTL_TRANSPORT, "run %lld ended in a state not known here: %s",
		(long long)w->id, w->state);
	w->state[0] = '\0';
	return e->exit;
}
