/* gpt2ctl list: runs, the newest last. */
#include <stdlib.h>
#include <string.h>

#include "ctl/print/members.h"
#include "ctl/print/states.h"
#include "ctl/print/text.h"
#include "ctl/verbs/verb.h"

enum { LIMIT_DEFAULT = 50, PAGE_RUNS = 1000 };

static const struct option_row options[] = {
	{"state", 's', OPTION_CHOICE, "STATE", 0, 0,
		"only runs in this state: queued, starting, running, finishing, done, failed, "
		"cancelled, interrupted; may be repeated",
		.many = true, .choices = STATES_ALL},
	{"limit", 'n', OPTION_INT, "N", 0, 1e9, "the newest N (default 50; 0: all)"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

/* Whether the options ask for runs in this state. */
static bool is_wanted(const char *const *states, size_t n_states, const json_t *run)
{
	const char *state = json_string_value(json_object_get(run, "state"));
	bool wanted = n_states == 0;

	for (size_t i = 0; i < n_states; i++)
		wanted |= state && strcmp(states[i], state) == 0;
	return wanted;
}

/*
 * Adds the newest runs in these states (n_states 0: in all) to runs, the newest first, limit of
 * them (0: all). *older: runs were left out. gpt2ctl itself picks the runs of several states: a run
 * that changes its state meanwhile is listed once.
 */
static int fetch(struct client *c, const char *const *states, size_t n_states, int64_t limit,
	json_t *runs, bool *older, struct ctl_error *e)
{
	json_t *reply, *run;
	json_int_t below = 0;
	size_t i;

	do {
		const int64_t left = limit - (int64_t)json_array_size(runs);
		const bool few = limit > 0 && left < PAGE_RUNS && n_states < 2;
		json_t *params = json_pack(
			"{s:b, s:I}", "newest", 1, "limit", (json_int_t)(few ? left : PAGE_RUNS));
		int exit;

		if (below > 0)
			json_object_set_new(params, "after", json_integer(below));
		if (n_states == 1)
			json_object_set_new(params, "state", json_string(states[0]));
		exit = client_request(c, METHOD_LIST, params, CLIENT_REPLY_S, &reply, e);
		if (exit)
			return exit;
		json_array_foreach(json_object_get(reply, "runs"), i, run) {
			if (!is_wanted(states, n_states, run))
				continue;
			*older = limit > 0 && json_array_size(runs) == (size_t)limit;
			if (*older)
				break;
			json_array_append(runs, run);
		}
		below = json_integer_value(json_object_get(reply, "next"));
		json_decref(reply);
	} while (below > 0 && !*older && (limit == 0 || json_array_size(runs) < (size_t)limit));
	*older |= below > 0;
	return 0;
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

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	size_t n_states;
	const char **states = options_all(args, "state", &n_states);
	json_t *newest = json_array(), *runs = json_array(), *result;
	struct client *c = NULL;
	bool older = false;
	int exit = client_open(&ctl->link, &c, e);

	if (!exit)
		exit = fetch(c, states, n_states, options_int(args, "limit", LIMIT_DEFAULT), newest,
			&older, e);
	client_close(c);
	for (size_t i = json_array_size(newest); i > 0; i--)
		json_array_append(runs, json_array_get(newest, i - 1));
	result = json_pack("{s:o, s:b}", "runs", runs, "older", older);
	if (!exit)
		output_print(&ctl->output, "list", result, print_list);
	json_decref(result);
	json_decref(newest);
	free(states);
	return exit;
}

const struct verb verb_list = {
	.name = "list",
	.args = "",
	.summary = "runs, the newest last",
	.text = "",
	.options = options,
	.run = run,
};
