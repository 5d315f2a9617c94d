#include "ctl/gate.h"

#include <math.h>

#include "ctl/client.h"
#include "ctl/output.h"

enum { FOREVER_S = 1000000000 };

int gate_ask(struct ctl *ctl, const struct arguments *args, const char *method)
{
	const char *reason = arguments_string(args, "reason", NULL);
	const bool wait = arguments_has(args, "wait");
	const double timeout = arguments_real(args, "timeout", FOREVER_S);
	json_t *params = json_object(), *reply = NULL;
	struct client *c = NULL;
	struct ctl_error e = {0};
	int exit;

	if (arguments_has(args, "timeout") && !wait) {
		json_decref(params);
		ctl_error_set(&e, CTL_USAGE, "%s: --timeout is for --wait", method);
		return ctl_fail(ctl, &e);
	}
	if (reason)
		json_object_set_new(params, "reason", json_string(reason));
	if (reason && !json_object_get(params, "reason")) {
		json_decref(params);
		ctl_error_set(&e, CTL_USAGE, "%s: --reason: it is not UTF-8", method);
		return ctl_fail(ctl, &e);
	}
	if (arguments_has(args, "now"))
		json_object_set_new(params, "now", json_true());
	if (wait)
		json_object_set_new(params, "wait", json_true());
	exit = client_open(ctl, &c, &e);
	if (exit)
		json_decref(params);
	else
		exit = client_request(
			c, method, params, wait ? (int)ceil(timeout) : CLIENT_REPLY_S, &reply, &e);
	client_close(c);
	if (exit)
		return ctl_fail(ctl, &e);
	ctl->output->gate(ctl, method, reply);
	json_decref(reply);
	return CTL_OK;
}
