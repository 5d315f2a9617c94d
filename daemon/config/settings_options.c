/* The command line, and what comes over what. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/config/log.h"
#include "daemon/config/paths.h"
#include "daemon/config/settings_table.h"

enum { NAME_BYTES = 64 };

struct flag {
	char letter; /* 0: none */
	const char *name, *argument, *help;
};

enum { FLAG_CONFIG, FLAG_TEST, FLAG_VERBOSE, FLAG_CHECK, FLAG_JSON, FLAG_VERSION, FLAG_HELP };

static const struct flag flags[] = {
	[FLAG_CONFIG] = {'c', "config", "FILE",
		"read FILE instead of /etc/gpt2d/gpt2d.conf (root, services) or "
		"gpt2d/gpt2d.conf below $XDG_CONFIG_HOME or ~/.config"},
	[FLAG_TEST] = {'n', "test", NULL, "only check the settings; with -v print them as a file"},
	[FLAG_VERBOSE] = {'v', "verbose", NULL, "log more: log_level is debug"},
	[FLAG_CHECK] = {0, "check", NULL,
		"look at this machine and this installation: a line for each thing, and what to "
		"do; for a bug report"},
	[FLAG_JSON] = {0, "json", NULL, "with --check: as JSON"},
	[FLAG_VERSION] = {0, "version", NULL, "print what this build is"},
	[FLAG_HELP] = {'h', "help", NULL, "print this"},
};

enum { FLAGS = sizeof(flags) / sizeof(flags[0]) };

struct words {
	int argc, at; /* at: the next one */
	char **argv;
	struct settings *s;
	struct settings_command *command;
	FILE *errors;
	bool wrong; /* values were, which is told; the words after them are read on */
	char error[512];
};

/* The value of an option: behind "=" or the next word. NULL with error. */
static const char *value_of(struct words *w, const char *option, const char *equals)
{
	const char *value = NULL;

	if (equals != NULL)
		value = equals + 1;
	else if (w->at < w->argc)
		value = w->argv[w->at++];
	if (value != NULL && value[0] != '\0')
		return value;
	snprintf(w->error, sizeof(w->error), "%.64s: a value is expected", option);
	return NULL;
}

static int take_flag(struct words *w, size_t flag, const char *option, const char *equals)
{
	struct settings_command *c = w->command;

	if (flag == FLAG_CONFIG) {
		c->config = value_of(w, option, equals);
		if (c->config == NULL || strlen(c->config) < PATH_MAX)
			return c->config != NULL ? 0 : -EINVAL;
		snprintf(w->error, sizeof(w->error),
			"%.64s: \"%.200s...\": longer than %d bytes", option, c->config,
			PATH_MAX - 1);
		return -EINVAL;
	}
	if (equals != NULL) {
		snprintf(w->error, sizeof(w->error), "--%s: takes no value", flags[flag].name);
		return -EINVAL;
	}
	if ((flag == FLAG_TEST && c->action == SETTINGS_CHECK) ||
		(flag == FLAG_CHECK && c->action == SETTINGS_TEST)) {
		snprintf(w->error, sizeof(w->error), "--check: does not go with -n");
		c->action = SETTINGS_TEST; /* neither is done */
		return -EINVAL;
	}
	if (flag == FLAG_TEST)
		c->action = SETTINGS_TEST;
	else if (flag == FLAG_VERBOSE)
		c->verbose = true;
	else if (flag == FLAG_CHECK)
		c->action = SETTINGS_CHECK;
	else if (flag == FLAG_JSON)
		c->json = true;
	else
		c->action = flag == FLAG_HELP ? SETTINGS_HELP : SETTINGS_VERSION;
	return 0;
}

/* Help or the version is all that is printed: what stands behind it would be ignored. */
static int check_end(struct words *w, const char *option, const char *behind)
{
	if (w->command->action != SETTINGS_HELP && w->command->action != SETTINGS_VERSION)
		return 0;
	if (behind == NULL || behind[0] == '\0')
		return 0;
	snprintf(w->error, sizeof(w->error),
		"%.64s: nothing is expected behind it, found \"%.64s\"", option, behind);
	return -EINVAL;
}

