/*
 * settings.h: gpt2d's settings. One row of the table in settings_table.c defines a setting: its
 * line in gpt2d.conf, its option, range, default, help and its text in gpt2d.conf(5).
 *
 * To add a setting, add a member below and a row, then run `ninja -C build example-conf`, which
 * writes etc/gpt2d.conf. A row marked reload takes effect on SIGHUP: code reads it from struct
 * settings at each use, in the loop's thread. The others never change while gpt2d runs.
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
enum { SETTINGS_FILES_MAX = SETTINGS_ROOTS_MAX };

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

/* What this gpt2d is among several: the leader has node ID 0. */
enum settings_part { SETTINGS_ALONE, SETTINGS_LEADER, SETTINGS_MEMBER };

#define SETTINGS_CLUSTER "gpt2d"

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
	struct settings_list checkpoint_roots;
	int64_t ranks, threads;
	int64_t peak_tflops; /* 0: the peak of a known card */
	int64_t start_timeout_s, alive_timeout_s, progress_timeout_s, cancel_timeout_s,
		stop_timeout_s, check_timeout_s, idle_release_s;
	int64_t clients_max, clients_per_uid, client_idle_s, client_buffer_bytes;
	int64_t retain_runs, retain_days; /* 0: all, for ever */
	char *metrics_file;               /* NULL: none */
	int64_t metrics_period_s;

	/* several nodes: see settings_part */
	char *listen, *join;      /* ADDR:PORT, HOST:PORT; NULL: not given */
	int64_t nodes, node_id;   /* node_id -1: not given */
	char *key_file, *cluster; /* cluster NULL: SETTINGS_CLUSTER */
	int64_t node_timeout_s;
	char *interface, *link_interface; /* NULL: any */

	/* of each row, in the table's order */
	enum settings_source source[SETTINGS_ROWS_MAX];
	int line[SETTINGS_ROWS_MAX]; /* in the file */
	int file[SETTINGS_ROWS_MAX]; /* of files */

	struct settings_list files; /* that were read; later files override earlier ones */
};

enum settings_type {
	SETTING_PATH,  /* char * */
	SETTING_TEXT,  /* char *: one word */
	SETTING_LIST,  /* struct settings_list: absolute paths */
	SETTING_GROUP, /* struct settings_group */
	SETTING_COUNT, /* int64_t, as all below */
	SETTING_SECONDS,
	SETTING_BYTES,
	SETTING_MODE, /* of a file: octal; -1: not given */
	SETTING_WORD, /* one of words; the value is its index */
};

enum { SETTINGS_WORDS_MAX = 6 };

struct settings_row {
	const char *name; /* in the file; the option has - for _ */
	enum settings_type type;
	size_t offset; /* in struct settings */
	int64_t min, max, standard;
	const char *words[SETTINGS_WORDS_MAX]; /* NULL: cannot be given (the default) */
	bool reload;                           /* integers only */
	const char *unset;                     /* the default in words, if no value expresses it */
	const char *help;                      /* a phrase in lower case, without a full stop */
	const char *manual;                    /* more for the manual, in mdoc; may be NULL */
};

extern const struct settings_row settings_rows[];
extern const size_t settings_n_rows;

void settings_init(struct settings *s); /* defaults */
void settings_finish(struct settings *s);

/* NULL: unknown setting. */
const struct settings_row *settings_find(const char *name);

/* One value: 0, or -EINVAL with error ("name: text"). A list grows by it. */
int settings_set_row(struct settings *s, const struct settings_row *row, const char *value,
	char *error, size_t error_bytes);
/* Back to the default. */
void settings_clear_row(struct settings *s, const struct settings_row *row);
/* Whether it has a value; otherwise the default applies. */
bool settings_given(const struct settings *s, const char *name);
/* The file and the line of the value; NULL: not from a file. */
const char *settings_file_of(const struct settings *s, const char *name, int *line);
/* "FILE, FILE": the files that were read; "" if none. */
void settings_format_files(const struct settings *s, char *out, size_t out_bytes);

/*
 * Copies the rows marked reload from fresh. Calls changed for each setting that differs, with both
 * values, and whether the new value applies.
 */
void settings_take(struct settings *s, const struct settings *fresh,
	void (*changed)(
		const char *name, const char *before, const char *after, bool taken, void *arg),
	void *arg);

enum settings_part settings_part(const struct settings *s);
int settings_node(const struct settings *s); /* this node's ID */
/* Ranks of all nodes; those of this node are s->ranks. */
int64_t settings_world(const struct settings *s);
/* Of the engines between nodes; NULL: there is one node. */
const char *settings_interface(const struct settings *s);
const char *settings_cluster(const struct settings *s);

/* Borrowed. */
struct data_roots settings_data_roots(const struct settings *s);
struct data_roots settings_checkpoint_roots(const struct settings *s);
/* The mode of the socket: socket_mode, or its default. */
mode_t settings_socket_mode(const struct settings *s);

/* Every setting as a line of the file. Reading the lines gives the same settings. */
void settings_print(const struct settings *s, FILE *out);
/* "1s to 86400s", "cpu, cuda or auto", "PATH": the allowed values. */
void settings_format_range(const struct settings_row *row, char *out, size_t out_bytes);
/* "s, min, h, d": the units of a time or a size; "" for other types. */
void settings_format_units(const struct settings_row *row, char *out, size_t out_bytes);
/* The default; "" if there is none. */
void settings_format_standard(const struct settings_row *row, char *out, size_t out_bytes);

static inline int64_t *settings_integer(const struct settings *s, const struct settings_row *row)
{
	return (int64_t *)(void *)((char *)(void *)(uintptr_t)s + row->offset);
}

#endif
