/* gpt2ctl metrics: figures of the daemon for a monitoring system. */
#include "ctl/verbs/verb.h"

/* For programs: printed unchanged. */
static void print_metrics(struct output *o, const json_t *reply)
{
	const char *text = json_string_value(json_object_get(reply, "text"));

	fputs(text ? text : "", o->out.file);
}

static int run(struct ctl *ctl, const struct options *args)
{
	return verb_ask(ctl, METHOD_METRICS, json_object(), false, print_metrics);
}

const struct verb verb_metrics = {
	.name = "metrics",
	.args = "",
	.summary = "the daemon's figures as Prometheus text",
	.text = "For Prometheus and similar systems; gpt2d(8) describes the figures. The setting "
		"metrics_file makes gpt2d write them to a file.",
	.run = run,
};
