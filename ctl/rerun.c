/* gpt2ctl rerun: the spec of a run once more, as a new run. */
#include <stdlib.h>
#include <string.h>

#include "ctl/client.h"
#include "ctl/submit.h"
#include "ctl/verb.h"
#include "proto/spec.h"

static const struct option_row options[] = {
	{"set", 0, OPTION_STRING, "KEY=VALUE", 0, 0,
		"override a key of the spec, as for submit; may be repeated"},
	{"name", 0, OPTION_STRING, "NAME", 0, 0, "another name for the new run"},
	{"priority", 'p', OPTION_INT, "N", -100, 100,
		"start before queued runs of a lower one; default 0; above it for admins"},
	{"follow", 'f', OPTION_FLAG, NULL, 0, 0,
		"show its progress; the exit code is the run's result"},
	{"dry-run", 'n', OPTION_FLAG, NULL, 0, 0, "queue nothing: print what it would do"},
	{"verbose", 'v', OPTION_FLAG, NULL, 0, 0, "with --dry-run: print the resolved spec too"},
	{"print-id", 0, OPTION_FLAG, NULL, 0, 0,
		"print the run's id alone on stdout; progress goes to stderr"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

/* The stored spec of a run: its text, malloc'd, or NULL with e. */
static char *stored_spec(struct ctl *ctl, int64_t id, struct ctl_error *e)
{
	json_t *params = json_pack("{s:I, s:i}", "id", (json_int_t)id, "limit", 1), *reply;
	char *text;

	if (client_ask(ctl, METHOD_SHOW, params, &reply, e) != 0)
		return NULL;
	text = json_dumps(json_object_get(reply, "spec"), JSON_INDENT(1));
	json_decref(reply);
	if (text == NULL)
		ctl_error_set(e, CTL_TRANSPORT, "run %lld: gpt2d sent no spec", (long long)id);
	return text;
}

static int run(struct ctl *ctl, const struct arguments *args)
{
	struct submit_source source = {0};
	struct ctl_error e = {0};
	char name[40], *text;
	int exit = submit_check(ctl, args);

	if (exit)
		return exit;
	if (arguments_id(args->words[0], &source.rerun_of, &e) != 0)
		return ctl_fail(ctl, &e);
	text = stored_spec(ctl, source.rerun_of, &e);
	if (text == NULL)
		return ctl_fail(ctl, &e);
	snprintf(name, sizeof(name), "run %lld", (long long)source.rerun_of);
	source.name = name;
	source.text = text;
	source.n = strlen(text);
	exit = submit_send(ctl, args, &source);
	free(text);
	return exit;
}

const struct verb verb_rerun = {
	.name = "rerun",
	.args = "ID",
	.min_args = 1,
	.max_args = 1,
	.summary = "submit the spec of a run again, as a new run",
	.text = "The spec is the one that the daemon has stored, with its data paths. show says of "
		"which run a run is the repetition.",
	.options = options,
	.run = run,
};
