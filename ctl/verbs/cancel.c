/* gpt2ctl cancel: end runs that wait or run. */
#include <stdlib.h>
#include <unistd.h>

#include "ctl/arguments.h"
#include "ctl/verbs/ask.h"
#include "ctl/link/client.h"
#include "ctl/print/format.h"
#include "ctl/print/output.h"
#include "ctl/verbs/verb.h"
#include "ctl/link/watch.h"

enum { PAGE_RUNS = 1000, STEP_MAX_S = 86400 };

static const struct option_row options[] = {
	{"all", 'a', OPTION_FLAG, NULL, 0, 0,
		"all runs of one's own that are queued; one that has begun is left alone"},
	{"yes", 'y', OPTION_FLAG, NULL, 0, 0, "with --all: do not ask"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

/* Ids of the caller's queued runs: 0 with ids, an array, or an exit code with e. */
static int own_queued(struct client *c, json_t *ids, struct ctl_error *e)
{
	json_int_t after = 0;
	json_t *reply, *run;
	size_t i;
	int exit;

	do {
		exit = client_request(c, METHOD_LIST,
			json_pack("{s:s, s:i, s:I}", "state", "queued", "limit", PAGE_RUNS, "after",
				after),
			CLIENT_REPLY_S, &reply, e);
		if (exit)
			return exit;
		json_array_foreach(json_object_get(reply, "runs"), i, run)
			if (format_int(run, "uid", -1) == (int64_t)getuid())
				json_array_append_new(ids, json_integer(format_int(run, "id", 0)));
		after = json_integer_value(json_object_get(reply, "next"));
		json_decref(reply);
	} while (after > 0);
	return 0;
}

/* Whether it is wanted; without a terminal to ask on it has to be said beforehand. */
static int confirm(struct ctl *ctl, const struct arguments *args, size_t n, struct ctl_error *e)
{
	if (n == 0 || arguments_has(args, "yes"))
		return 0;
	if (ctl->json || !isatty(STDIN_FILENO) || !ctl->err.tty)
		return ctl_error_set(e, CTL_USAGE,
			"cancel: --all would cancel %zu queued run%s; say so with --yes", n,
			n == 1 ? "" : "s");
	if (ask_yes(ctl, "cancel %zu queued run%s?", n, n == 1 ? "" : "s"))
		return 0;
	return ctl_error_set(e, CTL_DECLINED, "cancel: nothing is cancelled");
}

/* How long a step may keep gpt2d from answering. */
static int64_t step_limit_s(const struct client *c)
{
	const int64_t said = format_int(client_hello(c), "cancel_timeout_s", 0);

	return said < 0 ? 0 : said > STEP_MAX_S ? STEP_MAX_S : said;
}

/* One run; its row into runs: the exit code it stands for. *lost: the connection is of no use. */
static int cancel_one(
	struct ctl *ctl, struct client *c, json_t *id, bool queued, json_t *runs, bool *lost)
{
	json_t *params = json_pack("{s:O}", "id", id), *reply = NULL;
	const int64_t step_s = step_limit_s(c);
	struct ctl_error e = {0};
	char why[160];
	int exit;

	if (queued)
		json_object_set_new(params, "queued", json_true());
	snprintf(why, sizeof(why),
		"run %lld is being cancelled: the step in progress ends first, or its engines are "
		"killed after %lld s (cancel_timeout)",
		(long long)json_integer_value(id), (long long)step_s);
	client_expect(c, why);
	exit = client_request(
		c, METHOD_CANCEL, params, CLIENT_REPLY_S + (int)step_s, &reply, &e);
	client_expect(c, NULL);
	if (exit == 0) {
		json_object_set_new(reply, "exit", json_integer(0));
		json_array_append_new(runs, reply);
		return 0;
	}
	*lost = client_lost(c) || exit == CTL_TRANSPORT || exit == CTL_TIMEOUT;
	json_array_append_new(runs,
		json_pack("{s:O, s:n, s:o, s:i}", "id", id, "state", "error",
			format_json_text(e.message), "exit", exit));
	/* with JSON the one object printed at the end holds it */
	if (ctl->json)
		ctl_error_clear(&e);
	else
		ctl_fail(ctl, &e);
	return exit;
}

static int cancel_all(struct ctl *ctl, struct client *c, const json_t *ids, bool queued)
{
	json_t *runs = json_array(), *result, *id;
	bool lost = false;
	int exit = CTL_OK;
	size_t i;

	json_array_foreach(ids, i, id) {
		const int one = cancel_one(ctl, c, id, queued, runs, &lost);

		exit = watch_worse(exit, one);
		if (lost)
			break;
	}
	result = json_pack("{s:o, s:i}", "runs", runs, "exit", exit);
	ctl->output->cancelled(ctl, result);
	json_decref(result);
	if (exit == CTL_OK)
		output_tell_done(ctl, "cancel");
	return exit;
}

/* The ids on the command line: 0, or CTL_USAGE with e. */
static int given(const struct arguments *args, json_t *ids, struct ctl_error *e)
{
	int64_t id;

	if (arguments_has(args, "all") == (args->n_words > 0))
		return ctl_error_set(e, CTL_USAGE,
			args->n_words > 0
				? "cancel: ids or --all, not both"
				: "cancel: ID needed, or --all; see: gpt2ctl help cancel");
	for (size_t i = 0; i < args->n_words; i++) {
		if (arguments_id(args->words[i], &id, e) != 0)
			return e->exit;
		json_array_append_new(ids, json_integer(id));
	}
	return 0;
}

static int run(struct ctl *ctl, const struct arguments *args)
{
	const bool all = arguments_has(args, "all");
	json_t *ids = json_array();
	struct client *c = NULL;
	struct ctl_error e = {0};
	int exit = given(args, ids, &e);

	if (!exit)
		exit = client_open(ctl, &c, &e);
	if (!exit && all)
		exit = own_queued(c, ids, &e);
	if (!exit && all)
		exit = confirm(ctl, args, json_array_size(ids), &e);
	exit = exit ? ctl_fail(ctl, &e) : cancel_all(ctl, c, ids, all);
	client_close(c);
	json_decref(ids);
	return exit;
}

const struct verb verb_cancel = {
	.name = "cancel",
	.args = "[ID...]",
	.max_args = -1,
	.summary = "cancel runs",
	.text = "A queued run never starts; a running one stops after the step it is in or the "
		"next, for which it is waited (setting cancel_timeout of gpt2d.conf(5)). "
		"Cancelling a run that has ended changes nothing and is no error. The exit code is "
		"that of the worst.",
	.options = options,
	.run = run,
	.unended = true,
};
