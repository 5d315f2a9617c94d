/* gpt2ctl status: the daemon, its engine, the run that is going on, the queue. */
#include "ctl/output.h"
#include "ctl/verb.h"

static int run(struct ctl *ctl, const struct arguments *args)
{
	return ctl_ask(ctl, METHOD_STATUS, json_object(), ctl->output->status);
}

const struct verb verb_status = {
	.name = "status",
	.args = "",
	.summary = "the daemon, its engine, the run that is going on, and the queue",
	.text = "",
	.run = run,
};
