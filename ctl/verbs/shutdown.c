/* gpt2ctl shutdown: end the daemon. */
#include "ctl/arguments.h"
#include "ctl/print/output.h"
#include "ctl/verbs/verb.h"

static const struct option_row options[] = {
	{"now", 0, OPTION_FLAG, NULL, 0, 0,
		"do not wait for the run that is going on: it becomes interrupted"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

static int run(struct ctl *ctl, const struct arguments *args)
{
	json_t *params = json_pack("{s:b}", "now", arguments_has(args, "now"));

	return ctl_ask(ctl, METHOD_SHUTDOWN, params, true, ctl->output->shutdown);
}

const struct verb verb_shutdown = {
	.name = "shutdown",
	.args = "",
	.summary = "end the daemon; queued runs stay queued",
	.text = "The run that is going on is finished first, unless --now is given. The queue is "
		"kept.",
	.options = options,
	.run = run,
};
