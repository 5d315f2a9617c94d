#include "ctl/ctl.h"

#include <stdarg.h>

#include "ctl/link/client.h"
#include "ctl/print/format.h"
#include "ctl/print/output.h"

int ctl_error_set(struct ctl_error *e, int exit, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(e->message, sizeof(e->message), format, ap);
	va_end(ap);
	e->exit = exit;
	return exit;
}

void ctl_error_clear(struct ctl_error *e)
{
	json_decref(e->data);
	e->data = NULL;
	e->code = 0;
}

json_t *ctl_error_json(const struct ctl_error *e)
{
	json_t *object = json_pack("{s:i, s:o, s:O*}", "exit", e->exit, "message",
		format_json_text(e->message), "data", e->data);

	if (e->code != 0)
		json_object_set_new(object, "code", json_integer(e->code));
	return object;
}

int ctl_fail(struct ctl *ctl, struct ctl_error *e)
{
	const int exit = e->exit;

	ctl->output->error(ctl, e);
	ctl_error_clear(e);
	return exit;
}

int ctl_ask(struct ctl *ctl, const char *method, json_t *params, bool changes,
	void (*print)(struct ctl *ctl, const json_t *reply))
{
	struct ctl_error e = {0};
	json_t *reply;

	if (client_ask(ctl, method, params, &reply, &e) != 0)
		return ctl_fail(ctl, &e);
	print(ctl, reply);
	if (changes)
		output_tell_done(ctl, method);
	json_decref(reply);
	return CTL_OK;
}
