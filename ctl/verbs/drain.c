/* gpt2ctl drain, resume: whether queued runs start. */
#include "ctl/verbs/gate.h"
#include "ctl/verbs/verb.h"

static const struct option_row options[] = {
	{"reason", 'r', OPTION_STRING, "TEXT", 0, 0,
		"why; status and submit show it; the first one stays while it is drained"},
	{"wait", 'w', OPTION_FLAG, NULL, 0, 0,
		"until the run that is going on has ended and that is on disk; a gpt2d that goes "
		"away is looked for again for 5 s, and is asked again"},
	{"timeout", 't', OPTION_REAL, "SECONDS", 0.0, 1e9,
		"with --wait: give up after this time with exit code 124; 0: look once; it "
		"stays drained, also where a signal ends the wait (6)"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

static int run_drain(struct ctl *ctl, const struct arguments *args)
{
	return gate_ask(ctl, args, METHOD_DRAIN);
}

static int run_resume(struct ctl *ctl, const struct arguments *args)
{
	return gate_ask(ctl, args, METHOD_RESUME);
}

const struct verb verb_drain = {
	.name = "drain",
	.args = "",
	.summary = "start no more runs; the one that is going on is finished",
	.text = "Runs can be submitted and wait. It lasts, over a restart of gpt2d as well, until "
		"resume. For who runs the daemon, and admins.",
	.options = options,
	.run = run_drain,
};

const struct verb verb_resume = {
	.name = "resume",
	.args = "",
	.summary = "start queued runs again after drain",
	.text = "",
	.run = run_resume,
};
