/*
 * gpt2ctl-docs man FRAME: a manual page of gpt2ctl. gpt2ctl-docs schema: the JSON Schema of its
 * output. gpt2ctl-docs completion SHELL: its completion for bash, zsh or fish. Used by the build.
 */
#include <stdio.h>
#include <string.h>

#include "ctl/completion.h"
#include "ctl/link/ctl_error.h"
#include "ctl/print/schema_outputs.h"
#include "ctl/verb_table.h"
#include "proto/schema/man_page.h"

static void print_line(FILE *out, const char *text)
{
	man_page_text(out, text);
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
		print_line(out, row->help);
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
		print_line(out, verbs[i]->summary);
		if (*verbs[i]->text) {
			fputs(".Pp\n", out);
			print_line(out, verbs[i]->text);
		}
		if (verbs[i]->options)
			print_options(out, verbs[i]->options);
	}
	fputs(".El\n", out);
}

static void print_exits(FILE *out)
{
	fputs(".Bl -tag -width 124 -compact\n", out);
	for (const struct ctl_exit_row *row = ctl_exits; row->brief; row++) {
		fprintf(out, ".It %d\n", (int)row->code);
		print_line(out, row->text);
	}
	fputs(".El\n", out);
}

static void print_outputs(FILE *out)
{
	man_page_objects(&schema_outputs_document, out);
}

static const struct man_page_part parts[] = {
	{"SYNOPSIS", print_synopsis, NULL},
	{"OPTIONS", print_global, NULL},
	{"VERBS", print_verbs, NULL},
	{"EXITS", print_exits, NULL},
	{"OUTPUTS", print_outputs, NULL},
	{NULL, NULL, NULL},
};

int main(int argc, char **argv)
{
	int failed;

	if (argc == 3 && strcmp(argv[1], "man") == 0) {
		failed = man_page_print(argv[2], parts, stdout) != 0;
	} else if (argc == 2 && strcmp(argv[1], "schema") == 0) {
		failed = schema_print(&schema_outputs_document, stdout) != 0;
	} else if (argc == 3 && strcmp(argv[1], "completion") == 0) {
		failed = completion_print(argv[2], stdout) != 0;
	} else {
		fputs("usage: gpt2ctl-docs man FRAME | schema | completion bash|zsh|fish\n",
			stderr);
		return 2;
	}
	return failed || fflush(stdout) || ferror(stdout);
}
