/* gpt2ctl status: the daemon, its engine, the run that is going on, the queue. */
#include <time.h>

#include "ctl/arguments.h"
#include "ctl/link/client.h"
#include "ctl/link/interrupt.h"
#include "ctl/print/output.h"
#include "ctl/verbs/verb.h"
#include "proto/host/clock.h"

enum { QUEUE_DEFAULT = 10, QUEUE_MAX = 100 };

static const struct option_row options[] = {
	{"wait", 'w', OPTION_REAL, "SECONDS", 0.0, 1e9,
		"wait until gpt2d answers, as after its start, and no longer, also for one that is "
		"there and silent (124); when there is none after this time, that is the same "
		"error as without"},
	{"queue", 'n', OPTION_INT, "N", 0, QUEUE_MAX,
		"the first N of the queue, in the order in which they start (default 10)"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

/*
 * Connect once there is a daemon, or the time is over, for its answers too: 0, or an exit code with
 * e. 0 seconds: as every verb does.
 */
static int open_within(struct ctl *ctl, double seconds, struct client **c, struct ctl_error *e)
{
	const int64_t until_ns = clock_mono_ns() + (int64_t)(seconds * 1e9);
	const struct timespec pause = {0, 50000000};
	int exit;

	while ((exit = client_open_until(ctl, seconds > 0.0 ? until_ns : -1, c, e)) ==
			CTL_NO_DAEMON &&
		clock_mono_ns() < until_ns) {
		ctl_error_clear(e);
		if (interrupt_seen())
			return ctl_error_set(e, CTL_CANCELLED, "interrupted");
		nanosleep(&pause, NULL);
	}
	return exit;
}

static int run(struct ctl *ctl, const struct arguments *args)
{
	struct client *c = NULL;
	struct ctl_error e = {0};
	json_t *reply = NULL;
	const double seconds = arguments_real(args, "wait", 0.0);
	int exit;

	if (seconds > 0.0)
		interrupt_begin();
	exit = open_within(ctl, seconds, &c, &e);
	if (!exit)
		exit = client_request(c, METHOD_STATUS, json_object(), CLIENT_REPLY_S, &reply, &e);
	client_close(c);
	if (exit)
		return ctl_fail(ctl, &e);
	if (seconds > 0.0)
		interrupt_end();
	ctl->output->status(ctl, reply, (size_t)arguments_int(args, "queue", QUEUE_DEFAULT));
	json_decref(reply);
	return CTL_OK;
}

const struct verb verb_status = {
	.name = "status",
	.args = "",
	.summary = "the daemon, its engine, the run that is going on, and the queue",
	.text = "In a script, after gpt2d was started: gpt2ctl status --quiet --wait 30 || exit",
	.options = options,
	.run = run,
};
