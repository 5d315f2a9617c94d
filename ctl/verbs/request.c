/* gpt2ctl keep, priority, metrics, shutdown: one request each, and its reply. */
#include <string.h>

#include "ctl/print/members.h"
#include "ctl/print/text.h"
#include "ctl/verbs/verb.h"

/* Takes params. The reply is printed by text, or with --json as an object of the method's kind. */
static int ask(struct ctl *ctl, const char *method, json_t *params,
	void (*text)(struct output *o, const json_t *reply), struct ctl_error *e)
{
	json_t *reply;

	if (client_ask(&ctl->link, method, params, &reply, e) != 0)
		return e->exit;
	output_print(&ctl->output, method, reply, text);
	if (strcmp(method, METHOD_METRICS) != 0)
		output_confirm(&ctl->output, method);
	json_decref(reply);
	return CTL_OK;
}

/* ---- keep ---- */

static const struct option_row keep_options[] = {
	{"off", 0, OPTION_FLAG, NULL, 0, 0, "remove the protection"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

static void print_kept(struct output *o, const json_t *reply)
{
	members_print(o->out.file, reply,
		json_is_true(json_object_get(reply, "kept"))
			? "run {id} is protected from pruning\n"
			: "run {id} is no longer protected from pruning\n");
}

static int keep(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	int64_t id;

	if (verb_parse_id(args->words[0], &id, e) != 0)
		return e->exit;
	return ask(ctl, METHOD_KEEP,
		json_pack("{s:I, s:b}", "id", (json_int_t)id, "kept", !options_has(args, "off")),
		print_kept, e);
}

const struct verb verb_keep = {
	.name = "keep",
	.args = "ID",
	.min_args = 1,
	.max_args = 1,
	.summary = "protect a run from pruning",
	.text = "Neither prune nor gpt2d's settings retain_runs and retain_days remove a protected "
		"run. show says whether a run is protected.",
	.options = keep_options,
	.run = keep,
};

/* ---- priority ---- */

static void print_priority(struct output *o, const json_t *reply)
{
	const char *state = json_string_value(json_object_get(reply, "state"));

	members_print(o->out.file, reply, "run {id} {name|}: priority {priority}, was {before}\n");
	if (!state || strcmp(state, "queued") != 0)
		members_print(o->out.file, reply, "the run is already {state}\n");
	text_outlook(&o->out, json_object_get(reply, "outlook"));
}

static int priority(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	int64_t id, value;

	if (verb_parse_id(args->words[0], &id, e) == 0 &&
		options_parse_int(args->words[1], &value) != 0)
		ctl_error_set(e, CTL_USAGE,
			"priority: %.64s: not a whole number (expected %d to %d)", args->words[1],
			-PROTOCOL_PRIORITY_MAX, PROTOCOL_PRIORITY_MAX);
	if (e->exit)
		return e->exit;
	return ask(ctl, METHOD_PRIORITY,
		json_pack("{s:I, s:I}", "id", (json_int_t)id, "priority", (json_int_t)value),
		print_priority, e);
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
	.run = priority,
	.unended = true,
};

/* ---- metrics ---- */

/* For programs: printed unchanged. */
static void print_metrics(struct output *o, const json_t *reply)
{
	const char *text = json_string_value(json_object_get(reply, "text"));

	fputs(text ? text : "", o->out.file);
}

static int metrics(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	return ask(ctl, METHOD_METRICS, json_object(), print_metrics, e);
}

const struct verb verb_metrics = {
	.name = "metrics",
	.args = "",
	.summary = "the daemon's figures as Prometheus text",
	.text = "For Prometheus and similar systems; gpt2d(8) describes the figures. The setting "
		"metrics_file makes gpt2d write them to a file.",
	.run = metrics,
};

/* ---- shutdown ---- */

static const struct option_row shutdown_options[] = {
	{"now", 0, OPTION_FLAG, NULL, 0, 0,
		"do not wait for the run in progress: it becomes interrupted"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

static void print_shutdown(struct output *o, const json_t *reply)
{
	fputs("gpt2d is shutting down\n", o->out.file);
	text_stopping(&o->out, reply, "is finished first (gpt2ctl shutdown --now stops it)");
}

static int shut_down(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	return ask(ctl, METHOD_SHUTDOWN, json_pack("{s:b}", "now", options_has(args, "now")),
		print_shutdown, e);
}

const struct verb verb_shutdown = {
	.name = "shutdown",
	.args = "",
	.summary = "end the daemon; queued runs stay queued",
	.text = "The run in progress is finished first, unless --now is given. The queue is kept.",
	.options = shutdown_options,
	.run = shut_down,
};
