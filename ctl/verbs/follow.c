/* gpt2ctl follow: the progress of a run until it ends. */
#include "ctl/arguments.h"
#include "ctl/verbs/follow.h"
#include "ctl/link/interrupt.h"
#include "ctl/print/output.h"
#include "ctl/verbs/verb.h"
#include "ctl/link/watch.h"

int follow_run(
	struct ctl *ctl, struct client **c, int64_t id, bool told, const struct term *term)
{
	struct progress progress;
	struct watch w = {.id = id, .deadline_ns = -1, .progress = &progress, .told = told};
	struct ctl_error e = {0};
	int exit;

	progress_init(&progress, term);
	interrupt_begin();
	exit = watch_run(ctl, c, &w, &e);
	return w.state[0] ? exit : ctl_fail(ctl, &e);
}

static int run(struct ctl *ctl, const struct arguments *args)
{
	struct client *c = NULL;
	struct ctl_error e = {0};
	int64_t id;
	int exit;

	interrupt_begin();
	if (arguments_id(args->words[0], &id, &e) != 0 || client_open(ctl, &c, &e) != 0)
		return ctl_fail(ctl, &e);
	exit = follow_run(ctl, &c, id, false, &ctl->out);
	client_close(c);
	return exit;
}

const struct verb verb_follow = {
	.name = "follow",
	.args = "ID",
	.min_args = 1,
	.max_args = 1,
	.summary = "show a run's progress until it ends",
	.text = "On a terminal: a bar with loss, tokens per second and the time left. Elsewhere: "
		"plain lines. Of a run that is queued: why it waits, and again when that is of "
		"another kind; not with --json. Interrupting it (Ctrl-C) leaves the run alone. A "
		"gpt2d that goes "
		"away is looked for again for 5 s; where none comes back, or the connection is "
		"lost again before anything was heard (an event, or the answer of a gpt2d that was "
		"started anew), the exit code is 1. Else it is the run's result.",
	.run = run,
};