/* -n, -nv, -c FILE, -cFILE */
static int take_letters(struct words *w, const char *word)
{
	for (const char *letter = word + 1; *letter != '\0'; letter++) {
		char option[3] = {'-', *letter, '\0'};
		size_t i = 0;

		while (i < FLAGS && flags[i].letter != *letter)
			i++;
		if (i == FLAGS) {
			snprintf(w->error, sizeof(w->error),
				"%s: no such option; gpt2d --help lists them", option);
			return -EINVAL;
		}
		if (flags[i].argument != NULL)
			return take_flag(w, i, option, letter[1] != '\0' ? letter : NULL);
		if (take_flag(w, i, option, NULL) < 0 || check_end(w, option, letter + 1) < 0)
			return -EINVAL;
	}
	return 0;
}

/* A path of a list is made absolute here: in the file it has to be so. */
static int set_option(struct words *w, const struct settings_row *row, const char *value)
{
	char full[PATH_MAX];

	if (row->type == SETTING_LIST && value[0] != '/') {
		if (paths_absolute(value, row->name, full, sizeof(full), w->error,
			    sizeof(w->error)) < 0)
			return -EINVAL;
		value = full;
	}
	return settings_set_row(w->s, row, value, w->error, sizeof(w->error));
}

/* --NAME VALUE and --NAME=VALUE; name is cut off. */
static int take_long(struct words *w, const char *word)
{
	const char *equals = strchr(word, '='), *value;
	size_t n = equals ? (size_t)(equals - word) : strlen(word);
	const struct settings_row *row = NULL;
	char name[NAME_BYTES] = "", option[NAME_BYTES];
	size_t i;

	snprintf(option, sizeof(option), "%.*s", (int)n, word);
	for (i = 2; i < n && i - 2 < sizeof(name) - 1; i++)
		name[i - 2] = word[i];
	for (i = 0; i < FLAGS; i++)
		if (strcmp(flags[i].name, name) == 0)
			return take_flag(w, i, option, equals);
	if (strchr(name, '_') == NULL) {
		for (char *c = name; *c != '\0'; c++)
			if (*c == '-')
				*c = '_';
		row = settings_find(name);
	}
	if (row == NULL) {
		settings_unknown(option + 2, true, w->error, sizeof(w->error));
		return -EINVAL;
	}
	value = value_of(w, option, equals);
	if (value == NULL)
		return -EINVAL;
	i = (size_t)(row - settings_rows);
	if (row->type == SETTING_LIST && w->s->source[i] != BY_OPTION)
		settings_clear_row(w->s, row); /* the options replace those of the file */
	w->s->source[i] = BY_OPTION;
	if (set_option(w, row, value) < 0) {
		fprintf(w->errors, "%s\n", w->error);
		w->wrong = true;
	}
	return 0;
}

static int take_words(
	struct settings *s, int argc, char **argv, struct settings_command *command, FILE *errors)
{
	struct words w = {.argc = argc,
		.at = 1,
		.argv = argv,
		.s = s,
		.command = command,
		.errors = errors};
	int rc = 0;

	*command = (struct settings_command){0};
	while (rc == 0 && w.at < argc) {
		const char *word = argv[w.at++];

		if (strncmp(word, "--", 2) == 0 && word[2] != '\0') {
			rc = take_long(&w, word);
		} else if (word[0] == '-' && word[1] != '\0' && word[1] != '-') {
			rc = take_letters(&w, word);
		} else {
			snprintf(w.error, sizeof(w.error), "%.64s: an option (--name) is expected",
				word);
			rc = -EINVAL;
		}
		if (rc == 0)
			rc = check_end(&w, word, w.at < argc ? argv[w.at] : NULL);
	}
	if (rc == 0 && command->json && command->action != SETTINGS_CHECK) {
		snprintf(w.error, sizeof(w.error), "--json: goes with --check");
		rc = -EINVAL;
	}
	if (rc < 0)
		fprintf(errors, "%s\n", w.error);
	return w.wrong ? -EINVAL : rc;
}

static int take_environment(struct settings *s, FILE *errors)
{
	const struct settings_row *row = settings_find("socket");
	const char *socket = getenv("GPT2D_SOCKET");
	char error[256];
	int rc;

	if (socket == NULL || socket[0] == '\0')
		return 0;
	s->source[row - settings_rows] = BY_ENVIRONMENT;
	rc = settings_set_row(s, row, socket, error, sizeof(error));
	if (rc < 0)
		fprintf(errors, "GPT2D_SOCKET: %s\n", error);
	return rc;
}

