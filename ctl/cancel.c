/* gpt2ctl cancel: end a run that waits or runs. */
#include "ctl/arguments.h"
#include "ctl/client.h"
#include "ctl/output.h"
#include "ctl/verb.h"

static int run(struct ctl *ctl, const struct arguments *args)
{
	struct ctl_error e = {0};
	json_t *params, *reply;
	int64_t id;

	if (arguments_id(args->words[0], &id, &e) != 0)
		return ctl_fail(ctl, &e);
	params = json_pack("{s:I}", "id", (json_int_t)id);
	if (client_ask(ctl, METHOD_CANCEL, params, &reply, &e) != 0)
		return ctl_fail(ctl, &e);
	ctl->output->cancelled(ctl, reply);
	json_decref(reply);
	return CTL_OK;
}

const struct verb verb_cancel = {
	.name = "cancel",
	.args = "ID",
	.min_args = 1,
	.max_args = 1,
	.summary = "cancel a run",
	.text = "A queued run never starts; a running one stops after the step it is in. "
		"Cancelling a run that has ended changes nothing and is no error.",
	.run = run,
};
