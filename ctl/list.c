/* gpt2ctl list: runs, the newest last. */
#include "ctl/arguments.h"
#include "ctl/client.h"
#include "ctl/output.h"
#include "ctl/states.h"
#include "ctl/verb.h"

enum { LIMIT_DEFAULT = 50, PAGE_RUNS = 1000 };

static const struct option_row options[] = {
	{"state", 's', OPTION_CHOICE, "STATE", 0, 0,
		"only runs in this state: queued, starting, running, finishing, done, failed, "
		"cancelled, interrupted",
		.choices = STATES_ALL},
	{"limit", 'n', OPTION_INT, "N", 0, 1e9, "the newest N (default 50; 0: all)"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

/*
 * The next page below run *below (0: from the newest) at the end of runs, newest first: 0 with
 * *below moved on, 0 again when there is no more; or an exit code with e.
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

static json_t *reversed(const json_t *runs)
{
	json_t *out = json_array();

	for (size_t i = json_array_size(runs); i > 0; i--)
		json_array_append(out, json_array_get(runs, i - 1));
	return out;
}

/* limit 0: all. *more: older ones were left out. */
static int fetch(struct client *c, const char *state, int64_t limit, json_t *runs, bool *more,
	struct ctl_error *e)
{
	json_int_t below = 0;
	int exit;

	do {
		const int64_t left = limit - (int64_t)json_array_size(runs);

		exit = take_page(c, state, limit > 0 && left < PAGE_RUNS ? left : PAGE_RUNS, &below,
			runs, e);
	} while (!exit && below > 0 && (limit == 0 || (int64_t)json_array_size(runs) < limit));
	*more = below > 0;
	return exit;
}

static int run(struct ctl *ctl, const struct arguments *args)
{
	const int64_t limit = arguments_int(args, "limit", LIMIT_DEFAULT);
	json_t *runs = json_array(), *result;
	struct client *c = NULL;
	struct ctl_error e = {0};
	bool more = false;
	int exit = client_open(ctl, &c, &e);

	if (!exit)
		exit = fetch(c, arguments_string(args, "state", NULL), limit, runs, &more, &e);
	client_close(c);
	result = json_pack("{s:o, s:b}", "runs", reversed(runs), "older", more);
	if (!exit)
		ctl->output->list(ctl, result);
	json_decref(result);
	json_decref(runs);
	return exit ? ctl_fail(ctl, &e) : CTL_OK;
}

const struct verb verb_list = {
	.name = "list",
	.args = "",
	.summary = "runs, the newest last",
	.text = "",
	.options = options,
	.run = run,
};
