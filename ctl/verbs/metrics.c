/* gpt2ctl metrics: figures of the daemon for a monitoring system. */
#include "ctl/print/output.h"
#include "ctl/verbs/verb.h"

static int run(struct ctl *ctl, const struct arguments *args)
{
	return ctl_ask(ctl, METHOD_METRICS, json_object(), false, ctl->output->metrics);
}

const struct verb verb_metrics = {
	.name = "metrics",
	.args = "",
	.summary = "the daemon's figures as OpenMetrics text",
	.text = "For Prometheus and the like; gpt2d(8) has their meaning. A gpt2d whose setting "
		"metrics_file is given writes the same to that file.",
	.run = run,
};
