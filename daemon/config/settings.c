#include "daemon/config/settings.h"

#include <assert.h>
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "proto/host/memory.h"

enum { SETTING_TEXT_MAX = 64 };

struct unit {
	const char *name;
	int64_t size;
};

/* ascending, the base unit first */
static const struct unit second_units[] = {
	{"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}, {NULL, 0}};
static const struct unit byte_units[] = {{"B", 1}, {"KiB", INT64_C(1) << 10},
	{"MiB", INT64_C(1) << 20}, {"GiB", INT64_C(1) << 30}, {"TiB", INT64_C(1) << 40}, {NULL, 0}};

static const struct unit *units_of(enum settings_type type)
{
	if (type == SETTING_SECONDS)
		return second_units;
	return type == SETTING_BYTES ? byte_units : NULL;
}

static void *member(const struct settings *s, const struct settings_row *row)
{
	return settings_integer(s, row);
}

void settings_init(struct settings *s)
{
	*s = (struct settings){0};
	for (size_t i = 0; i < settings_n_rows; i++)
		if (settings_rows[i].type >= SETTING_COUNT)
			*settings_integer(s, &settings_rows[i]) = settings_rows[i].standard;
}

void settings_clear_row(struct settings *s, const struct settings_row *row)
{
	struct settings_group *group = member(s, row);
	struct settings_list *list = member(s, row);
	char **path = member(s, row);

	if (row->type >= SETTING_COUNT) {
		*settings_integer(s, row) = row->standard;
	} else if (row->type == SETTING_PATH || row->type == SETTING_TEXT) {
		free(*path);
		*path = NULL;
	} else if (row->type == SETTING_GROUP) {
		free(group->name);
		group->name = NULL;
	} else {
		while (list->n > 0)
			free(list->path[--list->n]);
	}
}

void settings_finish(struct settings *s)
{
	for (size_t i = 0; i < settings_n_rows; i++)
		settings_clear_row(s, &settings_rows[i]);
	while (s->files.n > 0)
		free(s->files.path[--s->files.n]);
}

const struct settings_row *settings_find(const char *name)
{
	for (size_t i = 0; i < settings_n_rows; i++)
		if (strcmp(settings_rows[i].name, name) == 0)
			return &settings_rows[i];
	return NULL;
}

enum settings_part settings_part(const struct settings *s)
{
	if (s->join != NULL && (s->listen == NULL || s->node_id > 0))
		return SETTINGS_MEMBER;
	return s->listen != NULL ? SETTINGS_LEADER : SETTINGS_ALONE;
}

int settings_node(const struct settings *s)
{
	return settings_part(s) == SETTINGS_MEMBER ? (int)s->node_id : 0;
}

int64_t settings_world(const struct settings *s)
{
	return settings_part(s) == SETTINGS_LEADER ? s->ranks * s->nodes : s->ranks;
}

const char *settings_interface(const struct settings *s)
{
	const enum settings_part part = settings_part(s);

	if (part == SETTINGS_ALONE || (part == SETTINGS_LEADER && s->nodes == 1))
		return NULL;
	return s->interface != NULL ? s->interface : s->link_interface;
}

const char *settings_cluster(const struct settings *s)
{
	return s->cluster != NULL ? s->cluster : SETTINGS_CLUSTER;
}

static struct data_roots roots_of(const struct settings_list *list)
{
	struct data_roots roots = {.n = list->n};

	for (size_t i = 0; i < roots.n; i++)
		roots.path[i] = list->path[i];
	return roots;
}

struct data_roots settings_data_roots(const struct settings *s)
{
	return roots_of(&s->data_roots);
}

struct data_roots settings_checkpoint_roots(const struct settings *s)
{
	return roots_of(&s->checkpoint_roots);
}

mode_t settings_socket_mode(const struct settings *s)
{
	if (s->socket_mode >= 0)
		return (mode_t)s->socket_mode;
	return s->socket_group.name != NULL ? 0660 : 0600;
}

bool settings_given(const struct settings *s, const char *name)
{
	const struct settings_row *row = name != NULL ? settings_find(name) : NULL;

	return row != NULL && s->source[row - settings_rows] != BY_DEFAULT;
}

const char *settings_file_of(const struct settings *s, const char *name, int *line)
{
	const struct settings_row *row = settings_find(name);
	const ptrdiff_t i = row != NULL ? row - settings_rows : -1;

	if (i < 0 || s->source[i] != BY_FILE)
		return NULL;
	*line = s->line[i];
	return s->files.path[s->file[i]];
}

static void append(char *out, size_t out_bytes, const char *text)
{
	size_t n = strlen(out);

	snprintf(out + n, out_bytes - n, "%s", text);
}

void settings_format_files(const struct settings *s, char *out, size_t out_bytes)
{
	out[0] = '\0';
	for (size_t i = 0; i < s->files.n; i++) {
		append(out, out_bytes, i > 0 ? ", " : "");
		append(out, out_bytes, s->files.path[i]);
	}
}

void settings_format_units(const struct settings_row *row, char *out, size_t out_bytes)
{
	out[0] = '\0';
	for (const struct unit *u = units_of(row->type); u != NULL && u->name != NULL; u++) {
		append(out, out_bytes, u->name);
		append(out, out_bytes, u[1].name != NULL ? ", " : "");
	}
}

/* ---- from text ---- */

static int expected(
	const struct settings_row *row, const char *value, char *error, size_t error_bytes)
{
	static const char *const what[] = {
		[SETTING_COUNT] = "an integer from ",
		[SETTING_SECONDS] = "a time from ",
		[SETTING_BYTES] = "a size from ",
		[SETTING_MODE] = "an octal mode from ",
		[SETTING_WORD] = "",
	};
	char range[128], units[64];

	settings_format_range(row, range, sizeof(range));
	snprintf(error, error_bytes, "%s: \"%.64s\", %s%s is expected", row->name, value,
		what[row->type], range);
	settings_format_units(row, units, sizeof(units));
	if (units[0] != '\0') {
		append(error, error_bytes, " (in ");
		append(error, error_bytes, units);
		append(error, error_bytes, ")");
	}
	return -EINVAL;
}

static int set_number(struct settings *s, const struct settings_row *row, const char *value,
	char *error, size_t error_bytes)
{
	const struct unit *unit = units_of(row->type);
	int64_t number;
	long long v;
	char *end = NULL;

	errno = 0;
	v = strtoll(value, &end, row->type == SETTING_MODE ? 8 : 10);
	if (errno != 0 || value[0] < '0' || value[0] > '9')
		return expected(row, value, error, error_bytes);
	number = v;
	if (*end != '\0') {
		while (*end == ' ')
			end++;
		while (unit != NULL && unit->name != NULL && strcmp(unit->name, end) != 0)
			unit++;
		if (unit == NULL || unit->name == NULL ||
			__builtin_mul_overflow(number, unit->size, &number))
			return expected(row, value, error, error_bytes);
	}
	if (number < row->min || number > row->max)
		return expected(row, value, error, error_bytes);
	*settings_integer(s, row) = number;
	return 0;
}

static int set_word(struct settings *s, const struct settings_row *row, const char *value,
	char *error, size_t error_bytes)
{
	for (int64_t i = row->min; i <= row->max; i++) {
		if (strcmp(row->words[i], value) == 0) {
			*settings_integer(s, row) = i;
			return 0;
		}
	}
	return expected(row, value, error, error_bytes);
}

static int set_group(struct settings *s, const struct settings_row *row, const char *value,
	char *error, size_t error_bytes)
{
	struct settings_group *g = member(s, row);
	const struct group *found = getgrnam(value);

	if (found == NULL) {
		snprintf(error, error_bytes, "%s: \"%.64s\": %s", row->name, value,
			value[0] == '\0' ? "the name of a group is expected"
					 : "no such group (groupadd makes one)");
		return -EINVAL;
	}
	free(g->name);
	*g = (struct settings_group){memory_text(value), found->gr_gid};
	return 0;
}

/* Messages are JSON, so a path must be UTF-8. */
static bool is_utf8(const char *value)
{
	json_t *text = json_string(value);
	const bool is = text != NULL;

	json_decref(text);
	return is;
}

/* A control character would break lines of the log. */
static bool has_control(const char *value)
{
	while (*value != '\0' && (unsigned char)*value >= 0x20 && *value != 0x7f)
		value++;
	return *value != '\0';
}

static int set_path(struct settings *s, const struct settings_row *row, const char *value,
	char *error, size_t error_bytes)
{
	struct settings_list *list = member(s, row);
	const bool listed = row->type == SETTING_LIST;
	char **path = member(s, row), limit[48];
	const char *wrong = NULL;

	snprintf(limit, sizeof(limit), "longer than %d bytes", PATH_MAX - 1);
	if (value[0] == '\0')
		wrong = "empty, a path is expected";
	else if (!is_utf8(value))
		wrong = "not UTF-8";
	else if (listed && value[0] != '/')
		wrong = "an absolute path is expected";
	else if (listed && list->n == SETTINGS_ROOTS_MAX)
		wrong = "too many paths";
	else if (strlen(value) >= PATH_MAX)
		wrong = limit;
	if (wrong == NULL && has_control(value)) {
		snprintf(error, error_bytes, "%s: the path has a control character", row->name);
		return -EINVAL;
	}
	if (wrong != NULL) {
		snprintf(error, error_bytes, "%s: \"%.200s%s\": %s", row->name, value,
			strlen(value) > 200 ? "..." : "", wrong);
		return -EINVAL;
	}
	if (listed) {
		list->path[list->n++] = memory_text(value);
		return 0;
	}
	free(*path);
	*path = memory_text(value);
	return 0;
}

/* A name or an address, for the identity of a TLS key and one-line files. */
static int set_text(struct settings *s, const struct settings_row *row, const char *value,
	char *error, size_t error_bytes)
{
	char **text = member(s, row);
	const size_t n = strlen(value);

	if (n == 0 || n > SETTING_TEXT_MAX ||
		strspn(value,
			"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
			"0123456789._-:[]%@") != n) {
		snprintf(error, error_bytes,
			"%s: \"%.64s\": 1 to %d letters, digits or ._-:[]%%@ are expected",
			row->name, value, SETTING_TEXT_MAX);
		return -EINVAL;
	}
	free(*text);
	*text = memory_text(value);
	return 0;
}

int settings_set_row(struct settings *s, const struct settings_row *row, const char *value,
	char *error, size_t error_bytes)
{
	switch (row->type) {
	case SETTING_PATH:
	case SETTING_LIST:
		return set_path(s, row, value, error, error_bytes);
	case SETTING_TEXT:
		return set_text(s, row, value, error, error_bytes);
	case SETTING_GROUP:
		return set_group(s, row, value, error, error_bytes);
	case SETTING_WORD:
		return set_word(s, row, value, error, error_bytes);
	default:
		return set_number(s, row, value, error, error_bytes);
	}
}

/* ---- to text ---- */

static void format_number(enum settings_type type, int64_t value, char *out, size_t out_bytes)
{
	const struct unit *unit = units_of(type);
	size_t i = 0;

	if (unit == NULL) {
		snprintf(out, out_bytes, type == SETTING_MODE ? "%04" PRIo64 : "%" PRId64, value);
		return;
	}
	/* seconds stay seconds: 90s and 5400s are easier to compare than 90s and 90min */
	while (type == SETTING_BYTES && value != 0 && unit[i + 1].name != NULL &&
		value % unit[i + 1].size == 0)
		i++;
	snprintf(out, out_bytes, "%" PRId64 "%s", value / unit[i].size, unit[i].name);
}

/* A word of the file, quoted if it needs quotes. */
static void write_word(FILE *out, const char *word)
{
	if (word[0] != '\0' && strpbrk(word, " \t\r\"#\\=") == NULL) {
		fputs(word, out);
		return;
	}
	fputc('"', out);
	for (; *word != '\0'; word++) {
		if (*word == '"' || *word == '\\')
			fputc('\\', out);
		fputc(*word, out);
	}
	fputc('"', out);
}

/* Is there a value that write_value writes? */
static bool has_value(const struct settings *s, const struct settings_row *row)
{
	const struct settings_group *group = member(s, row);
	const struct settings_list *list = member(s, row);
	char *const *path = member(s, row);

	if (row->type == SETTING_PATH || row->type == SETTING_TEXT)
		return *path != NULL;
	if (row->type == SETTING_GROUP)
		return group->name != NULL;
	if (row->type == SETTING_LIST)
		return list->n > 0;
	return *settings_integer(s, row) >= row->min;
}

/* The value in the syntax of the file; empty if there is none. */
static void write_value(const struct settings *s, const struct settings_row *row, FILE *out)
{
	const struct settings_group *group = member(s, row);
	const struct settings_list *list = member(s, row);
	char *const *path = member(s, row), number[32];

	if (!has_value(s, row))
		return;
	if (row->type == SETTING_PATH || row->type == SETTING_TEXT || row->type == SETTING_GROUP) {
		write_word(out, row->type == SETTING_GROUP ? group->name : *path);
	} else if (row->type == SETTING_WORD) {
		fputs(row->words[*settings_integer(s, row)], out);
	} else if (row->type != SETTING_LIST) {
		format_number(row->type, *settings_integer(s, row), number, sizeof(number));
		fputs(number, out);
	}
	for (size_t i = 0; row->type == SETTING_LIST && i < list->n; i++) {
		fputs(i > 0 ? " " : "", out);
		write_word(out, list->path[i]);
	}
}

void settings_format_range(const struct settings_row *row, char *out, size_t out_bytes)
{
	static const char *const names[] = {[SETTING_PATH] = "PATH",
		[SETTING_TEXT] = "TEXT",
		[SETTING_LIST] = "DIR ...",
		[SETTING_GROUP] = "GROUP"};
	char least[32], most[32];

	out[0] = '\0';
	if (row->type < SETTING_COUNT) {
		append(out, out_bytes, names[row->type]);
		return;
	}
	if (row->type != SETTING_WORD) {
		format_number(row->type, row->min, least, sizeof(least));
		format_number(row->type, row->max, most, sizeof(most));
		snprintf(out, out_bytes, "%s to %s", least, most);
		return;
	}
	for (int64_t i = row->min; i <= row->max; i++) {
		append(out, out_bytes, row->words[i]);
		append(out, out_bytes, i + 1 < row->max ? ", " : i < row->max ? " or " : "");
	}
}

void settings_format_standard(const struct settings_row *row, char *out, size_t out_bytes)
{
	out[0] = '\0';
	if (row->unset != NULL)
		append(out, out_bytes, row->unset);
	else if (row->type == SETTING_WORD)
		append(out, out_bytes, row->words[row->standard]);
	else if (row->type >= SETTING_COUNT)
		format_number(row->type, row->standard, out, out_bytes);
}

void settings_print(const struct settings *s, FILE *out)
{
	char standard[256];

	for (size_t i = 0; i < settings_n_rows; i++) {
		const struct settings_row *row = &settings_rows[i];

		if (has_value(s, row)) {
			fprintf(out, "%s = ", row->name);
			write_value(s, row, out);
			fputc('\n', out);
		} else {
			settings_format_standard(row, standard, sizeof(standard));
			fprintf(out, "# %s: %s\n", row->name, standard);
		}
	}
}

/* ---- reload ---- */

static char *text_of(const struct settings *s, const struct settings_row *row)
{
	char *text;
	size_t n;
	FILE *out = memory_stream(&text, &n);

	write_value(s, row, out);
	memory_stream_end(out);
	return text;
}

void settings_take(struct settings *s, const struct settings *fresh,
	void (*changed)(
		const char *name, const char *before, const char *after, bool taken, void *arg),
	void *arg)
{
	for (size_t i = 0; i < settings_n_rows; i++) {
		const struct settings_row *row = &settings_rows[i];
		char *before = text_of(s, row), *after = text_of(fresh, row);

		assert(!row->reload || row->type >= SETTING_COUNT);
		if (strcmp(before, after) != 0) {
			if (row->reload)
				*settings_integer(s, row) = *settings_integer(fresh, row);
			changed(row->name, before, after, row->reload, arg);
		}
		free(before);
		free(after);
	}
}
