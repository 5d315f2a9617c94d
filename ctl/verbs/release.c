/* gpt2ctl release, warm: whether the engines are there, and hold their devices. */
#include "ctl/verbs/gate.h"
#include "ctl/verbs/verb.h"

static const struct option_row release_options[] = {
	{"now", 0, OPTION_FLAG, NULL, 0, 0,
		"do not wait for the run that is going on: it becomes interrupted, and queued "
		"again if its spec says restart"},
	{"reason", 'r', OPTION_STRING, "TEXT", 0, 0, "why; status and submit show it"},
	{"wait", 'w', OPTION_FLAG, NULL, 0, 0,
		"until the engines have ended; a gpt2d that goes away is looked for again for 5 s, "
		"and is asked again"},
	{"timeout", 't', OPTION_REAL, "SECONDS", 0.0, 1e9,
		"with --wait: give up after this time with exit code 124; 0: look once; the "
		"release stays asked for, also where a signal ends the wait (6)"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

static const struct option_row warm_options[] = {
	{"wait", 'w', OPTION_FLAG, NULL, 0, 0,
		"until they are ready, and say how long it took; a gpt2d that goes away is looked "
		"for again for 5 s, and is asked again"},
	{"timeout", 't', OPTION_REAL, "SECONDS", 0.0, 1e9,
		"with --wait: give up after this time with exit code 124; 0: look once"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

static int run_release(struct ctl *ctl, const struct arguments *args)
{
	return gate_ask(ctl, args, METHOD_RELEASE);
}

static int run_warm(struct ctl *ctl, const struct arguments *args)
{
	return gate_ask(ctl, args, METHOD_WARM);
}

const struct verb verb_release = {
	.name = "release",
	.args = "",
	.summary = "end the engines and give their GPUs back; the queue waits",
	.text = "The run that is going on is finished first, unless --now is given. Runs can be "
		"submitted and wait. It lasts, over a restart of gpt2d as well, until warm. With "
		"idle_release in gpt2d.conf(5) the engines go by themselves when there is nothing "
		"to do, and come back for the next run.",
	.options = release_options,
	.run = run_release,
};

const struct verb verb_warm = {
	.name = "warm",
	.args = "",
	.summary = "take the engines again after release",
	.text = "If the engines do not start, gpt2d waits longer after each try; warm starts the "
		"next try at once.",
	.options = warm_options,
	.run = run_warm,
};
