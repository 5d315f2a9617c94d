/*
 * gpt2ctl-docs man FRAME: a manual page of gpt2ctl. gpt2ctl-docs schema: the JSON Schema of what it
 * prints. gpt2ctl-docs completion SHELL: its completion for bash, zsh or fish. Used by the build.
 */
#include <stdio.h>
#include <string.h>

#include "ctl/completion.h"
#include "ctl/man.h"
#include "ctl/print/schema_outputs.h"
#include "proto/schema/man_page.h"

int main(int argc, char **argv)
{
	int failed;

	if (argc == 3 && strcmp(argv[1], "man") == 0) {
		failed = man_page_print(argv[2], man_parts, stdout) != 0;
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
