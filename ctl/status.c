/* gpt2ctl status: the daemon, its engine, the run that is going on, the queue. */
#include "ctl/arguments.h"
#include "ctl/client.h"
#include "ctl/output.h"
#include "ctl/verb.h"

static int run(struct ctl *ctl, const struct arguments *args)
{
	struct ctl_error e = {0};
	json_t *reply;

	if (client_ask(ctl, METHOD_STATUS, json_object(), &reply, &e) != 0)
		return ctl_fail(ctl, &e);
	ctl->output->status(ctl, reply);
	json_decref(reply);
	return CTL_OK;
}

const struct verb verb_status = {
	.name = "status",
	.args = "",
	.summary = "the daemon, its engine, the run that is going on, and the queue",
	.text = "",
	.run = run,
};
