/*
 * settings_load.h: settings from the command line, $GPT2D_SOCKET and gpt2d.conf, in this order of
 * precedence.
 */
#ifndef GPT2D_DAEMON_CONFIG_SETTINGS_LOAD_H
#define GPT2D_DAEMON_CONFIG_SETTINGS_LOAD_H

#include <stdbool.h>
#include <stdio.h>

#include "daemon/config/settings.h"

/* What the command line requests besides settings. */
struct settings_command {
	enum {
		SETTINGS_RUN,
		SETTINGS_HELP,
		SETTINGS_VERSION,
		SETTINGS_TEST,  /* -n */
		SETTINGS_CHECK, /* --check */
	} action;
	bool verbose; /* -v */
	bool json;
	const char *config; /* -c; NULL: the standard path, where a file may be missing */
};

/*
 * 0, or -EINVAL after all errors were written to errors, a line each. The caller finishes s in both
 * cases. With --help or --version, no file is read.
 */
int settings_load(
	struct settings *s, int argc, char **argv, struct settings_command *command, FILE *errors);

/*
 * Fills in the defaults that have values: the standard paths, the socket's mode, the device. Paths
 * become absolute. For printing only: gpt2d itself distinguishes a default from a given value.
 */
void settings_resolve(struct settings *s);

void settings_print_help(FILE *out);

#endif
