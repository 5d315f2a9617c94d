/*
 * settings_table.h: what a row of the table of settings is. For daemon/settings*.c only.
 */
#ifndef GPT2D_DAEMON_CONFIG_SETTINGS_TABLE_H
#define GPT2D_DAEMON_CONFIG_SETTINGS_TABLE_H

#include "daemon/config/settings.h"

enum settings_type {
	SETTING_PATH,  /* char * */
	SETTING_LIST,  /* struct settings_list: absolute paths */
	SETTING_GROUP, /* struct settings_group */
	SETTING_COUNT, /* int64_t, and so are all below */
	SETTING_SECONDS,
	SETTING_BYTES,
	SETTING_MODE, /* of a file: octal; -1: not given */
	SETTING_WORD, /* one of words, the value is its place among them */
};

enum { SETTINGS_WORDS_MAX = 6 };

struct settings_row {
	const char *name; /* in the file; an option has - for _ */
	enum settings_type type;
	size_t offset; /* in struct settings */
	int64_t min, max, standard;
	const char *words[SETTINGS_WORDS_MAX]; /* NULL: not to be given (it is the default) */
	bool reload;                           /* integers only */
	const char *unset;  /* what holds when it is not given, if no value says it */
	const char *help;   /* a sentence in lower case, without its end */
	const char *manual; /* more for the page, in mdoc; may be NULL */
};

extern const struct settings_row settings_rows[];
extern const size_t settings_n_rows;

/* NULL when there is none. */
const struct settings_row *settings_find(const char *name);
/* "ranks: no such setting, the nearest is ..." for name, which is dashed as an option is. */
void settings_unknown(const char *name, bool option, char *error, size_t error_bytes);

/* One value: 0, or -EINVAL, -ENOMEM with error ("name: text"). A list grows by it. */
int settings_set_row(struct settings *s, const struct settings_row *row, const char *value,
	char *error, size_t error_bytes);
/* Not given. */
void settings_clear_row(struct settings *s, const struct settings_row *row);
bool settings_has(const struct settings *s, const struct settings_row *row); /* a value */
/* The value as it stands in the file; nothing when it has none. */
void settings_write(const struct settings *s, const struct settings_row *row, FILE *out);
/* "1s to 86400s", "cpu, cuda or auto", "PATH": what may be given. */
void settings_format_range(const struct settings_row *row, char *out, size_t out_bytes);
/* "s, min, h, d": of a time or a size; "" of others. */
void settings_format_units(const struct settings_row *row, char *out, size_t out_bytes);
/* The default; "" when there is none. */
void settings_format_standard(const struct settings_row *row, char *out, size_t out_bytes);

/* Read path into s; the same as settings_load says. */
int settings_read_file(struct settings *s, const char *path, FILE *errors);

static inline int64_t *settings_integer(const struct settings *s, const struct settings_row *row)
{
	return (int64_t *)(void *)((char *)(void *)(uintptr_t)s + row->offset);
}

#endif
