/*
 * gpt2d-settings-docs example: the text of etc/gpt2d.conf. gpt2d-settings-docs man FRAME: the
 * manual page FRAME with the line @SETTINGS@ replaced by the table's. Used by the build.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/config/settings.h"
#include "proto/schema/man_page.h"

static const struct man_page_part parts[] = {
	{"SETTINGS", settings_print_man},
	{NULL, NULL},
};

int main(int argc, char **argv)
{
	int failed = 0;

	if (argc == 2 && strcmp(argv[1], "example") == 0) {
		settings_print_example(stdout);
	} else if (argc == 3 && strcmp(argv[1], "man") == 0) {
		failed = man_page_print(argv[2], parts, stdout) != 0;
	} else {
		fprintf(stderr, "usage: gpt2d-settings-docs example | man FRAME\n");
		return 2;
	}
	return failed || fflush(stdout) || ferror(stdout);
}
