/* gpt2ctl cancel: end queued runs and runs in progress. */
#include <string.h>
#include <unistd.h>

#include "ctl/print/format.h"
#include "ctl/print/members.h"
#include "ctl/print/states.h"
#include "ctl/verbs/verb.h"
#include "proto/text.h"

enum { PAGE_RUNS = 1000 };

static const struct option_row options[] = {
	{"all", 'a', OPTION_FLAG, NULL, 0, 0,
		"all of your own runs that are queued or in progress"},
	{"yes", 'y', OPTION_FLAG, NULL, 0, 0, "with --all: do not ask"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

/* IDs of the caller's runs in a state, added to ids: 0, or an exit status with e. */
static int own_runs(struct client *c, const char *state, json_t *ids, struct ctl_error *e)
{
	json_t *reply, *run;
	size_t i;
	const int exit = client_request_pages(c, METHOD_LIST,
		json_pack("{s:s, s:i}", "state", state, "limit", PAGE_RUNS), CLIENT_REPLY_S, NULL,
		&reply, e);

	if (exit)
		return exit;
	json_array_foreach(json_object_get(reply, "runs"), i, run)
		if (format_int(run, "uid", -1) == (int64_t)getuid())
			json_array_append_new(ids, json_integer(format_int(run, "id", 0)));
	json_decref(reply);
	return 0;
}

/*
 * The caller's runs that have not ended: first the queued ones, so that none of them starts
 * meanwhile, then those in progress. n: how many of each.
 */
static int own_open(struct client *c, json_t *ids, size_t n[2], struct ctl_error *e)
{
	int exit = 0;

	for (const struct states_row *row = states_table; row->name && !exit; row++) {
		const size_t before = json_array_size(ids);

		if (row->exit >= 0)
			continue;
		exit = own_runs(c, row->name, ids, e);
		n[strcmp(row->name, "queued") != 0] += json_array_size(ids) - before;
	}
	return exit;
}

/* Ask, or require --yes where there is no terminal: 0, or an exit status with e. */
static int confirm(
	struct ctl *ctl, const struct options *args, const size_t n[2], struct ctl_error *e)
{
	char what[80];
	int used = 0;

	if (n[0] + n[1] == 0 || options_has(args, "yes"))
		return 0;
	if (n[0] > 0)
		used = snprintf(what, sizeof(what), "%zu queued run%s%s", n[0],
			n[0] == 1 ? "" : "s", n[1] > 0 ? " and " : "");
	if (n[1] > 0)
		snprintf(what + used, sizeof(what) - (size_t)used, "%zu run%s in progress", n[1],
			n[1] == 1 ? "" : "s");
	if (ctl->output.json || !isatty(STDIN_FILENO) || !ctl->output.err.tty)
		return ctl_error_set(
			e, CTL_USAGE, "cancel: --all would cancel %s; confirm with --yes", what);
	if (verb_confirm(ctl, "cancel %s?", what))
		return 0;
	return ctl_error_set(e, CTL_DECLINED, "cancel: nothing was cancelled");
}

/* Cancels one run and adds its row to runs: its exit status. *lost: the connection is unusable. */
static int cancel_one(struct ctl *ctl, struct client *c, json_t *id, json_t *runs, bool *lost)
{
	json_t *params = json_pack("{s:O}", "id", id), *reply = NULL;
	/* gpt2d replies once the step in progress has ended, at the latest after this time */
	const int step_s = (int)format_int(client_hello(c), "cancel_timeout_s", 0);
	struct ctl_error e = {0};
	char why[160];
	int exit;

	snprintf(why, sizeof(why),
		"run %lld is being cancelled: it ends after the step in progress; after %d s "
		"gpt2d kills its engines (cancel_timeout)",
		(long long)json_integer_value(id), step_s);
	client_expect(c, why);
	exit = client_request(c, METHOD_CANCEL, params, CLIENT_REPLY_S + step_s, &reply, &e);
	client_expect(c, NULL);
	if (exit == 0) {
		json_object_set_new(reply, "exit", json_integer(0));
		json_array_append_new(runs, reply);
		return 0;
	}
	*lost = client_lost(c) || exit == CTL_TRANSPORT || exit == CTL_TIMEOUT;
	json_array_append_new(runs,
		json_pack("{s:O, s:n, s:o, s:i}", "id", id, "state", "error", text_json(e.message),
			"exit", exit));
	/* with --json the one object at the end has the error */
	if (ctl->output.json)
		ctl_error_clear(&e);
	else
		verb_print_error(ctl, &e);
	return exit;
}

static void print_cancelled(struct output *o, const json_t *result)
{
	const json_t *runs = json_object_get(result, "runs"), *row;
	size_t i;

	if (json_array_size(runs) == 0)
		fputs("nothing to cancel\n", o->out.file);
	json_array_foreach(runs, i, row) {
		const char *state = json_string_value(json_object_get(row, "state"));

		if (!state)
			continue; /* its error was printed */
		if (json_is_true(json_object_get(row, "already")))
			members_print(o->out.file, row,
				"run {id} is already {state}, nothing to cancel\n");
		else if (strcmp(state, "cancelled") == 0)
			members_print(o->out.file, row, "run {id} is cancelled\n");
		else
			members_print(o->out.file, row,
				"run {id} is being cancelled ({state}); wait for its end with: "
				"gpt2ctl wait {id}\n");
	}
}

static int cancel_each(struct ctl *ctl, struct client *c, const json_t *ids)
{
	json_t *runs = json_array(), *result, *id;
	bool lost = false;
	int exit = CTL_OK;
	size_t i;

	json_array_foreach(ids, i, id) {
		const int one = cancel_one(ctl, c, id, runs, &lost);

		exit = verb_worse(exit, one);
		if (lost)
			break;
	}
	result = json_pack("{s:o, s:i}", "runs", runs, "exit", exit);
	output_print(&ctl->output, "cancel", result, print_cancelled);
	json_decref(result);
	if (exit == CTL_OK)
		output_confirm(&ctl->output, "cancel");
	return exit;
}

/* The IDs on the command line: 0, or CTL_USAGE with e. */
static int given(const struct options *args, json_t *ids, struct ctl_error *e)
{
	int64_t id;

	if (options_has(args, "all") == (args->n_words > 0))
		return ctl_error_set(e, CTL_USAGE,
			args->n_words > 0 ? "cancel: --all cannot be used with IDs"
					  : "cancel: missing run ID or --all\n"
					    "see: gpt2ctl help cancel");
	for (size_t i = 0; i < args->n_words; i++) {
		if (verb_parse_id(args->words[i], &id, e) != 0)
			return e->exit;
		json_array_append_new(ids, json_integer(id));
	}
	return 0;
}

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	const bool all = options_has(args, "all");
	json_t *ids = json_array();
	struct client *c = NULL;
	size_t n[2] = {0};
	int exit = given(args, ids, e);

	if (!exit)
		exit = client_open(&ctl->link, &c, e);
	if (!exit && all)
		exit = own_open(c, ids, n, e);
	if (!exit && all)
		exit = confirm(ctl, args, n, e);
	if (!exit)
		exit = cancel_each(ctl, c, ids);
	client_close(c);
	json_decref(ids);
	return exit;
}

const struct verb verb_cancel = {
	.name = "cancel",
	.args = "[ID...]",
	.max_args = -1,
	.summary = "cancel runs",
	.text = "A queued run never starts. A run in progress stops after the current step or the "
		"next one; gpt2ctl waits for that (setting cancel_timeout of gpt2d.conf(5)). "
		"Cancelling a run that has ended changes nothing and is no error. The exit status "
		"is that of the worst run.",
	.options = options,
	.run = run,
	.unended = true,
};
