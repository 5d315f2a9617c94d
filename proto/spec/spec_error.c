#include "proto/spec/spec_error.h"

#include <stdarg.h>
#include <string.h>

#include "proto/text.h"

enum { ROOM = sizeof(((struct spec_errors *)0)->error) / sizeof(struct spec_error) };

bool spec_error_room(const struct spec_errors *errors)
{
	return errors->n < ROOM;
}

static void mark_cut(char *s, size_t size, bool cut)
{
	if (cut)
		memcpy(s + size - 4, "...", 4);
	text_printable(s, '?');
}

void spec_error_add(
	struct spec_errors *errors, struct spec_place at, const char *key, const char *format, ...)
{
	struct spec_error *e;
	va_list args;
	int n;

	if (!spec_error_room(errors)) {
		errors->dropped++;
		return;
	}
	e = &errors->error[errors->n];
	memset(e, 0, sizeof(*e));
	e->at = at;
	n = snprintf(e->key, sizeof(e->key), "%s", key);
	mark_cut(e->key, sizeof(e->key), n >= (int)sizeof(e->key));
	va_start(args, format);
	n = vsnprintf(e->message, sizeof(e->message), format, args);
	va_end(args);
	mark_cut(e->message, sizeof(e->message), n >= (int)sizeof(e->message));
	for (size_t i = 0; i < errors->n; i++) {
		const struct spec_error *o = &errors->error[i];

		if (o->at.line == at.line && o->at.column == at.column && !strcmp(o->key, e->key) &&
			!strcmp(o->message, e->message))
			return;
	}
	errors->n++;
}

void spec_error_print(const struct spec_error *error, const char *file, FILE *out)
{
	fprintf(out, "%s:", file);
	if (error->at.line > 0)
		fprintf(out, "%d:", error->at.line);
	if (error->at.column > 0)
		fprintf(out, "%d:", error->at.column);
	if (error->key[0])
		fprintf(out, " %s:", error->key);
	fprintf(out, " %s\n", error->message);
}

void spec_errors_print(const struct spec_errors *errors, const char *file, FILE *out)
{
	for (size_t i = 0; i < errors->n; i++)
		spec_error_print(&errors->error[i], file, out);
	if (errors->dropped > 0)
		fprintf(out, "%s: %zu more errors\n", file, errors->dropped);
}
