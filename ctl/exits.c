#include "ctl/exits.h"

#include <stddef.h>

const struct exits_row exits_table[] = {
	{CTL_OK, "ok", "all well; a run that was waited for is done"},
	{CTL_TRANSPORT, "transport",
		"the connection broke, the answer made no sense, standard output failed, files "
		"of a run are altered or missing, or not all could be copied, or not all runs "
		"removed"},
	{CTL_USAGE, "usage or spec refused", "wrong usage, or the spec was refused"},
	{CTL_NO_DAEMON, "no daemon", "no daemon on that socket"},
	{CTL_RUN_FAILED, "run failed", "the run failed"},
	{CTL_GATE_FAILED, "gate failed", "a gate did not hold; for later, there are no gates yet"},
	{CTL_CANCELLED, "cancelled or interrupted",
		"the run was cancelled or interrupted, or following it was"},
	{CTL_NO_SUCH_RUN, "no such run", "no such run, or no such file of it"},
	{CTL_VERSION_MISMATCH, "version mismatch",
		"client and daemon are of different builds, or speak different protocol versions"},
	{CTL_TIMEOUT, "time-out", "time-out"},
	{CTL_UNREAD, "output not read", "the reader of standard output went away, as head(1) does"},
	{0, NULL, NULL},
};
