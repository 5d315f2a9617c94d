/* gpt2ctl wait: until runs have ended, and how they ended in the exit code. */
#include <stdlib.h>
#include <string.h>

#include "ctl/arguments.h"
#include "ctl/link/exits.h"
#include "ctl/print/format.h"
#include "ctl/link/interrupt.h"
#include "ctl/verbs/look.h"
#include "ctl/print/output.h"
#include "ctl/verbs/queued.h"
#include "ctl/print/states.h"
#include "ctl/print/text.h"
#include "ctl/verbs/verb.h"
#include "ctl/link/watch.h"
#include "proto/host/clock.h"

static const struct option_row options[] = {
	{"any", 'a', OPTION_FLAG, NULL, 0, 0,
		"until the first of them has ended; the exit code is of that one; an id of no run "
		"is named, and the others are waited for; for at most 60 runs at once"},
	{"timeout", 't', OPTION_REAL, "SECONDS", 0.0, 1e9,
		"give up after this time with exit code 124; 0: look once"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

enum {
	FOLLOWED_MAX = 60, /* gpt2d lets a connection follow 64 at once; --any's help has it */
};

struct waited {
	int64_t id;
	char name[80];
	bool followed;
	json_t *row; /* NULL: it has not ended */
	bool ended;  /* it has; else row says why that is not known */
	char ended_at[40];
	struct watch_last last;
	struct queued queued;
};

struct wait {
	struct ctl *ctl;
	struct client *c;
	struct waited *runs;
	size_t n;
	bool any;
	bool store_fails;               /* that was said */
	int64_t deadline_ns;            /* clock_mono_ns; -1: none; 0: look once */
	char start[CLIENT_START_BYTES]; /* of the gpt2d that answered last */
};

/* To look takes what it takes. */
static int64_t answer_until_ns(const struct wait *w)
{
	return w->deadline_ns > 0 ? w->deadline_ns : -1;
}

static struct waited *find(const struct wait *w, int64_t id)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->runs[i].id == id)
			return &w->runs[i];
	return NULL;
}

/* The first that has not ended; NULL when nothing is waited for any more. */
static struct waited *open_run(const struct wait *w)
{
	struct waited *open = NULL;

	for (size_t i = w->n; i > 0; i--) {
		if (!w->runs[i - 1].row)
			open = &w->runs[i - 1];
		else if (w->any && w->runs[i - 1].ended)
			return NULL;
	}
	return open;
}

/* object: the run, or its last event. */
static void set_ended(struct waited *r, const json_t *object)
{
	char state[32], reason[600];

	format_string(object, "state", "", state, sizeof(state));
	format_string(object, "reason", "", reason, sizeof(reason));
	if (r->row || states_exit(state) < 0)
		return;
	r->ended = true;
	format_string(object, "ended_at", "", r->ended_at, sizeof(r->ended_at));
	r->row = json_pack("{s:I, s:s, s:s, s:s, s:i}", "id", (json_int_t)r->id, "name",
		r->name, "state", state, "reason", reason, "exit", states_exit(state));
}

/* Why it is not known how it ends; with JSON the one object printed at the end holds it. */
static void set_error(struct wait *w, struct waited *r, struct ctl_error *e)
{
	r->row = json_pack("{s:I, s:n, s:o, s:i}", "id", (json_int_t)r->id, "state", "error",
		format_json_text(e->message), "exit", e->exit);
	if (w->ctl->json)
		ctl_error_clear(e);
	else
		ctl_fail(w->ctl, e);
}

/* Only of the first that is open: the others may wait for it. */
static bool tells_queued(const struct wait *w, const struct waited *r)
{
	return !w->ctl->json && w->deadline_ns != 0 && r == open_run(w) && r->last.queued;
}

