/* gpt2ctl shutdown: end the daemon. */
#include "ctl/print/format.h"
#include "ctl/verbs/verb.h"

static const struct option_row options[] = {
	{"now", 0, OPTION_FLAG, NULL, 0, 0,
		"do not wait for the run in progress: it becomes interrupted"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

static void print_shutdown(struct output *o, const json_t *reply)
{
	const long long running = format_int(reply, "running", 0);

	fputs("gpt2d is shutting down\n", o->out.file);
	if (running > 0)
		fprintf(o->out.file, "run %lld is %s; wait for its end with: gpt2ctl wait %lld\n",
			running,
			json_is_true(json_object_get(reply, "stopping"))
				? "being stopped"
				: "finished first (gpt2ctl shutdown --now stops it)",
			running);
}

static int run(struct ctl *ctl, const struct options *args)
{
	json_t *params = json_pack("{s:b}", "now", options_has(args, "now"));

	return verb_ask(ctl, METHOD_SHUTDOWN, params, true, print_shutdown);
}

const struct verb verb_shutdown = {
	.name = "shutdown",
	.args = "",
	.summary = "end the daemon; queued runs stay queued",
	.text = "The run in progress is finished first, unless --now is given. The queue is kept.",
	.options = options,
	.run = run,
};
