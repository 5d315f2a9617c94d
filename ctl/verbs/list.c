/* gpt2ctl list: runs, the newest last. */
#include <stdlib.h>
#include <string.h>

#include "ctl/print/members.h"
#include "ctl/print/states.h"
#include "ctl/print/text.h"
#include "ctl/verbs/verb.h"
#include "proto/host/memory.h"

enum { LIMIT_DEFAULT = 50, PAGE_RUNS = 1000 };

static const struct option_row options[] = {
	{"state", 's', OPTION_CHOICE, "STATE", 0, 0,
		"only runs in this state: queued, starting, running, finishing, done, failed, "
		"cancelled, interrupted; may be repeated",
		.many = true, .choices = STATES_ALL},
	{"limit", 'n', OPTION_INT, "N", 0, 1e9, "the newest N (default 50; 0: all)"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

/*
 * Adds the page below run *below (0: from the newest) to the end of runs, newest first: 0 with
 * *below updated, 0 in it if there is no more; or an exit code with e.
 */
static int take_page(struct client *c, const char *state, int64_t limit, json_int_t *below,
	json_t *runs, struct ctl_error *e)
{
	json_t *params = json_pack("{s:b, s:I}", "newest", 1, "limit", (json_int_t)limit);
	json_t *reply;
	int exit;

	if (*below > 0)
		json_object_set_new(params, "after", json_integer(*below));
	if (state)
		json_object_set_new(params, "state", json_string(state));
	exit = client_request(c, METHOD_LIST, params, CLIENT_REPLY_S, &reply, e);
	if (exit)
		return exit;
	*below = json_integer_value(json_object_get(reply, "next"));
	if (json_array_extend(runs, json_object_get(reply, "runs")) != 0)
		exit = ctl_error_set(e, CTL_TRANSPORT, "list: gpt2d sent no runs");
	json_decref(reply);
	return exit;
}

/* Adds to runs. limit 0: all. *more: older ones were left out. */
static int fetch(struct client *c, const char *state, int64_t limit, json_t *runs, bool *more,
	struct ctl_error *e)
{
	const int64_t before = (int64_t)json_array_size(runs);
	json_int_t below = 0;
	int64_t left;
	int exit;

	do {
		left = limit - ((int64_t)json_array_size(runs) - before);

		exit = take_page(c, state, limit > 0 && left < PAGE_RUNS ? left : PAGE_RUNS, &below,
			runs, e);
		left = limit - ((int64_t)json_array_size(runs) - before);
	} while (!exit && below > 0 && (limit == 0 || left > 0));
	*more |= below > 0;
	return exit;
}

struct place {
	int64_t id;
	size_t at;
};

static int later(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->id != y->id)
		return x->id < y->id ? 1 : -1;
	return (x->at < y->at) - (x->at > y->at);
}

/*
 * Keeps the newest of runs, the newest last. A run that changed its state between two requests is
 * in two replies; the last one counts.
 */
static json_t *newest_last(const json_t *runs, int64_t limit, bool *more)
{
	const size_t n = json_array_size(runs);
	struct place *places = memory_zeroed(n + 1, sizeof(*places));
	json_t *out = json_array();
	size_t kept = 0;

	for (size_t i = 0; i < n; i++)
		places[i] = (struct place){format_int(json_array_get(runs, i), "id", 0), i};
	qsort(places, n, sizeof(*places), later);
	for (size_t i = 0; i < n; i++)
		if (kept == 0 || places[kept - 1].id != places[i].id)
			places[kept++] = places[i];
	if (limit > 0 && kept > (size_t)limit) {
		kept = (size_t)limit;
		*more = true;
	}
	while (kept > 0)
		json_array_append(out, json_array_get(runs, places[--kept].at));
	free(places);
	return out;
}

static bool asks_for(const struct options *args, const char *state)
{
	for (size_t i = 0; i < args->n_values; i++)
		if (strcmp(args->values[i].row->name, "state") == 0 &&
			strcmp(args->values[i].text, state) == 0)
			return true;
	return false;
}

/* In the order of the states, so that a run that changes its state meanwhile is not missed. */
static int fetch_all(struct client *c, const struct options *args, int64_t limit, json_t *runs,
	bool *more, struct ctl_error *e)
{
	const struct states_row *row = states_table;
	int exit = 0;

	if (!options_has(args, "state"))
		return fetch(c, NULL, limit, runs, more, e);
	for (; row->name && !exit; row++)
		if (asks_for(args, row->name))
			exit = fetch(c, row->name, limit, runs, more, e);
	return exit;
}

static void print_list(struct output *o, const json_t *reply)
{
	const json_t *runs = json_object_get(reply, "runs"), *run;
	char state[32], reason[600];
	struct table t;
	size_t i;

	if (json_array_size(runs) == 0) {
		fputs("no runs\n", o->out.file);
		return;
	}
	table_init(&t);
	table_columns(&t, ">ID\tNAME\tSTATE\t>SEGMENTS\tSUBMITTED\t>PRIORITY\tREASON");
	json_array_foreach(runs, i, run) {
		members_cells(&t, run,
			"{id}\t{name|}\t{state}\t{segments_done}/{segments}\t"
			"{submitted_at:time|-}\t{priority}");
		format_string(run, "state", "", state, sizeof(state));
		format_string(run, "reason", "", reason, sizeof(reason));
		table_cell(&t, "%s", text_reason(state, reason));
	}
	if (json_is_true(json_object_get(reply, "older")))
		fputs("older runs are not shown; show all with --limit 0\n", o->out.file);
	table_print(&t, &o->out, "");
	table_finish(&t);
}

static int run(struct ctl *ctl, const struct options *args)
{
	const int64_t limit = options_int(args, "limit", LIMIT_DEFAULT);
	json_t *runs = json_array(), *result;
	struct client *c = NULL;
	struct ctl_error e = {0};
	bool more = false;
	int exit = client_open(&ctl->link, &c, &e);

	if (!exit)
		exit = fetch_all(c, args, limit, runs, &more, &e);
	client_close(c);
	if (!exit) {
		result = newest_last(runs, limit, &more);
		result = json_pack("{s:o, s:b}", "runs", result, "older", more);
		output_print(&ctl->output, "list", result, print_list);
		json_decref(result);
	}
	json_decref(runs);
	return exit ? verb_fail(ctl, &e) : CTL_OK;
}

const struct verb verb_list = {
	.name = "list",
	.args = "",
	.summary = "runs, the newest last",
	.text = "",
	.options = options,
	.run = run,
};
