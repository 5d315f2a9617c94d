/*
 * settings.h: gpt2d's settings, one row each in a table: name, type, range, default, help. They are
 * given as long options; the rows are made to serve a configuration file as well.
 */
#ifndef GPT2D_SETTINGS_H
#define GPT2D_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { SETTINGS_ROOTS_MAX = 64 };

struct settings {
	char *socket; /* NULL: the standard place */
	char *state_dir;
	char *engine;
	char *log;
	char *data_root[SETTINGS_ROOTS_MAX];
	size_t n_data_roots; /* 0: anywhere */
	int64_t ranks, threads;
	int64_t start_timeout_s, alive_timeout_s, progress_timeout_s, cancel_timeout_s,
		check_timeout_s;
	int64_t clients_max, clients_per_uid, client_buffer_bytes;
	bool verbose;
};

enum settings_action { SETTINGS_RUN, SETTINGS_HELP, SETTINGS_VERSION };

void settings_init(struct settings *s); /* defaults */
void settings_finish(struct settings *s);

/* The command line: 0, or -EINVAL with error. */
int settings_parse(struct settings *s, int argc, char **argv, enum settings_action *action,
	char *error, size_t error_bytes);
/* One setting by name: 0, or -EINVAL, -ENOENT (no such setting), -ENOMEM with error. */
int settings_set(
	struct settings *s, const char *name, const char *value, char *error, size_t error_bytes);
void settings_print_help(FILE *out);

#endif
