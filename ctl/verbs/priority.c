/* gpt2ctl priority: move a queued run. */
#include <errno.h>
#include <stdlib.h>

#include "ctl/arguments.h"
#include "ctl/print/output.h"
#include "ctl/verbs/verb.h"

static int run(struct ctl *ctl, const struct arguments *args)
{
	struct ctl_error e = {0};
	json_t *params;
	char *end;
	long long priority;
	int64_t id;

	if (arguments_id(args->words[0], &id, &e) != 0)
		return ctl_fail(ctl, &e);
	errno = 0;
	priority = strtoll(args->words[1], &end, 10);
	if (errno || end == args->words[1] || *end) {
		ctl_error_set(&e, CTL_USAGE,
			"priority: %.64s: a whole number from %d to %d is needed", args->words[1],
			-PROTOCOL_PRIORITY_MAX, PROTOCOL_PRIORITY_MAX);
		return ctl_fail(ctl, &e);
	}
	params = json_pack("{s:I, s:I}", "id", (json_int_t)id, "priority", (json_int_t)priority);
	return ctl_ask(ctl, METHOD_PRIORITY, params, true, ctl->output->priority);
}

const struct verb verb_priority = {
	.name = "priority",
	.args = "ID N",
	.min_args = 2,
	.max_args = 2,
	.summary = "move a queued run: a higher priority starts earlier",
	.text = "N is -100 to 100; 0 is what a run has that was submitted without. Of equals the "
		"one that was submitted first starts first. A run that is going on is not "
		"interrupted. Above 0 is for who runs the daemon, and admins, as such a run starts "
		"before those of others.",
	.run = run,
	.unended = true,
};
