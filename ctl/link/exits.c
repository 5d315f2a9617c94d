#include "ctl/link/exits.h"

#include <stddef.h>

bool exits_leave_open(int exit)
{
	return exit == CTL_TRANSPORT || exit == CTL_TIMEOUT || exit == CTL_NOT_NOW ||
		exit == CTL_GPT2D_FAILED;
}

static const struct {
	int code, exit;
} of_code[] = {
	{PROTOCOL_VERSION_MISMATCH, CTL_VERSION_MISMATCH},
	{PROTOCOL_SPEC_REFUSED, CTL_USAGE},
	{PROTOCOL_NO_SUCH_RUN, CTL_NO_SUCH_RUN},
	{PROTOCOL_NO_SUCH_FILE, CTL_NO_SUCH_RUN},
	{PROTOCOL_NOT_ALLOWED, CTL_NOT_ALLOWED},
	{PROTOCOL_BUSY, CTL_NOT_NOW},
	{PROTOCOL_STORE, CTL_NOT_NOW},
	{PROTOCOL_INTERNAL, CTL_GPT2D_FAILED},
	{PROTOCOL_WRONG_STATE, CTL_WRONG_STATE},
	{PROTOCOL_INVALID_PARAMS, CTL_USAGE},
	{PROTOCOL_METHOD_NOT_FOUND, CTL_VERSION_MISMATCH},
};

int exits_of(int code)
{
	for (size_t i = 0; i < sizeof(of_code) / sizeof(of_code[0]); i++) {
		if (of_code[i].code == code)
			return of_code[i].exit;
	}
	return CTL_TRANSPORT;
}

const struct exits_row exits_table[] = {
	{CTL_OK, "ok", "all well; a run that was waited for is done"},
	{CTL_TRANSPORT, "transport",
		"the connection broke, the answer made no sense, standard output or a file could "
		"not be written, files of a run are altered or missing, or not all could be "
		"copied, or not all runs removed"},
	{CTL_USAGE, "usage or spec refused",
		"wrong usage, a file that cannot be read or is not what it should be, or the spec "
		"was refused"},
	{CTL_NO_DAEMON, "no daemon", "no daemon on that socket"},
	{CTL_RUN_FAILED, "run failed", "the run failed"},
	{CTL_GATE_FAILED, "gate failed", "a gate did not hold; for later, there are no gates yet"},
	{CTL_CANCELLED, "cancelled or interrupted",
		"the run was cancelled or interrupted, or a signal ended following it, a --wait, a "
		"submission or data prepare"},
	{CTL_NO_SUCH_RUN, "no such run", "no such run, or no such file of it"},
	{CTL_VERSION_MISMATCH, "version mismatch",
		"client and daemon are of different builds, or speak different protocol versions"},
	{CTL_NOT_ALLOWED, "not allowed",
		"not allowed: another user's run, what is for administrators, or a socket that is "
		"for others"},
	{CTL_NOT_NOW, "not now",
		"gpt2d cannot do it now, later perhaps: it is stopping, has too many clients, "
		"cannot write its queue or remove the folder of a run; or what was waited for will "
		"not come about"},
	{CTL_GPT2D_FAILED, "gpt2d failed",
		"gpt2d, or its checker of specs, failed at it or had no memory"},
	{CTL_WRONG_STATE, "wrong state",
		"the run is in no state for it: not queued any more, or nothing to compare yet"},
	{CTL_DECLINED, "declined",
		"the question was answered with no or a signal; nothing was done"},
	{CTL_TIMEOUT, "time-out", "time-out"},
	{CTL_UNREAD, "output not read", "the reader of standard output went away, as head(1) does"},
	{0, NULL, NULL},
};
