#include "ctl/man.h"

#include "ctl/link/exits.h"
#include "ctl/print/schema_outputs.h"
#include "ctl/verb_table.h"

/*
 * A sentence per line, and a paragraph for an empty line. A period or apostrophe at the beginning
 * of a line would be a request, a backslash an escape.
 */
static void print_text(FILE *out, const char *text)
{
	char before = '\0';

	if (*text == '.' || *text == '\'')
		fputs("\\&", out);
	for (; *text; text++) {
		if (*text == '\\')
			fputs("\\e", out);
		else if (*text == ' ' && before == '.')
			fputc('\n', out);
		else if (*text == '\n' && before == '\n')
			fputs(".Pp\n", out);
		else
			fputc(*text, out);
		before = *text;
	}
	fputc('\n', out);
}

static void print_options(FILE *out, const struct option_row *table)
{
	fputs(".Bl -tag -width Ds\n", out);
	for (const struct option_row *row = table; row->name; row++) {
		fputs(".It", out);
		if (row->letter)
			fprintf(out, " Fl %c ,", row->letter);
		fprintf(out, " Fl -%s", row->name);
		if (row->arg)
			fprintf(out, " Ar %s", row->arg);
		fputc('\n', out);
		print_text(out, row->help);
	}
	fputs(".El\n", out);
}

static void print_synopsis(FILE *out)
{
	for (size_t i = 0; i < n_verbs; i++)
		fprintf(out, ".Nm\n.Op Ar options\n.Cm %s%s%s\n", verbs[i]->name,
			*verbs[i]->args ? "\n.Ar " : "", verbs[i]->args);
}

static void print_global(FILE *out)
{
	print_options(out, global_options);
}

static void print_verbs(FILE *out)
{
	fputs(".Bl -tag -width Ds\n", out);
	for (size_t i = 0; i < n_verbs; i++) {
		fprintf(out, ".It Cm %s%s%s%s\n", verbs[i]->name,
			verbs[i]->options ? " Oo Ar options Oc" : "", *verbs[i]->args ? " Ar " : "",
			verbs[i]->args);
		print_text(out, verbs[i]->summary);
		if (*verbs[i]->text) {
			fputs(".Pp\n", out);
			print_text(out, verbs[i]->text);
		}
		if (verbs[i]->options)
			print_options(out, verbs[i]->options);
	}
	fputs(".El\n", out);
}

static void print_exits(FILE *out)
{
	fputs(".Bl -tag -width 124 -compact\n", out);
	for (const struct exits_row *row = exits_table; row->brief; row++) {
		fprintf(out, ".It %d\n", (int)row->code);
		print_text(out, row->text);
	}
	fputs(".El\n", out);
}

static void print_outputs(FILE *out)
{
	man_page_objects(&schema_outputs_document, out);
}

const struct man_page_part man_parts[] = {
	{"SYNOPSIS", print_synopsis, NULL},
	{"OPTIONS", print_global, NULL},
	{"VERBS", print_verbs, NULL},
	{"EXITS", print_exits, NULL},
	{"OUTPUTS", print_outputs, NULL},
	{NULL, NULL, NULL},
};
