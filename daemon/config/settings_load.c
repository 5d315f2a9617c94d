#include "daemon/config/settings_load.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "daemon/config/log.h"
#include "daemon/config/paths.h"
#include "proto/host/memory.h"
#include "proto/options.h"
#include "proto/suggest.h"

enum {
	NAME_BYTES = 32,
	FILE_BYTES_MAX = 1 << 20,
	ERRORS_MAX = 100,
	NULL_MAJOR = 1, /* of /dev/null: an empty file */
	NULL_MINOR = 3,
};

/* ---- the file: lines of NAME = VALUE, # begins a comment ---- */

struct reading {
	struct settings *s;
	const char *path;
	FILE *errors;
	int line, n_errors;
};

static void wrong(struct reading *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void wrong(struct reading *r, const char *format, ...)
{
	va_list args;

	if (++r->n_errors > ERRORS_MAX)
		return;
	if (r->line > 0)
		fprintf(r->errors, "%s:%d: ", r->path, r->line);
	else
		fprintf(r->errors, "%s: ", r->path);
	va_start(args, format);
	vfprintf(r->errors, format, args);
	va_end(args);
	fputc('\n', r->errors);
}

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/*
 * The next word at *at, in place, without its quotes. NULL at the end of the line. Sets *error if a
 * quote is wrong.
 */
static char *next_word(char **at, const char **error)
{
	char *from = *at, *to, *word;
	bool quoted;

	while (blank(*from))
		from++;
	if (*from == '\0' || *from == '#') {
		*at = from;
		return NULL;
	}
	quoted = *from == '"';
	word = to = from += quoted;
	while (*from != '\0' && (quoted ? *from != '"' : !blank(*from) && *from != '#')) {
		if (quoted && *from == '\\' && (from[1] == '"' || from[1] == '\\'))
			from++;
		*to++ = *from++;
	}
	if (quoted && *from != '"')
		*error = "a quote is not closed";
	else if (quoted && from[1] != '\0' && from[1] != '#' && !blank(from[1]))
		*error = "a blank is expected after a quote";
	*at = *from == '#' ? strchr(from, '\0') : *from != '\0' ? from + 1 : from;
	*to = '\0';
	return word;
}

static bool is_log(const struct settings_row *row)
{
	return row->offset == offsetof(struct settings, log_file);
}

static bool is_stream(const struct settings_row *row, const char *value)
{
	return is_log(row) && (strcmp(value, "stderr") == 0 || strcmp(value, "journal") == 0);
}

/* A relative path in the file would depend on the folder from which gpt2d was started. */
static bool is_relative(const struct settings_row *row, const char *word)
{
	return row->type == SETTING_PATH && word[0] != '/' && word[0] != '\0' &&
		!is_stream(row, word);
}

static void refuse_second(struct reading *r, const struct settings_row *row, const char *word)
{
	char units[64];

	settings_format_units(row, units, sizeof(units));
	wrong(r, "%s: one value is expected, \"%.64s\" is a second one%s%s%s", row->name, word,
		units[0] != '\0' ? "; a unit (" : "", units,
		units[0] != '\0' ? ") follows its number without a blank" : "");
}

static void read_value(struct reading *r, const struct settings_row *row, char *at)
{
	char *words[SETTINGS_ROOTS_MAX + 1], error[512];
	const char *broken = NULL;
	size_t n = 0;

	while (n <= SETTINGS_ROOTS_MAX && broken == NULL && (words[n] = next_word(&at, &broken)))
		n++;
	if (broken != NULL) {
		wrong(r, "%s: %s", row->name, broken);
	} else if (n == 0) {
		wrong(r, "%s: a value is missing", row->name);
	} else if (n > 1 && row->type != SETTING_LIST) {
		refuse_second(r, row, words[1]);
	} else if (is_relative(row, words[0])) {
		wrong(r, "%s: \"%.64s\": an absolute path%s is expected%s", row->name, words[0],
			is_log(row) ? ", stderr or journal" : "",
			words[0][0] == '~' ? "; gpt2d does not expand ~" : "");
	} else {
		for (size_t i = 0; i < n; i++) {
			if (settings_set_row(r->s, row, words[i], error, sizeof(error)) == 0)
				continue;
			wrong(r, "%s", error);
			return;
		}
	}
}

static void refuse_name(struct reading *r, const char *name)
{
	const char *names[SETTINGS_ROWS_MAX], *nearest;

	for (size_t i = 0; i < settings_n_rows; i++)
		names[i] = settings_rows[i].name;
	nearest = suggest_nearest(name, names, settings_n_rows);
	wrong(r, "%.64s: no such setting%s%s%s", name,
		nearest ? ", the nearest is \"" : "; gpt2d --help lists them",
		nearest ? nearest : "", nearest ? "\"" : "");
}

static void read_line(struct reading *r, char *line)
{
	const struct settings_row *row;
	char *name = line, *end, *equals;
	size_t i;

	while (blank(*name))
		name++;
	if (*name == '\0' || *name == '#')
		return;
	end = name + strcspn(name, "=#\n");
	equals = *end == '=' ? end : NULL;
	while (end > name && blank(end[-1]))
		end--;
	*end = '\0';
	if (equals == NULL || end == name) {
		wrong(r, "\"%.64s\": NAME = VALUE is expected", equals == NULL ? name : "=");
		return;
	}
	row = settings_find(name);
	if (row == NULL) {
		refuse_name(r, name);
		return;
	}
	i = (size_t)(row - settings_rows);
	if (r->s->line[i] != 0 && (size_t)r->s->file[i] == r->s->files.n) {
		wrong(r, "%s: given twice, first in line %d", row->name, r->s->line[i]);
		return;
	}
	settings_clear_row(r->s, row); /* an earlier file may have set it */
	r->s->line[i] = r->line;
	r->s->file[i] = (int)r->s->files.n;
	r->s->source[i] = BY_FILE;
	read_value(r, row, equals + 1);
}

/* The file controls gpt2d: only its user and root may own or change it. */
static bool is_trusted(struct reading *r, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0) {
		wrong(r, "%s", strerror(errno));
		return false;
	}
	if (S_ISCHR(st.st_mode) && st.st_rdev == makedev(NULL_MAJOR, NULL_MINOR))
		return true;
	if (!S_ISREG(st.st_mode))
		wrong(r, "is not a regular file");
	else if (st.st_uid != 0 && st.st_uid != geteuid())
		wrong(r, "belongs to uid %u (expected root or uid %u)", (unsigned)st.st_uid,
			(unsigned)geteuid());
	else if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
		wrong(r, "others can write to it (mode %04o): chmod go-w %s",
			(unsigned)st.st_mode & 07777, r->path);
	else if (st.st_size > FILE_BYTES_MAX)
		wrong(r, "%lld bytes, at most %d are read", (long long)st.st_size, FILE_BYTES_MAX);
	return r->n_errors == 0;
}

