#include "ctl/verbs/watch.h"

#include <string.h>

#include "ctl/link/interrupt.h"
#include "ctl/print/format.h"
#include "ctl/print/states.h"
#include "ctl/print/text.h"
#include "proto/host/clock.h"

/* Between two requests for the reason of a wait; and for the run.done of a run that has ended. */
enum { ASK_S = 2, DONE_S = 2 };

struct watch_run *watch_open_run(const struct watch *w)
{
	struct watch_run *open = NULL;

	for (size_t i = w->n; i > 0; i--) {
		if (!w->runs[i - 1].ended && !w->runs[i - 1].error)
			open = &w->runs[i - 1];
		else if (w->any && w->runs[i - 1].ended)
			return NULL;
	}
	return open;
}

static struct watch_run *find_run(const struct watch *w, int64_t id)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->runs[i].id == id)
			return &w->runs[i];
	return NULL;
}

static bool is_queued(const struct watch_run *r)
{
	return strcmp(r->state, "queued") == 0;
}

/* object: a run, or the event of a new state. */
static void take_state(struct watch_run *r, const json_t *object)
{
	if (json_object_get(object, "name")) /* events have the ID only */
		format_string(object, "name", "", r->name, sizeof(r->name));
	format_string(object, "state", "", r->state, sizeof(r->state));
	format_string(object, "reason", "", r->reason, sizeof(r->reason));
	format_string(object, "ended_at", "", r->ended_at, sizeof(r->ended_at));
}

static void take_store(struct watch *w, json_t *object)
{
	const bool fails = json_is_object(json_object_get(object, "store"));

	if (fails != w->store_fails && w->event)
		w->event(w, NULL, EVENT_STORE, object);
	w->store_fails = fails;
}

/* ---- why a queued run waits, which events do not contain ---- */

/*
 * Whether an outlook is reported: the first one, and each one with a new code. A run that is being
 * prepared is reported if this is seen twice.
 */
static bool is_news(struct watch_run *r, const json_t *outlook)
{
	const char *waiting = json_string_value(json_object_get(outlook, "waiting"));
	const bool asked = r->asked;
	char code[sizeof(r->waiting)];

	r->ask_ns = clock_mono_ns() + ASK_S * CLOCK_S_NS;
	r->asked = true;
	snprintf(code, sizeof(code), "%s", waiting ? waiting : "");
	code[strcspn(code, ":")] = '\0';
	if (code[0] == '\0' || strcmp(code, r->waiting) == 0 || (!asked && !text_waits(waiting)))
		return false;
	memcpy(r->waiting, code, sizeof(code));
	return true;
}

/* Only the first open run: the others may wait for it. */
static bool reports_waiting(const struct watch *w, const struct watch_run *r)
{
	return w->snapshot && is_queued(r) && r == watch_open_run(w);
}

static void report_waiting(struct watch *w, struct watch_run *r, const json_t *reply)
{
	const bool knows_wait = r->knows_wait;

	if (!reports_waiting(w, r))
		return;
	r->knows_wait = false;
	if (is_news(r, json_object_get(reply, "outlook")) && !knows_wait)
		w->snapshot(w, r, reply);
}

/* 0, or an exit status with e if the connection was lost or a signal came. */
static int ask_waiting(struct watch *w, struct watch_run *r, struct ctl_error *e)
{
	json_t *reply = NULL;
	const int exit = client_request(w->client, METHOD_SHOW,
		json_pack("{s:I, s:i}", "id", (json_int_t)r->id, "limit", 1), CLIENT_PATIENT,
		&reply, e);

	r->ask_ns = clock_mono_ns() + ASK_S * CLOCK_S_NS;
	if (exit == 0)
		report_waiting(w, r, reply);
	else if (client_lost(w->client) || exit == CTL_CANCELLED || exit == CTL_TIMEOUT)
		return exit;
	ctl_error_clear(e);
	json_decref(reply);
	return 0;
}

/* ---- following ---- */

/* The reply to "follow". */
static void take_reply(struct watch *w, struct watch_run *r, json_t *reply)
{
	json_t *run = json_object_get(reply, "run");
	const bool first = r->seq == 0 && !client_restarted(w->client);

	take_state(r, run);
	take_store(w, reply);
	if (states_exit(r->state) >= 0 && w->event && w->n == 1)
		r->done_by_ns = clock_mono_ns() + DONE_S * CLOCK_S_NS;
	else
		r->ended = states_exit(r->state) >= 0;
	r->followed = true;
	if (is_queued(r))
		report_waiting(w, r, reply);
	else if (first && !r->ended && !r->done_by_ns && w->snapshot)
		w->snapshot(w, r, reply);
}

static void note_event(struct watch *w)
{
	w->event_ns = clock_mono_ns();
	w->silent_ns = WATCH_SILENT_S * CLOCK_S_NS;
}

static int follow(struct watch *w, struct watch_run *r, struct ctl_error *e)
{
	json_t *params = json_pack("{s:I}", "id", (json_int_t)r->id), *reply;
	int exit;

	if (r->seq > 0)
		json_object_set_new(params, "after", json_integer(r->seq));
	exit = client_request(w->client, METHOD_FOLLOW, params, CLIENT_PATIENT, &reply, e);
	if (exit == CTL_NO_SUCH_RUN && w->unknown) {
		r->error = exit;
		w->unknown(w, r, e);
		return 0;
	}
	if (exit)
		return exit;
	take_reply(w, r, reply);
	note_event(w);
	json_decref(reply);
	return 0;
}

