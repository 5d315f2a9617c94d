/*
 * gpt2d-spec-docs schema, messages or artifacts: the JSON Schema of a run spec, of the protocol's
 * messages, of a run's files. gpt2d-spec-docs man FRAME: the manual page FRAME with the line @KEYS@
 * replaced by the spec's keys, @ARTIFACTS@ by those of the artifacts, @MEMBERS NAME@ by those of a
 * message, @WAITING@ by the reasons for waiting. Used by the build.
 */
#include <stdio.h>
#include <string.h>

#include "proto/schema/man_page.h"
#include "proto/schema/schema.h"
#include "proto/spec/spec.h"
#include "proto/waiting.h"

static void print_artifacts(FILE *out)
{
	man_page_objects(&schema_artifact_document, out);
}

static int print_message(FILE *out, const char *name)
{
	return man_page_message(&schema_message_document, name, out);
}

static const struct man_page_part parts[] = {
	{"KEYS", spec_print_man, NULL},
	{"ARTIFACTS", print_artifacts, NULL},
	{"WAITING", waiting_print_man, NULL},
	{"MEMBERS", NULL, print_message},
	{NULL, NULL, NULL},
};

int main(int argc, char **argv)
{
	int failed = 0;

	if (argc == 2 && !strcmp(argv[1], "schema")) {
		spec_print_schema(stdout);
	} else if (argc == 2 && !strcmp(argv[1], "messages")) {
		failed = schema_print(&schema_message_document, stdout) != 0;
	} else if (argc == 2 && !strcmp(argv[1], "artifacts")) {
		failed = schema_print(&schema_artifact_document, stdout) != 0;
	} else if (argc == 3 && !strcmp(argv[1], "man")) {
		failed = man_page_print(argv[2], parts, stdout) != 0;
	} else {
		fprintf(stderr,
			"usage: gpt2d-spec-docs schema | messages | artifacts | man FRAME\n");
		return 2;
	}
	return failed || fflush(stdout) || ferror(stdout);
}
