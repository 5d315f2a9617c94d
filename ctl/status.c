/* gpt2ctl status: the daemon, its engine, the run that is going on, the queue. */
#include "ctl/arguments.h"
#include "ctl/client.h"
#include "ctl/output.h"
#include "ctl/verb.h"

static int run(struct ctl *ctl, const struct arguments *args)
{
	struct client *c = NULL;
	struct ctl_error e = {0};
	json_t *reply;
	int exit;

	if (client_open(ctl, &c, &e) != 0)
		return ctl_fail(ctl, &e);
	exit = client_request(c, METHOD_STATUS, json_object(), CLIENT_REPLY_S, &reply, &e);
	client_close(c);
	if (exit)
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
