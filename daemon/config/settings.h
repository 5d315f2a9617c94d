/*
 * settings.h: gpt2d's settings. Each is one row of the table in settings.c, which makes its line in
 * gpt2d.conf, its option, its range, its default, --help and its text in gpt2d.conf(5).
 *
 * To add one: a member below and a row in settings.c; then `ninja -C build example-conf`, which
 * writes etc/gpt2d.conf anew. Nothing else knows the names: tests/integration/test_config.py
 * compares the example and the page with the table. A row marked reload takes effect on SIGHUP:
 * whoever uses it reads it from struct settings at each use, in the loop's thread. The others are
 * never changed while gpt2d runs.
 */
#ifndef GPT2D_DAEMON_CONFIG_SETTINGS_H
#define GPT2D_DAEMON_CONFIG_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "proto/host/data_roots.h"

enum { SETTINGS_ROOTS_MAX = DATA_ROOTS_MAX, SETTINGS_ROWS_MAX = 64 };

struct settings_list {
	char *path[SETTINGS_ROOTS_MAX];
	size_t n;
};

/* A group of users by name; name NULL: not given. */
struct settings_group {
	char *name;
	gid_t gid;
};

enum settings_device { DEVICE_UNSET, DEVICE_CPU, DEVICE_CUDA, DEVICE_AUTO };

enum settings_source { BY_DEFAULT, BY_FILE, BY_ENVIRONMENT, BY_OPTION };

struct settings {
	char *socket;        /* NULL: the standard place */
	int64_t socket_mode; /* -1: not given */
	struct settings_group socket_group, admin_group;
	char *state_dir;
	int64_t device; /* enum settings_device */
	char *engine;
	char *log_file;
	int64_t log_level;               /* enum log_level */
	struct settings_list data_roots; /* none: anywhere */
	int64_t ranks, threads;
	int64_t start_timeout_s, alive_timeout_s, progress_timeout_s, cancel_timeout_s,
		stop_timeout_s, check_timeout_s, idle_release_s;
	int64_t clients_max, clients_per_uid, client_idle_s, client_buffer_bytes,
		clients_buffer_bytes;
	int64_t retain_runs, retain_days; /* 0: all, for ever */
	char *metrics_file;               /* NULL: none */
	int64_t metrics_period_s;

	/* of each row, in the table's order */
	enum settings_source source[SETTINGS_ROWS_MAX];
	int line[SETTINGS_ROWS_MAX]; /* in the file */

	char *config_file; /* the one that was read; NULL: none */
};

/* What the command line asks for besides settings. */
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
	const char *config; /* -c; NULL: the standard place, which need not be there */
};

void settings_init(struct settings *s); /* defaults */
void settings_finish(struct settings *s);

/*
 * The command line over $GPT2D_SOCKET over the file over the defaults. 0, or -EINVAL (-ENOMEM)
 * after all that is wrong was written to errors, a line each; s is to be finished in any case. A
 * command line that asks for --help or --version is not read on, and no file is.
 */
int settings_load(
	struct settings *s, int argc, char **argv, struct settings_command *command, FILE *errors);

/*
 * After settings_load of the same words anew: what may change while gpt2d runs is taken over from
 * fresh. For each difference told is called: the setting, both values, whether it was taken.
 */
void settings_take(struct settings *s, const struct settings *fresh,
	void (*told)(
		const char *name, const char *before, const char *after, bool taken, void *arg),
	void *arg);

/* Whether a setting's value is that of the file, and in which line of config_file. */
bool settings_in_file(const struct settings *s, const char *name, int *line);

/* Borrowed. */
struct data_roots settings_data_roots(const struct settings *s);

/*
 * What holds where nothing was given, as values where it is one: the standard places, the socket's
 * mode, the device; paths that were given become absolute. 0, or -ENOMEM. For who prints them: a
 * daemon goes by what was given.
 */
int settings_resolve(struct settings *s);
/* Every setting as a line of the file; read again they are the same. */
void settings_print(const struct settings *s, FILE *out);
void settings_print_help(FILE *out);
void settings_print_example(FILE *out); /* etc/gpt2d.conf */
void settings_print_man(FILE *out);     /* the settings of gpt2d.conf(5) */

#endif