static void read_lines(struct reading *r, FILE *file)
{
	char *line = NULL;
	size_t bytes = 0;
	ssize_t n;

	for (r->line = 1; (n = getline(&line, &bytes, file)) >= 0; r->line++) {
		if (strlen(line) != (size_t)n)
			wrong(r, "a NUL byte");
		else
			read_line(r, line);
	}
	r->line = 0;
	if (ferror(file))
		wrong(r, "%s", strerror(errno));
	free(line);
}

/* 0, -ENOENT, or -EINVAL after the errors. A readable file is added to s->files. */
static int read_file(struct settings *s, const char *path, FILE *errors)
{
	struct reading r = {.s = s, .path = path, .errors = errors};
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	FILE *file;

	if (fd < 0 && errno == ENOENT)
		return -ENOENT;
	if (fd < 0) {
		wrong(&r, "%s", strerror(errno));
		return -EINVAL;
	}
	file = is_trusted(&r, fd) ? fdopen(fd, "r") : NULL;
	if (file == NULL) {
		close(fd);
		return -EINVAL;
	}
	read_lines(&r, file);
	fclose(file);
	s->files.path[s->files.n++] = memory_text(path);
	if (r.n_errors > ERRORS_MAX)
		fprintf(errors, "%s: %d more errors\n", path, r.n_errors - ERRORS_MAX);
	return r.n_errors > 0 ? -EINVAL : 0;
}

/* The files of packages and of the administrator beside the standard file, by name. */
static int read_folder(struct settings *s, const char *standard, FILE *errors)
{
	char pattern[PATH_MAX + 16];
	glob_t found = {0};
	int rc = 0;

	snprintf(pattern, sizeof(pattern), "%s.d/*.conf", standard);
	if (glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc >= SETTINGS_FILES_MAX) {
		fprintf(errors, "%s: %zu files (expected at most %d)\n", pattern, found.gl_pathc,
			SETTINGS_FILES_MAX - 1);
		rc = -EINVAL;
	}
	for (size_t i = 0; rc == 0 && i < found.gl_pathc; i++)
		rc = read_file(s, found.gl_pathv[i], errors);
	globfree(&found);
	return rc < 0 ? -EINVAL : 0;
}