static int take_file(struct settings *s, const char *asked, FILE *errors)
{
	char standard[4096];
	const char *path = asked;
	int rc;

	if (path == NULL && !paths_config(standard, sizeof(standard)))
		return 0; /* no home: no file */
	if (path == NULL)
		path = standard;
	rc = settings_read_file(s, path, errors);
	if (rc == -ENOENT && asked == NULL)
		return 0;
	if (rc == -ENOENT)
		fprintf(errors, "%s: %s\n", path, strerror(ENOENT));
	if (rc == 0 && (s->config_file = strdup(path)) == NULL) {
		fprintf(errors, "out of memory\n");
		rc = -ENOMEM;
	}
	return rc < 0 && rc != -ENOMEM ? -EINVAL : rc;
}

bool settings_in_file(const struct settings *s, const char *name, int *line)
{
	const struct settings_row *row = settings_find(name);
	const ptrdiff_t i = row != NULL ? row - settings_rows : -1;

	if (i < 0 || s->source[i] != BY_FILE || s->config_file == NULL)
		return false;
	*line = s->line[i];
	return true;
}

static void print_place(const struct settings *s, const char *name, FILE *errors)
{
	int line;

	if (settings_in_file(s, name, &line))
		fprintf(errors, "%s:%d: ", s->config_file, line);
}

/* What no single row can say. */
static int check_together(const struct settings *s, FILE *errors)
{
	int rc = 0;

	if (s->device == DEVICE_AUTO && paths_are_system()) {
		print_place(s, "device", errors);
		fprintf(errors,
			"device: auto is for a user's own daemon; a service says cpu or cuda, "
			"so that it never trains on something else unseen\n");
		rc = -EINVAL;
	}
	if (s->socket_group.name != NULL && s->socket_mode >= 0 && (s->socket_mode & 0060) == 0) {
		print_place(s, "socket_mode", errors);
		fprintf(errors,
			"socket_mode: %04o shuts out the socket_group \"%s\", 0660 lets it in\n",
			(unsigned)s->socket_mode, s->socket_group.name);
		rc = -EINVAL;
	}
	return rc;
}

int settings_load(
	struct settings *s, int argc, char **argv, struct settings_command *command, FILE *errors)
{
	struct settings ignored;
	int rc, file_rc;

	settings_init(s);
	settings_init(&ignored);
	rc = take_words(&ignored, argc, argv, command, errors);
	settings_finish(&ignored);
	if (rc < 0 || command->action == SETTINGS_HELP || command->action == SETTINGS_VERSION)
		return rc;
	file_rc = take_file(s, command->config, errors);
	rc = take_environment(s, errors);
	if (rc == 0)
		rc = take_words(s, argc, argv, command, errors);
	if (rc == 0 && file_rc == 0)
		rc = check_together(s, errors);
	if (rc == 0 && command->verbose && command->action == SETTINGS_RUN)
		s->log_level = LOG_DEBUG;
	return rc < 0 ? rc : file_rc;
}

void settings_print_help(FILE *out)
{
	char text[256], name[NAME_BYTES];

	fputs("usage: gpt2d [-c FILE] [-nv] [--NAME VALUE]...\n"
	      "       gpt2d --check [--json]\n\n"
	      "The daemon that keeps engines warm and the queue of runs safe.\n\n",
		out);
	for (size_t i = 0; i < FLAGS; i++) {
		const struct flag *f = &flags[i];

		fprintf(out, f->letter ? "  -%c, " : "  ", f->letter);
		fprintf(out, "--%s%s%s\n        %s\n", f->name, f->argument ? " " : "",
			f->argument ? f->argument : "", f->help);
	}
	fputs("\nSettings, as options here, or as lines NAME = VALUE of gpt2d.conf with _ for - "
	      "in their names:\n\n",
		out);
	for (size_t i = 0; i < settings_n_rows; i++) {
		const struct settings_row *row = &settings_rows[i];

		snprintf(name, sizeof(name), "%s", row->name);
		for (char *c = name; *c != '\0'; c++)
			if (*c == '_')
				*c = '-';
		settings_format_range(row, text, sizeof(text));
		fprintf(out, "  --%s  %s\n        %s", name, text, row->help);
		settings_format_standard(row, text, sizeof(text));
		fprintf(out, "%s%s\n", text[0] ? "\n        default: " : "", text);
	}
}
