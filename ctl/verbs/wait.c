/* gpt2ctl wait: waits until runs have ended; the exit status says how. */
#include <stdlib.h>
#include <string.h>

#include "ctl/link/interrupt.h"
#include "ctl/print/members.h"
#include "ctl/print/states.h"
#include "ctl/print/text.h"
#include "ctl/verbs/verb.h"
#include "ctl/verbs/watch.h"
#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/text.h"

static const struct option_row options[] = {
	{"any", 'a', OPTION_FLAG, NULL, 0, 0,
		"until the first of them has ended; the exit status is that of this run; gpt2ctl "
		"reports unknown IDs and waits for the other runs; at most 60 runs"},
	{"timeout", 't', OPTION_REAL, "SECONDS", 0.0, 1e9,
		"give up after this time with exit status 124; 0: check once"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

struct waiting {
	struct watch watch;
	json_t *errors; /* by run: why its result is unknown; null: it is known */
};

/* With --json the one object at the end has the error. */
static void set_error(struct waiting *w, struct watch_run *r, struct ctl_error *e)
{
	struct ctl *ctl = w->watch.ctl;

	r->error = e->exit;
	json_array_set_new(w->errors, (size_t)(r - w->watch.runs), text_json(e->message));
	if (!ctl->output.json)
		output_error(&ctl->output, e->message);
	ctl_error_clear(e);
}

static void on_unknown(struct watch *w, struct watch_run *r, struct ctl_error *e)
{
	set_error((struct waiting *)w, r, e);
}

static void on_event(struct watch *w, struct watch_run *r, const char *event, json_t *params)
{
	if (!r && !w->ctl->output.json)
		text_store(&w->ctl->output.err, json_object_get(params, "store"));
}

static void on_snapshot(struct watch *w, struct watch_run *r, const json_t *reply)
{
	const struct term *t = &w->ctl->output.err;

	if (!json_is_object(json_object_get(reply, "outlook")) || w->deadline_ns == 0)
		return;
	fprintf(t->file, "run %lld %s: queued\n", (long long)r->id, r->name);
	text_outlook(t, json_object_get(reply, "outlook"));
	fflush(t->file);
}

/* With --any: of the runs that have ended, the one that ended first. */
static const struct watch_run *first_ended(const struct watch *w)
{
	const struct watch_run *first = NULL;

	for (size_t i = 0; w->any && i < w->n; i++)
		if (w->runs[i].ended &&
			(!first || strcmp(w->runs[i].ended_at, first->ended_at) < 0))
			first = &w->runs[i];
	return first;
}

static json_t *row_of(const struct watch_run *r, json_t *error)
{
	if (!r->ended)
		return json_pack("{s:I, s:n, s:O, s:i}", "id", (json_int_t)r->id, "state", "error",
			error, "exit", r->error);
	return json_pack("{s:I, s:s, s:s, s:o, s:i}", "id", (json_int_t)r->id, "name", r->name,
		"state", r->state, "reason", *r->reason ? json_string(r->reason) : json_null(),
		"exit", states_exit(r->state));
}

static void print_rows(struct output *o, const json_t *result)
{
	const json_t *row;
	size_t i;

	json_array_foreach(json_object_get(result, "runs"), i, row) {
		if (!json_is_string(json_object_get(row, "state")))
			continue; /* its error was printed */
		members_print(o->out.file, row, "run {id} {name|}: ");
		text_state(&o->out, row);
	}
}

static int report(struct waiting *w)
{
	const struct watch_run *first = first_ended(&w->watch);
	json_t *rows = json_array(), *result;
	int exit = CTL_OK;

	for (size_t i = 0; i < w->watch.n; i++) {
		const struct watch_run *r = &w->watch.runs[i];

		if ((!r->ended && !r->error) || (first && r->ended && r != first))
			continue;
		if (!first || r == first)
			exit = verb_worse(exit, r->ended ? states_exit(r->state) : r->error);
		json_array_append_new(rows, row_of(r, json_array_get(w->errors, i)));
	}
	result = json_pack("{s:o, s:i}", "runs", rows, "exit", exit);
	output_print(&w->watch.ctl->output, "wait", result, print_rows);
	json_decref(result);
	return exit;
}

static int wait_for_runs(struct waiting *w, struct ctl_error *e)
{
	struct ctl *ctl = w->watch.ctl;
	struct client_options link = ctl->link;
	struct ctl_error of_run = {0};
	struct watch_run *r;
	int exit;

	interrupt_begin();
	if (w->watch.deadline_ns > 0)
		link.until_ns = w->watch.deadline_ns;
	exit = client_open(&link, &w->watch.client, e);
	if (exit)
		return e->exit;
	exit = watch_until_end(&w->watch, e);
	while (exit && (r = watch_open_run(&w->watch)) != NULL) {
		watch_explain(r, e, &of_run);
		set_error(w, r, &of_run);
		if (w->watch.any)
			break;
	}
	ctl_error_clear(e);
	client_close(w->watch.client);
	return report(w);
}

static int add_runs(struct waiting *w, const struct options *args, struct ctl_error *e)
{
	struct watch *watch = &w->watch;

	for (size_t i = 0; i < args->n_words; i++) {
		bool twice = false;
		int64_t id;

		if (verb_parse_id(args->words[i], &id, e) != 0)
			return e->exit;
		for (size_t k = 0; k < watch->n; k++)
			twice |= watch->runs[k].id == id;
		if (twice)
			continue;
		watch->runs[watch->n++].id = id;
		json_array_append_new(w->errors, json_null());
	}
	if (watch->any && watch->n > WATCH_RUNS_MAX)
		return ctl_error_set(e, CTL_USAGE,
			"wait: --any: too many runs (at most %d, found %zu)", WATCH_RUNS_MAX,
			watch->n);
	return 0;
}

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	const double timeout = options_real(args, "timeout", -1.0);
	struct waiting w = {.watch = {.ctl = ctl,
				    .any = options_has(args, "any"),
				    .deadline_ns = -1,
				    .event = on_event,
				    .snapshot = ctl->output.json ? NULL : on_snapshot,
				    .unknown = on_unknown},
		.errors = json_array()};
	int exit;

	if (timeout >= 0.0)
		w.watch.deadline_ns =
			timeout > 0.0 ? clock_mono_ns() + (int64_t)(timeout * 1e9) : 0;
	w.watch.runs = memory_zeroed(args->n_words, sizeof(*w.watch.runs));
	exit = add_runs(&w, args, e);
	if (!exit)
		exit = wait_for_runs(&w, e);
	free(w.watch.runs);
	json_decref(w.errors);
	return exit;
}

const struct verb verb_wait = {
	.name = "wait",
	.args = "ID...",
	.min_args = 1,
	.max_args = -1,
	.summary = "wait until runs have ended; the exit status says how they ended",
	.text = "The exit status is 0 only if all of them are done. Otherwise it is that of the "
		"worst: unknown run (7), failed (4), cancelled or interrupted (6). With --any it "
		"is that of the run that ended first. An unknown or removed run is reported on "
		"standard error, with --json in its row of the object. With --any it does not "
		"count, unless all runs are unknown (7). If gpt2d goes away, gpt2ctl tries to "
		"reconnect for 5 s. If gpt2d does not come back, or goes away twice without an "
		"event or a restart in between, the exit status is 1, and the results are "
		"unknown. Standard error says why the first open run is queued, again when the "
		"kind of reason changes; not with --json.",
	.options = options,
	.run = run,
};