static int take_file(struct settings *s, const char *asked, FILE *errors)
{
	char standard[PATH_MAX];
	int rc;

	if (asked == NULL && !paths_config(standard, sizeof(standard)))
		return 0; /* no home: no file */
	if (asked == NULL) {
		rc = read_file(s, standard, errors);
		if (rc == 0 || rc == -ENOENT)
			rc = read_folder(s, standard, errors);
		return rc;
	}
	if (strlen(asked) >= PATH_MAX) {
		fprintf(errors, "--config: %.200s...: longer than %d bytes\n", asked, PATH_MAX - 1);
		return -EINVAL;
	}
	rc = read_file(s, asked, errors);
	if (rc == -ENOENT)
		fprintf(errors, "%s: %s\n", asked, strerror(ENOENT));
	return rc < 0 ? -EINVAL : 0;
}

/* ---- the command line ---- */

static const struct option_row flags[] = {
	{"config", 'c', OPTION_STRING, "FILE", 0, 0,
		"read FILE instead of /etc/gpt2d/gpt2d.conf (root, services) or gpt2d/gpt2d.conf "
		"below $XDG_CONFIG_HOME or ~/.config, and of gpt2d.conf.d/*.conf beside it",
		.many = true},
	{"test", 'n', OPTION_FLAG, NULL, 0, 0,
		"only check the settings; with -v print them as a file"},
	{"verbose", 'v', OPTION_FLAG, NULL, 0, 0, "log more: log_level is debug"},
	{"check", 0, OPTION_FLAG, NULL, 0, 0,
		"check this machine and this installation: a line for each check, with advice"},
	{"json", 0, OPTION_FLAG, NULL, 0, 0, "with --check: as JSON"},
	{"version", 0, OPTION_FLAG, NULL, 0, 0, "print the version"},
	{"help", 'h', OPTION_FLAG, NULL, 0, 0, "print this help"},
	{0},
};

/* The options of the settings. */
struct setting_options {
	struct option_row rows[SETTINGS_ROWS_MAX + 1];
	char names[SETTINGS_ROWS_MAX][NAME_BYTES];
};

static void make_options(struct setting_options *o)
{
	*o = (struct setting_options){0};
	for (size_t i = 0; i < settings_n_rows; i++) {
		snprintf(o->names[i], NAME_BYTES, "%s", settings_rows[i].name);
		for (char *c = o->names[i]; *c != '\0'; c++)
			if (*c == '_')
				*c = '-';
		o->rows[i] = (struct option_row){.name = o->names[i],
			.kind = OPTION_STRING,
			.arg = "a value",
			.help = settings_rows[i].help,
			.many = true};
	}
}

static int take_command(const struct options *o, struct settings_command *c, FILE *errors)
{
	const bool test = options_has(o, "test"), check = options_has(o, "check");
	const char *error = NULL;

	*c = (struct settings_command){
		.action = options_has(o, "help")    ? SETTINGS_HELP
			: options_has(o, "version") ? SETTINGS_VERSION
			: check                     ? SETTINGS_CHECK
			: test                      ? SETTINGS_TEST
						    : SETTINGS_RUN,
		.verbose = options_has(o, "verbose"),
		.json = options_has(o, "json"),
		.config = options_string(o, "config", NULL),
	};
	if (test && check)
		error = "--check: cannot be combined with --test";
	else if (c->json && !check)
		error = "--json: needs --check";
	else if (o->n_words > 0)
		fprintf(errors, "%.64s: an option (--name) is expected\n", o->words[0]);
	if (error != NULL)
		fprintf(errors, "%s\n", error);
	if (error == NULL && o->n_words == 0)
		return 0;
	c->action = SETTINGS_TEST;
	return -EINVAL;
}

/* A path on the command line becomes absolute here; in the file it must be absolute. */
static int set_option(struct settings *s, const struct settings_row *row, const char *value,
	char *error, size_t error_bytes)
{
	char full[PATH_MAX];

	if (row->type == SETTING_LIST && value[0] != '/') {
		if (paths_absolute(value, row->name, full, sizeof(full), error, error_bytes) < 0)
			return -EINVAL;
		value = full;
	}
	return settings_set_row(s, row, value, error, error_bytes);
}

