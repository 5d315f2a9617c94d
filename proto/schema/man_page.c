#include "proto/schema/man_page.h"

#include <errno.h>
#include <string.h>

/* ---- members ---- */

void man_page_text(FILE *out, const char *text)
{
	if (*text == '.' || *text == '\'')
		fputs("\\&", out);
	for (const char *at = text; *at; at++) {
		if (at[0] == '.' && at[1] == ' ' && at[2] != '.')
			fputs(*++at ? ".\n" : ".", out);
		else if (at > text && at[0] == '\n' && at[-1] == '\n')
			fputs(".Pp\n", out);
		else if (*at == '\\')
			fputs("\\e", out);
		else if (*at == '-')
			fputs("\\-", out);
		else
			fputc(*at, out);
	}
}

static const struct {
	const char *name, *text;
} words[] = {
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
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strlen(words[i].name) == n && strncmp(words[i].name, name, n) == 0) {
			fputs(words[i].text, out);
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

static int print_member(const struct schema_row *member, void *arg)
{
	FILE *out = arg;

	fprintf(out, ".It Ic %s\n(", member->key);
	print_type(out, member->type + (member->type[0] == '.'));
	fputs(*member->help ? ")\n" : ")", out);
	man_page_text(out, member->help);
	fputc('\n', out);
	return 0;
}

static int found(const struct schema_row *member, void *arg)
{
	return 1;
}

static void print_members(const struct schema_document *d, const struct schema_row *head, FILE *out)
{
	if (schema_visit(d, head, found, NULL) == 0)
		return;
	fputs(".Bl -tag -width indent -compact\n", out);
	schema_visit(d, head, print_member, out);
	fputs(".El\n", out);
}

void man_page_objects(const struct schema_document *d, FILE *out)
{
	for (size_t t = 0; d->tables[t]; t++) {
		for (const struct schema_row *row = d->tables[t]; row->key; row++) {
			if (row->type[0] != '#' || !schema_has(d, row))
				continue;
			fprintf(out, ".Ss %s\n", row->key);
			man_page_text(out, row->help);
			fputc('\n', out);
			print_members(d, row, out);
		}
	}
}

/* For a request its params and its result, for others their params. */
int man_page_message(const struct schema_document *d, const char *name, FILE *out)
{
	int n = 0;

	for (size_t t = 0; d->tables[t]; t++) {
		for (const struct schema_row *row = d->tables[t]; row->key; row++) {
			if (row->type[0] != '#' || strcmp(row->key, name) != 0 ||
				strcmp(row->type, SCHEMA_OBJECT) == 0)
				continue;
			if (n > 0) /* mandoc warns about a paragraph after a heading */
				fputs(".Pp\n", out);
			if (strcmp(row->type, SCHEMA_REPLY) == 0 ||
				strcmp(row->type, SCHEMA_PRINTED) == 0)
				fputs("Result: ", out);
			else if (strcmp(row->type, SCHEMA_REQUEST) != 0)
				fprintf(out, ".Cm %s :\n", name);
			man_page_text(out, row->help);
			fputc('\n', out);
			print_members(d, row, out);
			n++;
		}
	}
	return n > 0 ? 0 : -EINVAL;
}

/* ---- frames ---- */

/* line: "NAME" or "NAME WORD". */
static int print_part(const char *line, const struct man_page_part *parts, FILE *out)
{
	const size_t n = strcspn(line, " ");

	for (; parts->name != NULL; parts++) {
		if (strlen(parts->name) != n || strncmp(line, parts->name, n) != 0)
			continue;
		if (parts->print_of && line[n] == ' ')
			return parts->print_of(out, line + n + 1);
		if (parts->print && line[n] == '\0') {
			parts->print(out);
			return 0;
		}
	}
	return -EINVAL;
}

int man_page_print(const char *frame, const struct man_page_part *parts, FILE *out)
{
	FILE *in = fopen(frame, "r");
	char line[4096];
	int rc = in ? 0 : -errno;

	while (rc == 0 && fgets(line, sizeof(line), in)) {
		const size_t n = strlen(line);

		if (line[0] != '@') {
			fputs(line, out);
			continue;
		}
		if (n > 2 && line[n - 2] == '@')
			line[n - 2] = '\0';
		rc = print_part(line + 1, parts, out);
	}
	if (rc == 0 && ferror(in))
		rc = -EIO;
	if (rc == -EINVAL)
		fprintf(stderr, "%s: %.*s: no such part\n", frame, (int)strcspn(line, "\n"), line);
	else if (rc != 0)
		fprintf(stderr, "%s: %s\n", frame, strerror(-rc));
	if (in)
		fclose(in);
	return rc;
}
