/*
 * gpt2d-settings-docs example: the text of etc/gpt2d.conf. gpt2d-settings-docs man FRAME: the
 * manual page FRAME with the line @SETTINGS@ replaced by the table's. Used by the build.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/settings.h"

static int print_page(const char *frame)
{
	FILE *in = fopen(frame, "r");
	char text[1024];
	int failed;

	if (in == NULL) {
		perror(frame);
		return 1;
	}
	while (fgets(text, sizeof(text), in)) {
		if (strcmp(text, "@SETTINGS@\n") == 0)
			settings_print_man(stdout);
		else
			fputs(text, stdout);
	}
	failed = ferror(in);
	fclose(in);
	return failed;
}

int main(int argc, char **argv)
{
	int failed = 0;

	if (argc == 2 && strcmp(argv[1], "example") == 0) {
		settings_print_example(stdout);
	} else if (argc == 3 && strcmp(argv[1], "man") == 0) {
		failed = print_page(argv[2]);
	} else {
		fprintf(stderr, "usage: gpt2d-settings-docs example | man FRAME\n");
		return 2;
	}
	return failed || fflush(stdout) || ferror(stdout);
}