static int take_options(struct settings *s, const struct options *o,
	const struct setting_options *names, FILE *errors)
{
	char error[512];
	int rc = 0;

	for (size_t k = 0; k < o->n_values; k++) {
		const struct option_value *v = &o->values[k];
		const ptrdiff_t i = v->row - names->rows;
		const struct settings_row *row = &settings_rows[i];

		if (i < 0 || (size_t)i >= settings_n_rows)
			continue; /* of the flags */
		if (row->type == SETTING_LIST && s->source[i] != BY_OPTION)
			settings_clear_row(s, row); /* the options override the file */
		s->source[i] = BY_OPTION;
		if (set_option(s, row, v->text, error, sizeof(error)) < 0) {
			fprintf(errors, "%s\n", error);
			rc = -EINVAL;
		}
	}
	return rc;
}

static int take_environment(struct settings *s, FILE *errors)
{
	const struct settings_row *row = settings_find("socket");
	const char *socket = getenv("GPT2D_SOCKET");
	char error[512];
	int rc;

	if (socket == NULL || socket[0] == '\0')
		return 0;
	s->source[row - settings_rows] = BY_ENVIRONMENT;
	rc = settings_set_row(s, row, socket, error, sizeof(error));
	if (rc < 0)
		fprintf(errors, "GPT2D_SOCKET: %s\n", error);
	return rc;
}

/* Defaults from a Slurm job, if neither the file nor an option sets them. */
static int take_slurm(struct settings *s, FILE *errors)
{
	static const struct {
		const char *variable, *setting;
	} known[] = {{"SLURM_NODEID", "node_id"}, {"SLURM_JOB_NUM_NODES", "nodes"}};
	char error[512];

	if (s->listen == NULL && s->join == NULL)
		return 0;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		const struct settings_row *row = settings_find(known[i].setting);
		const char *value = getenv(known[i].variable);

		if (value == NULL || value[0] == '\0' || settings_given(s, row->name))
			continue;
		if (settings_set_row(s, row, value, error, sizeof(error)) < 0) {
			fprintf(errors, "%s: %s\n", known[i].variable, error);
			return -EINVAL;
		}
		s->source[row - settings_rows] = BY_ENVIRONMENT;
	}
	return 0;
}

static void print_place(const struct settings *s, const char *name, FILE *errors)
{
	const char *file;
	int line;

	file = settings_file_of(s, name, &line);
	if (file != NULL)
		fprintf(errors, "%s:%d: ", file, line);
}

/* The rules of listen and join. NULL: they are met. */
static const char *wrong_nodes(const struct settings *s, const char **name, const char **value)
{
	const enum settings_part part = settings_part(s);
	const char *address = part == SETTINGS_MEMBER ? s->join : s->listen;
	const char *port = address != NULL ? strrchr(address, ':') : NULL;
	static const char listen[] = "ADDR:PORT is expected, with a port from 0 to 65535";
	static const char join[] = "HOST:PORT is expected, with a port from 1 to 65535";

	*value = "";
	*name = part == SETTINGS_MEMBER ? "join" : "listen";
	if (part == SETTINGS_ALONE) {
		*name = "nodes";
		return s->nodes > 1 ? "several nodes need listen on the leader, join on members"
				    : NULL;
	}
	*value = address;
	if (port == NULL || port[1] == '\0' || strspn(port + 1, "0123456789") != strlen(port + 1) ||
		strlen(port + 1) > 5 || atoi(port + 1) > 65535)
		return part == SETTINGS_MEMBER ? join : listen;
	if (part == SETTINGS_MEMBER && (port == address || atoi(port + 1) == 0))
		return join;
	if (part == SETTINGS_LEADER && port == address && s->link_interface == NULL)
		return "an address before the colon is expected, or link_interface";
	*value = "";
	*name = "cluster";
	if (strlen(settings_cluster(s)) > 64)
		return "at most 64 bytes are expected";
	*name = "key_file";
	if (s->key_file == NULL)
		return "needed with listen and join";
	*name = "interface";
	if (settings_interface(s) == NULL && (part == SETTINGS_MEMBER || s->nodes > 1))
		return "needed with several nodes: the network interface that connects them";
	*name = "node_id";
	if (part == SETTINGS_MEMBER && s->node_id < 1)
		return "a member's ID is 1 or above, the leader's is 0";
	if (part == SETTINGS_LEADER && s->node_id > 0)
		return "the leader's ID is 0; other nodes need join";
	return NULL;
}

