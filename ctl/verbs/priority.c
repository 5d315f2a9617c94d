/* gpt2ctl priority: move a queued run. */
#include <string.h>

#include "ctl/print/members.h"
#include "ctl/print/text.h"
#include "ctl/verbs/verb.h"

static void print_priority(struct output *o, const json_t *reply)
{
	const char *state = json_string_value(json_object_get(reply, "state"));

	members_print(o->out.file, reply, "run {id} {name|}: priority {priority}, was {before}\n");
	if (!state || strcmp(state, "queued") != 0)
		members_print(o->out.file, reply, "the run is already {state}\n");
	text_outlook(&o->out, json_object_get(reply, "outlook"));
}

static int run(struct ctl *ctl, const struct options *args)
{
	struct ctl_error e = {0};
	json_t *params;
	int64_t id, priority;

	if (verb_parse_id(args->words[0], &id, &e) != 0)
		return verb_fail(ctl, &e);
	if (options_parse_int(args->words[1], &priority) != 0) {
		ctl_error_set(&e, CTL_USAGE,
			"priority: %.64s: not a whole number (expected %d to %d)", args->words[1],
			-PROTOCOL_PRIORITY_MAX, PROTOCOL_PRIORITY_MAX);
		return verb_fail(ctl, &e);
	}
	params = json_pack("{s:I, s:I}", "id", (json_int_t)id, "priority", (json_int_t)priority);
	return verb_ask(ctl, METHOD_PRIORITY, params, true, print_priority);
}

const struct verb verb_priority = {
	.name = "priority",
	.args = "ID N",
	.min_args = 2,
	.max_args = 2,
	.summary = "move a queued run: a higher priority starts earlier",
	.text = "N is from -100 to 100; the default of submit is 0. Of runs with equal priority, "
		"the one submitted first starts first. A run in progress is not interrupted. Only "
		"the daemon's user, root and admins may set a value above 0, because such a run "
		"starts before those of others.",
	.run = run,
	.unended = true,
};
