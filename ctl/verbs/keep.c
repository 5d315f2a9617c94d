/* gpt2ctl keep: a run that stays when old ones are removed. */
#include "ctl/arguments.h"
#include "ctl/print/output.h"
#include "ctl/verbs/verb.h"

static const struct option_row options[] = {
	{"off", 0, OPTION_FLAG, NULL, 0, 0, "not any more"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

static int run(struct ctl *ctl, const struct arguments *args)
{
	struct ctl_error e = {0};
	json_t *params;
	int64_t id;

	if (arguments_id(args->words[0], &id, &e) != 0)
		return ctl_fail(ctl, &e);
	params = json_pack("{s:I, s:b}", "id", (json_int_t)id, "kept", !arguments_has(args, "off"));
	return ctl_ask(ctl, METHOD_KEEP, params, true, ctl->output->kept);
}

const struct verb verb_keep = {
	.name = "keep",
	.args = "ID",
	.min_args = 1,
	.max_args = 1,
	.summary = "have a run left alone when old ones are removed",
	.text = "Neither prune nor the daemon's settings retain_runs and retain_days remove it. "
		"show tells whether a run is kept.",
	.options = options,
	.run = run,
};