/* reply: to follow or show. */
static void tell_queued(const struct wait *w, struct waited *r, const json_t *reply)
{
	const struct term *t = &w->ctl->err;

	if (!tells_queued(w, r) || !queued_take(&r->queued, json_object_get(reply, "outlook")))
		return;
	fprintf(t->file, "run %lld %s: queued\n", (long long)r->id, r->name);
	text_outlook(t, json_object_get(reply, "outlook"));
	fflush(t->file);
}

/* store: of gpt2d's, null when it can be written. Said once, and once when it can again. */
static void take_store(struct wait *w, const json_t *store)
{
	if (json_is_object(store) == w->store_fails)
		return;
	w->store_fails = json_is_object(store);
	if (!w->ctl->json)
		text_store(&w->ctl->err, store);
}

/*
 * Ask for the events of runs that have not ended, as many as one may at once: 0, or an exit code
 * with e.
 */
static int follow_more(struct wait *w, struct ctl_error *e)
{
	size_t n = 0;

	for (size_t i = 0; i < w->n; i++)
		n += w->runs[i].followed && !w->runs[i].row;
	for (size_t i = 0; i < w->n && n < FOLLOWED_MAX; i++) {
		struct waited *r = &w->runs[i];
		json_t *reply = NULL, *run;
		int exit;

		if (r->row || r->followed)
			continue;
		exit = client_request(w->c, METHOD_FOLLOW,
			json_pack("{s:I}", "id", (json_int_t)r->id), CLIENT_REPLY_S, &reply, e);
		if (exit == CTL_NO_SUCH_RUN) {
			set_error(w, r, e);
			continue;
		}
		if (exit)
			return exit;
		run = json_object_get(reply, "run");
		format_string(run, "name", "", r->name, sizeof(r->name));
		watch_last_take(&r->last, run);
		if (json_is_object(json_object_get(reply, "store")))
			take_store(w, json_object_get(reply, "store"));
		else /* then an end is on disk */
			set_ended(r, run);
		tell_queued(w, r, reply);
		r->followed = true;
		n += !r->row;
		json_decref(reply);
	}
	return 0;
}

static int timed_out(const struct wait *w, const struct waited *r, struct ctl_error *e)
{
	char text[WATCH_LAST_BYTES];

	if (r->last.unstored[0] != '\0')
		return ctl_error_set(
			e, CTL_TIMEOUT, "%s", watch_last_say(&r->last, r->id, text));
	if (w->c && client_is_silent(w->c))
		return watch_timed_out_silent(r->id, e);
	return ctl_error_set(e, CTL_TIMEOUT,
		"run %lld has not ended in time; it %s, see: gpt2ctl follow %lld",
		(long long)r->id, watch_last_does(&r->last), (long long)r->id);
}

static int detached(const struct wait *w, const struct waited *r, struct ctl_error *e)
{
	char text[WATCH_LAST_BYTES];

	return ctl_error_set(e, CTL_CANCELLED, "%s", watch_last_say(&r->last, r->id, text));
}

/* Of the runs that are open: which have ended, though gpt2d cannot write it and tells no end. */
static void look_for_unstored(struct wait *w)
{
	struct client *c = look_begin(w->ctl);

	for (size_t i = 0; i < w->n; i++) {
		struct waited *r = &w->runs[i];
		json_t *shown = r->row ? NULL : look_of(c, r->id);

		if (shown)
			watch_last_take(&r->last, json_object_get(shown, "run"));
		json_decref(shown);
	}
	client_close(c);
}

/* A run's or gpt2d's; true when a run has ended by it. */
static bool take_event(struct wait *w, const char *event, const json_t *params)
{
	struct waited *r = find(w, format_int(params, "id", 0));

	if (strcmp(event, EVENT_STORE) == 0) {
		take_store(w, json_object_get(params, "store"));
	} else if (r && strcmp(event, EVENT_STATE) == 0) {
		watch_last_take(&r->last, params);
		r->queued = (struct queued){.code = ""};
	} else if (r && strcmp(event, EVENT_DONE) == 0) {
		set_ended(r, params);
	}
	return r && r->row;
}