/* Follows open runs, as many as are allowed at once: 0, or an exit status with e. */
static int follow_more(struct watch *w, struct ctl_error *e)
{
	size_t n = 0;
	int exit = 0;

	for (size_t i = 0; i < w->n; i++)
		n += w->runs[i].followed && !w->runs[i].ended;
	for (size_t i = 0; i < w->n && n < WATCH_RUNS_MAX && exit == 0; i++) {
		struct watch_run *r = &w->runs[i];

		if (r->followed || r->ended || r->error)
			continue;
		exit = follow(w, r, e);
		n += r->followed && !r->ended;
	}
	return exit;
}

static void take_event(struct watch *w, const char *event, json_t *params)
{
	struct watch_run *r = find_run(w, format_int(params, "id", 0));
	const bool done = strcmp(event, EVENT_DONE) == 0;
	const int64_t seq = format_int(params, "seq", 0);

	if (strcmp(event, EVENT_STORE) == 0) {
		take_store(w, params);
		return;
	}
	if (!r || r->ended || (!done && seq > 0 && seq <= r->seq))
		return; /* of a run followed before, or seen before the connection was lost */
	r->seq = seq;
	note_event(w);
	if (done || strcmp(event, EVENT_STATE) == 0) {
		take_state(r, params);
		r->waiting[0] = '\0';
		r->asked = false;
		r->ask_ns = 0;
	}
	if (w->event)
		w->event(w, r, event, params);
	r->ended = done;
}

/* Time of the next request about r, the first open run; -1: none. */
static int64_t next_ns(const struct watch *w, const struct watch_run *r)
{
	if (r->done_by_ns)
		return r->done_by_ns;
	if (reports_waiting(w, r) && w->deadline_ns != 0 &&
		(w->deadline_ns < 0 || r->ask_ns < w->deadline_ns))
		return r->ask_ns;
	if (w->silent && !is_queued(r) &&
		(w->deadline_ns < 0 || w->event_ns + w->silent_ns < w->deadline_ns))
		return w->event_ns + w->silent_ns;
	return w->deadline_ns;
}

/* Nothing came until next_ns(). */
static int take_silence(struct watch *w, struct watch_run *r, int64_t until_ns, struct ctl_error *e)
{
	if (r->done_by_ns) {
		r->ended = true;
		return 0;
	}
	if (until_ns == w->deadline_ns)
		return e->exit = CTL_TIMEOUT;
	if (is_queued(r))
		return ask_waiting(w, r, e);
	if (client_answers(w->client))
		w->silent(w, r, w->silent_ns);
	w->silent_ns *= 2;
	return 0;
}

/* Handles events until no run is open: 0, or an exit status, with e unless it is empty. */
static int take_events(struct watch *w, struct ctl_error *e)
{
	struct watch_run *r;
	char event[64];
	json_t *params;
	int exit = follow_more(w, e);

	while (exit == 0 && (r = watch_open_run(w)) != NULL) {
		const int64_t until_ns = next_ns(w, r);

		if (w->ctl->output.failed)
			return ctl_error_set(e, CTL_TRANSPORT,
				"run %lld is %s; nothing more can be printed", (long long)r->id,
				r->state);
		switch (client_next(w->client, until_ns, event, &params, e)) {
		case CLIENT_EVENT:
			take_event(w, event, params);
			json_decref(params);
			exit = follow_more(w, e);
			break;
		case CLIENT_QUIET:
			exit = take_silence(w, r, until_ns, e);
			break;
		case CLIENT_INTERRUPTED:
			exit = e->exit = CTL_CANCELLED;
			break;
		case CLIENT_LOST:
			r->ended = r->done_by_ns != 0;
			exit = r->ended ? 0 : e->exit;
			break;
		}
	}
	return exit;
}

int watch_until_end(struct watch *w, struct ctl_error *e)
{
	for (;;) {
		int exit = take_events(w, e);

		if (exit == CTL_CANCELLED)
			e->message[0] = '\0';
		if (exit == 0 || !client_lost(w->client))
			return exit;
		exit = client_reopen(w->client, e);
		if (exit)
			return exit;
		w->store_fails = false;
		for (size_t i = 0; i < w->n; i++) {
			w->runs[i].followed = false;
			if (client_restarted(w->client))
				w->runs[i].seq = 0; /* a new gpt2d numbers events from 1 */
		}
	}
}

int watch_explain(const struct watch_run *r, const struct ctl_error *why, struct ctl_error *e)
{
	const char *state = r->state[0] ? r->state : "unknown";
	const long long id = (long long)r->id;
	const int exit = why->exit;
	char text[sizeof(why->message)];

	memcpy(text, why->message, sizeof(text));
	if (exit == CTL_USAGE) /* the request was refused, as by a member of several nodes */
		return ctl_error_set(e, exit, "%s", text);
	if (*text == '\0' && exit == CTL_TIMEOUT)
		return ctl_error_set(e, exit,
			"run %lld has not ended in time (state: %s)\n"
			"follow the run with: gpt2ctl follow %lld",
			id, state, id);
	if (*text == '\0')
		return ctl_error_set(e, exit,
			"interrupted; run %lld continues (state: %s)\n"
			"follow the run with: gpt2ctl follow %lld; end it with: gpt2ctl cancel "
			"%lld",
			id, state, id, id);
	if (is_queued(r))
		return ctl_error_set(e, exit,
			"%.*s; run %lld was queued, and stays queued\n"
			"once gpt2d runs again: gpt2ctl follow %lld",
			(int)strcspn(text, "\n"), text, id, id);
	return ctl_error_set(e, exit,
		"%.*s; the result of run %lld is unknown\n"
		"%s: gpt2ctl show %lld",
		(int)strcspn(text, "\n"), text, id,
		exit == CTL_TIMEOUT ? "check with" : "once gpt2d runs again", id);
}