/* Rules between settings. */
static int check_together(const struct settings *s, FILE *errors)
{
	const char *nodes, *name, *value;
	int rc = 0;

	if (s->device == DEVICE_AUTO && paths_are_system()) {
		print_place(s, "device", errors);
		fprintf(errors,
			"device: auto is for a user's own daemon; a service needs cpu or cuda, "
			"so that its device never changes silently\n");
		rc = -EINVAL;
	}
	if (s->socket_group.name != NULL && s->socket_mode >= 0 && (s->socket_mode & 0060) == 0) {
		print_place(s, "socket_mode", errors);
		fprintf(errors,
			"socket_mode: %04o denies access to socket_group \"%s\" (expected 0660)\n",
			(unsigned)s->socket_mode, s->socket_group.name);
		rc = -EINVAL;
	}
	nodes = wrong_nodes(s, &name, &value);
	if (nodes != NULL) {
		print_place(s, name, errors);
		fprintf(errors, "%s: %s%s%s\n", name, value, value[0] ? ": " : "", nodes);
		rc = -EINVAL;
	}
	return rc;
}

int settings_load(
	struct settings *s, int argc, char **argv, struct settings_command *command, FILE *errors)
{
	struct setting_options names;
	struct options o = {.tables = {flags, names.rows}, .help = "gpt2d --help"};
	char error[512];
	int rc;

	make_options(&names);
	settings_init(s);
	*command = (struct settings_command){0};
	rc = options_read(&o, argc, argv, 1, false, error, sizeof(error));
	if (rc < 0)
		fprintf(errors, "%s\n", error);
	else
		rc = take_command(&o, command, errors);
	if (rc == 0 && command->action != SETTINGS_HELP && command->action != SETTINGS_VERSION) {
		rc |= take_file(s, command->config, errors);
		rc |= take_environment(s, errors);
		rc |= take_options(s, &o, &names, errors);
		rc |= take_slurm(s, errors);
		if (rc == 0)
			rc = check_together(s, errors);
		if (command->verbose && command->action == SETTINGS_RUN)
			s->log_level = LOG_DEBUG;
	}
	options_finish(&o);
	return rc < 0 ? -EINVAL : 0;
}

void settings_print_help(FILE *out)
{
	struct setting_options names;
	char text[256];

	make_options(&names);
	fputs("usage: gpt2d [-c FILE] [-nv] [--NAME VALUE]...\n"
	      "       gpt2d --check [--json]\n\n"
	      "The daemon that keeps engines warm and the queue of runs safe.\n\n",
		out);
	for (const struct option_row *row = flags; row->name != NULL; row++)
		fprintf(out, "  %s\n        %s\n", options_format(row, text, sizeof(text)),
			row->help);
	fputs("\nSettings, as options here, or as lines NAME = VALUE of gpt2d.conf with _ for - "
	      "in their names:\n\n",
		out);
	for (size_t i = 0; i < settings_n_rows; i++) {
		const struct settings_row *row = &settings_rows[i];

		settings_format_range(row, text, sizeof(text));
		fprintf(out, "  --%s  %s\n        %s", names.names[i], text, row->help);
		settings_format_standard(row, text, sizeof(text));
		fprintf(out, "%s%s\n", text[0] ? "\n        default: " : "", text);
	}
}

/* ---- defaults as values ---- */

static void replace(char **path, const char *text)
{
	free(*path);
	*path = memory_text(text);
}

void settings_resolve(struct settings *s)
{
	char path[PATH_MAX], error[PATH_MAX + 256];

	if (paths_socket(s->socket, path, sizeof(path), error, sizeof(error)) == 0)
		replace(&s->socket, path);
	if (paths_state_dir(s->state_dir, path, sizeof(path), error, sizeof(error)) == 0)
		replace(&s->state_dir, path);
	if (s->log_file == NULL)
		replace(&s->log_file, "stderr");
	for (size_t i = 0; i < settings_n_rows; i++) {
		const struct settings_row *row = &settings_rows[i];
		char **value = (char **)(void *)settings_integer(s, row);

		if (row->type == SETTING_PATH && *value != NULL && !is_stream(row, *value) &&
			paths_absolute(
				*value, row->name, path, sizeof(path), error, sizeof(error)) == 0)
			replace(value, path);
	}
	s->socket_mode = (int64_t)settings_socket_mode(s);
	/* a given engine determines the device itself */
	if (s->device == DEVICE_UNSET && s->engine == NULL)
		s->device = paths_are_system() ? DEVICE_CPU : DEVICE_AUTO;
}