/* r is open: when to look up from the events; clock_mono_ns, -1: never. */
static int64_t next_look_ns(const struct wait *w, const struct waited *r)
{
	if (tells_queued(w, r) && (w->deadline_ns < 0 || r->queued.look_ns < w->deadline_ns))
		return r->queued.look_ns;
	return w->deadline_ns;
}

static void look_queued(const struct wait *w, struct waited *r)
{
	json_t *shown = client_is_silent(w->c) ? NULL : look_once(w->ctl, r->id);

	tell_queued(w, r, shown);
	json_decref(shown);
}

/*
 * Events until nothing is open: 0; CTL_NO_DAEMON when the connection was lost; or the exit code of
 * what came between, with e. *any: at least one event was seen.
 */
static int take_events(struct wait *w, bool *any, struct ctl_error *e)
{
	struct waited *r;
	char event[64];
	json_t *params;
	int exit = 0;

	while (exit == 0 && (r = open_run(w)) != NULL) {
		const int64_t look_ns = next_look_ns(w, r);

		switch (client_next(w->c, look_ns, event, &params, e)) {
		case CLIENT_EVENT:
			*any = true;
			if (take_event(w, event, params))
				exit = follow_more(w, e);
			json_decref(params);
			break;
		case CLIENT_QUIET:
			if (look_ns != w->deadline_ns) {
				look_queued(w, r);
				break;
			}
			if (w->store_fails)
				look_for_unstored(w);
			return timed_out(w, r, e);
		case CLIENT_INTERRUPTED:
			return detached(w, r, e);
		case CLIENT_LOST:
			return CTL_NO_DAEMON;
		}
	}
	return exit;
}

/* To the end, over losses of the connection: 0, or an exit code with e. */
static int wait_for_all(struct wait *w, struct ctl_error *e)
{
	const struct waited *r;
	bool any = true;
	int exit;

	for (;;) {
		exit = follow_more(w, e);
		if (exit == 0) {
			any |= client_note_start(w->c, w->start);
			exit = take_events(w, &any, e);
		}
		if (exit != CTL_NO_DAEMON && exit != CTL_TRANSPORT)
			return exit;
		r = open_run(w);
		if (!r)
			return exit;
		if (!any) /* an event, or the answer of another start */
			return watch_lost_twice(r->id, r->last.queued, e);
		any = false;
		exit = watch_reconnect(
			w->ctl, &w->c, r->id, r->last.queued, answer_until_ns(w), e);
		if (exit)
			return exit;
		w->store_fails = false;
		for (size_t i = 0; i < w->n; i++)
			w->runs[i].followed = false;
	}
}

static int unknown(const struct wait *w, const struct waited *r, struct ctl_error *e)
{
	if (r->last.queued)
		return ctl_error_set(e, CTL_TRANSPORT,
			"run %lld was queued when it was last heard of; see: gpt2ctl show %lld",
			(long long)r->id, (long long)r->id);
	return ctl_error_set(e, CTL_TRANSPORT,
		"how run %lld ended is not known either; see: gpt2ctl show %lld",
		(long long)r->id, (long long)r->id);
}

/* What is still open could not be waited for; e tells of the first of it. */
static void give_up(struct wait *w, int exit, struct ctl_error *e)
{
	int (*tell)(const struct wait *w, const struct waited *r, struct ctl_error *e) = NULL;
	struct waited *r = open_run(w);
	struct ctl_error more = {0};

	if (!r)
		return;
	set_error(w, r, e);
	if (exit == CTL_TIMEOUT)
		tell = timed_out;
	else if (exit == CTL_CANCELLED)
		tell = detached;
	else if (exits_leave_open(exit))
		tell = unknown;
	while (tell != NULL && !w->any && (r = open_run(w)) != NULL) {
		tell(w, r, &more);
		set_error(w, r, &more);
	}
}

