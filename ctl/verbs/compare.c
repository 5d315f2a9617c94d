/* gpt2ctl compare: the arms of a run side by side. */
#include "ctl/arguments.h"
#include "ctl/results/comparison.h"
#include "ctl/print/output.h"
#include "ctl/verbs/show.h"
#include "ctl/verbs/verb.h"

static const struct option_row options[] = {
	{"baseline", 'b', OPTION_STRING, "ARM", 0, 0,
		"the arm that the others are compared with; default the first"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

static int run(struct ctl *ctl, const struct arguments *args)
{
	struct ctl_error e = {0};
	json_t *show, *comparison;
	int exit;

	if (show_fetch(ctl, args->words[0], &show, &e) != 0)
		return ctl_fail(ctl, &e);
	exit = comparison_make(show, arguments_string(args, "baseline", NULL), &comparison, &e);
	json_decref(show);
	if (exit)
		return ctl_fail(ctl, &e);
	ctl->output->compare(ctl, comparison);
	json_decref(comparison);
	return CTL_OK;
}

const struct verb verb_compare = {
	.name = "compare",
	.args = "ID",
	.min_args = 1,
	.max_args = 1,
	.summary = "the arms of an experiment side by side",
	.text = "Per arm: effective bucket plan, median and p95 step time (nearest rank; no p95 "
		"under 20 steps), tokens per second (total tokens over total time), exposed "
		"communication, the losses at the end, and how far losses agree. Per block: the "
		"ratio to the baseline. It works on a run that has not ended, with the segments "
		"that are done. Two runs are not compared: they had other times, and perhaps other "
		"neighbours, to run in. A spec that has both as its arms makes one run of them, in "
		"which they take turns; what an arm may change is in gpt2d-spec(5).",
	.no_more = "two runs are not compared, but the arms of one",
	.options = options,
	.run = run,
};
