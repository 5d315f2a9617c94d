#include "ctl/link/ctl_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int ctl_error_set(struct ctl_error *e, int exit, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(e->message, sizeof(e->message), format, ap);
	va_end(ap);
	e->exit = exit;
	return exit;
}

int ctl_error_add(struct ctl_error *e, const char *format, ...)
{
	const size_t n = strlen(e->message);
	va_list ap;

	if (n + 1 < sizeof(e->message)) {
		e->message[n] = '\n';
		va_start(ap, format);
		vsnprintf(e->message + n + 1, sizeof(e->message) - n - 1, format, ap);
		va_end(ap);
	}
	return e->exit;
}

void ctl_error_clear(struct ctl_error *e)
{
	json_decref(e->data);
	*e = (struct ctl_error){0};
}

/* ---- exit statuses ---- */

bool ctl_error_leaves_open(int exit)
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
	{PROTOCOL_WRONG_NODE, CTL_USAGE},
	{PROTOCOL_INVALID_PARAMS, CTL_USAGE},
	{PROTOCOL_METHOD_NOT_FOUND, CTL_VERSION_MISMATCH},
};

int ctl_error_exit(int code)
{
	for (size_t i = 0; i < sizeof(of_code) / sizeof(of_code[0]); i++) {
		if (of_code[i].code == code)
			return of_code[i].exit;
	}
	return CTL_TRANSPORT;
}

const struct ctl_exit_row ctl_exits[] = {
	{CTL_OK, "ok", "success; a run that was waited for is done"},
	{CTL_TRANSPORT, "transport",
		"the connection broke, gpt2d sent an invalid reply, standard output or a file "
		"could not be written, files of a run are altered, missing or not copied, or a "
		"run was not removed"},
	{CTL_USAGE, "usage or spec refused",
		"wrong usage, an unreadable or invalid file, a refused spec, or a request to a "
		"member that only the leader of several nodes serves"},
	{CTL_NO_DAEMON, "no daemon", "no gpt2d on the socket"},
	{CTL_RUN_FAILED, "run failed", "the run failed"},
	{CTL_GATE_FAILED, "gate failed", "a gate failed: compare --fail-if"},
	{CTL_CANCELLED, "cancelled or interrupted",
		"the run was cancelled or interrupted, or a signal ended follow, a --wait, a "
		"submission or data prepare"},
	{CTL_NO_SUCH_RUN, "no such run", "unknown run, or unknown file of a run"},
	{CTL_VERSION_MISMATCH, "version mismatch",
		"gpt2ctl and gpt2d have different builds or protocol versions"},
	{CTL_NOT_ALLOWED, "not allowed",
		"no permission: another user's run, a request for admins only, or the socket of "
		"others"},
	{CTL_NOT_NOW, "not now",
		"gpt2d cannot do it now: it is stopping, has too many clients, cannot write its "
		"store or remove the directory of a run, or generate would disturb a run; retry "
		"later"},
	{CTL_GPT2D_FAILED, "gpt2d failed", "gpt2d, or its checker of specs, failed"},
	{CTL_WRONG_STATE, "wrong state",
		"the state of the run does not allow it: not queued, nothing to compare "
		"yet, or no checkpoint"},
	{CTL_DECLINED, "declined",
		"the user answered no, or a signal ended the question; nothing was done"},
	{CTL_AMBIGUOUS, "ambiguous", "a verdict that compare --fail-if needs is AMBIGUOUS"},
	{CTL_TIMEOUT, "time-out", "timed out"},
	{CTL_UNREAD, "output not read",
		"the reader of standard output closed the pipe, as head(1) does"},
	{0, NULL, NULL},
};