/* With --any: of those that had ended when they were asked for, the one that did so first. */
static const struct waited *first_ended(const struct wait *w)
{
	const struct waited *first = NULL;

	for (size_t i = 0; w->any && i < w->n; i++)
		if (w->runs[i].ended &&
			(!first || strcmp(w->runs[i].ended_at, first->ended_at) < 0))
			first = &w->runs[i];
	return first;
}

static int report(const struct wait *w)
{
	const struct waited *first = first_ended(w);
	json_t *rows = json_array(), *result;
	int exit = CTL_OK;

	for (size_t i = 0; i < w->n; i++) {
		const struct waited *r = &w->runs[i];

		if (!r->row || (first && r->ended && r != first))
			continue;
		if (!first || r == first)
			exit = watch_worse(exit, (int)format_int(r->row, "exit", 0));
		json_array_append(rows, r->row);
	}
	result = json_pack("{s:o, s:i}", "runs", rows, "exit", exit);
	w->ctl->output->waited(w->ctl, result);
	json_decref(result);
	return exit;
}

static int wait_on(struct wait *w)
{
	struct ctl_error e = {0};
	int exit;

	interrupt_begin();
	exit = client_open_until(w->ctl, answer_until_ns(w), &w->c, &e);
	if (exit)
		return ctl_fail(w->ctl, &e);
	exit = wait_for_all(w, &e);
	if (exit)
		give_up(w, exit, &e);
	client_close(w->c);
	return report(w);
}

static int run(struct ctl *ctl, const struct arguments *args)
{
	const double timeout = arguments_real(args, "timeout", -1.0);
	struct wait w = {.ctl = ctl, .any = arguments_has(args, "any"), .deadline_ns = -1};
	struct ctl_error e = {0};
	int exit = CTL_OK;
	int64_t id;

	if (timeout >= 0.0)
		w.deadline_ns = timeout > 0.0 ? clock_mono_ns() + (int64_t)(timeout * 1e9) : 0;
	w.runs = calloc(args->n_words, sizeof(*w.runs));
	if (!w.runs)
		exit = ctl_error_set(&e, CTL_TRANSPORT, "out of memory");
	for (size_t i = 0; i < args->n_words && !exit; i++) {
		exit = arguments_id(args->words[i], &id, &e);
		if (!exit && !find(&w, id)) /* one that stands twice counts once */
			w.runs[w.n++].id = id;
	}
	if (!exit && w.any && w.n > FOLLOWED_MAX)
		exit = ctl_error_set(&e, CTL_USAGE,
			"wait: --any: at most %d runs expected, as gpt2d tells no connection of "
			"more at once; %zu were given",
			FOLLOWED_MAX, w.n);
	exit = exit ? ctl_fail(ctl, &e) : wait_on(&w);
	for (size_t i = 0; i < w.n; i++)
		json_decref(w.runs[i].row);
	free(w.runs);
	return exit;
}

const struct verb verb_wait = {
	.name = "wait",
	.args = "ID...",
	.min_args = 1,
	.max_args = -1,
	.summary = "wait until runs have ended; the exit code tells how",
	.text = "The exit code is 0 only when all of them are done; otherwise that of the worst: "
		"no such run (7), failed (4), cancelled or interrupted (6). With --any it is that "
		"of the run that ended first, also of several that had ended before; a run that "
		"is not there, or is no more (prune), is named on standard error, with --json in "
		"its row of the object, and decides nothing: the exit code is 7 when none of them "
		"is there. A gpt2d that goes away is looked for again for 5 s; where none comes "
		"back, or the connection is lost again before anything was heard (an event, or the "
		"answer of a gpt2d that was started anew), or in the greeting, the exit code is "
		"1: how the runs end is not known, and gpt2ctl list tells. A run whose end gpt2d "
		"cannot write to its disk is waited for until it can. Why the first of those that "
		"have not ended is still queued, if it is, stands on standard error, and again "
		"when that is of another kind; not with --json.",
	.options = options,
	.run = run,
};
