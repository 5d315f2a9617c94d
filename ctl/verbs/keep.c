/* gpt2ctl keep: protect a run from pruning. */
#include "ctl/print/format.h"
#include "ctl/verbs/verb.h"

static const struct option_row options[] = {
	{"off", 0, OPTION_FLAG, NULL, 0, 0, "remove the protection"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

static void print_kept(struct output *o, const json_t *reply)
{
	fprintf(o->out.file, "run %lld is %s pruning\n", (long long)format_int(reply, "id", 0),
		json_is_true(json_object_get(reply, "kept")) ? "protected from"
							     : "no longer protected from");
}

static int run(struct ctl *ctl, const struct options *args)
{
	struct ctl_error e = {0};
	json_t *params;
	int64_t id;

	if (verb_parse_id(args->words[0], &id, &e) != 0)
		return verb_fail(ctl, &e);
	params = json_pack("{s:I, s:b}", "id", (json_int_t)id, "kept", !options_has(args, "off"));
	return verb_ask(ctl, METHOD_KEEP, params, true, print_kept);
}

const struct verb verb_keep = {
	.name = "keep",
	.args = "ID",
	.min_args = 1,
	.max_args = 1,
	.summary = "protect a run from pruning",
	.text = "Neither prune nor gpt2d's settings retain_runs and retain_days remove a protected "
		"run. show says whether a run is protected.",
	.options = options,
	.run = run,
};
