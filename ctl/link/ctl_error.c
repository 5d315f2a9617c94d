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
