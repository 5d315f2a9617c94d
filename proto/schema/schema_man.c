/* schema.h's rows as sections of a manual page. */
#include <string.h>

#include "proto/schema/schema.h"

static void print_text(FILE *out, const char *text)
{
	if (*text == '.' || *text == '\'')
		fputs("\\&", out);
	for (; *text; text++) {
		if (text[0] == '.' && text[1] == ' ') {
			fputs(".\n", out);
			text++;
		} else if (*text == '\\') {
			fputs("\\e", out);
		} else {
			fputc(*text, out);
		}
	}
}

static const struct {
	const char *name, *words;
} basics[] = {
	{"int", "whole number"},
	{"count", "whole number"},
	{"real", "number"},
	{"bool", "true or false"},
	{"any", "anything"},
	{"sha256", "SHA\\-256"},
	{"time", "UTC time"},
};

static void print_name(FILE *out, const char *name, size_t n)
{
	for (size_t i = 0; i < sizeof(basics) / sizeof(basics[0]); i++) {
		if (strlen(basics[i].name) == n && strncmp(basics[i].name, name, n) == 0) {
			fputs(basics[i].words, out);
			return;
		}
	}
	fprintf(out, "%.*s", (int)n, name);
}

/* "[real|null]" as "array of number or null" */
static void print_type(FILE *out, const char *type)
{
	const size_t n = strlen(type);

	for (size_t i = 0; i < n;) {
		const size_t word = strcspn(type + i, "[]{}|=,?");

		if (word > 0)
			print_name(out, type + i, word);
		else if (type[i] == '[')
			fputs("array of ", out);
		else if (type[i] == '{')
			fputs("object, each member ", out);
		else if (type[i] == '|')
			fputs(" or ", out);
		else if (type[i] == ',')
			fputs(", ", out);
		i += word > 0 ? word : 1;
	}
	if (type[0] == '?')
		fputs("; may be absent", out);
}

void schema_print_man(const struct schema_document *d, FILE *out)
{
	bool open = false;

	for (size_t t = 0; d->tables[t]; t++) {
		for (const struct schema_row *row = d->tables[t]; row->key; row++) {
			if (row->type[0] == '#') {
				fprintf(out, "%s.Ss %s\n", open ? ".El\n" : "", row->key);
				print_text(out, row->help);
				open = row[1].key && row[1].type[0] != '#';
				fputs(open ? "\n.Bl -tag -width indent -compact\n" : "\n", out);
				continue;
			}
			fprintf(out, ".It Ic %s\n(", row->key);
			print_type(out, row->type);
			fputs(*row->help ? ")\n" : ")", out);
			print_text(out, row->help);
			fputc('\n', out);
		}
	}
	if (open)
		fputs(".El\n", out);
}
