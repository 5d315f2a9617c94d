#include "daemon/settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/protocol.h"
#include "proto/suggest.h"

enum type { TYPE_TEXT, TYPE_INTEGER, TYPE_SWITCH, TYPE_LIST };

struct row {
	const char *name;
	enum type type;
	const char *argument; /* what the help calls the value */
	size_t offset;        /* in struct settings */
	int64_t min, max, standard;
	const char *help;
};

#define AT(member) offsetof(struct settings, member)

static const struct row rows[] = {
	{"socket", TYPE_TEXT, "PATH", AT(socket), 0, 0, 0,
		"control socket ($GPT2D_SOCKET, else $XDG_RUNTIME_DIR/gpt2d/gpt2d.sock, else, "
		"for root, /run/gpt2d/gpt2d.sock)"},
	{"state-dir", TYPE_TEXT, "DIR", AT(state_dir), 0, 0, 0,
		"queue, runs and artifacts ($XDG_STATE_HOME/gpt2d, else ~/.local/state/gpt2d; "
		"for root /var/lib/gpt2d)"},
	{"engine", TYPE_TEXT, "PATH", AT(engine), 0, 0, 0,
		"engine program (gpt2-engine-cpu beside gpt2d, else in ../libexec/gpt2d)"},
	{"ranks", TYPE_INTEGER, "N", AT(ranks), 1, 1024, 1,
		"engine processes, the largest world of a run"},
	{"threads", TYPE_INTEGER, "N", AT(threads), 0, PROTOCOL_THREADS_MAX, 0,
		"computing threads of each rank; 0: processors / ranks, at least 1"},
	{"data-root", TYPE_LIST, "DIR", AT(data_root), 0, 0, 0,
		"runs may read data below it; may be given several times; never given: anywhere"},
	{"log", TYPE_TEXT, "FILE", AT(log), 0, 0, 0,
		"log file, appended to; never given: standard error"},
	{"start-timeout", TYPE_INTEGER, "S", AT(start_timeout_s), 1, 86400, 120,
		"engines that are not ready after it are started anew"},
	{"alive-timeout", TYPE_INTEGER, "S", AT(alive_timeout_s), 2, 86400, 15,
		"an engine that says nothing for it is taken for hung"},
	{"progress-timeout", TYPE_INTEGER, "S", AT(progress_timeout_s), 1, 604800, 600,
		"a segment that tells of no step for it is taken for hung"},
	{"cancel-timeout", TYPE_INTEGER, "S", AT(cancel_timeout_s), 1, 86400, 30,
		"engines that do not stop a segment within it are killed"},
	{"check-timeout", TYPE_INTEGER, "S", AT(check_timeout_s), 1, 86400, 120,
		"for the check of one arm of a spec"},
	{"clients", TYPE_INTEGER, "N", AT(clients_max), 1, 65536, 512, "clients at once"},
	{"clients-per-user", TYPE_INTEGER, "N", AT(clients_per_uid), 1, 65536, 128,
		"clients of one user at once"},
	{"client-buffer", TYPE_INTEGER, "BYTES", AT(client_buffer_bytes), 4096, 1 << 30, 1 << 20,
		"output held for a client before it loses events"},
	{"verbose", TYPE_SWITCH, NULL, AT(verbose), 0, 0, 0, "log more"},
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

void settings_init(struct settings *s)
{
	*s = (struct settings){0};
	for (size_t i = 0; i < ROWS; i++)
		if (rows[i].type == TYPE_INTEGER)
			*(int64_t *)(void *)((char *)s + rows[i].offset) = rows[i].standard;
}

void settings_finish(struct settings *s)
{
	for (size_t i = 0; i < ROWS; i++)
		if (rows[i].type == TYPE_TEXT)
			free(*(char **)(void *)((char *)s + rows[i].offset));
	for (size_t i = 0; i < s->n_data_roots; i++)
		free(s->data_root[i]);
}

static const struct row *find(const char *name, size_t n)
{
	for (size_t i = 0; i < ROWS; i++)
		if (strlen(rows[i].name) == n && strncmp(rows[i].name, name, n) == 0)
			return &rows[i];
	return NULL;
}

static int set_integer(struct settings *s, const struct row *row, const char *value, char *error,
	size_t error_bytes)
{
	char *end = NULL;
	long long v;

	errno = 0;
	v = strtoll(value, &end, 10);
	if (end == value || *end != '\0' || errno != 0 || v < row->min || v > row->max) {
		snprintf(error, error_bytes, "%s: \"%s\", an integer from %lld to %lld is expected",
			row->name, value, (long long)row->min, (long long)row->max);
		return -EINVAL;
	}
	*(int64_t *)(void *)((char *)s + row->offset) = v;
	return 0;
}

static int set_row(struct settings *s, const struct row *row, const char *value, char *error,
	size_t error_bytes)
{
	char **text = (char **)(void *)((char *)s + row->offset);
	char *copy;

	if (row->type == TYPE_SWITCH) {
		*(bool *)((char *)s + row->offset) = true;
		return 0;
	}
	if (row->type == TYPE_INTEGER)
		return set_integer(s, row, value, error, error_bytes);
	if (value[0] == '\0') {
		snprintf(error, error_bytes, "%s: empty, a path is expected", row->name);
		return -EINVAL;
	}
	if (row->type == TYPE_LIST && (value[0] != '/' || s->n_data_roots == SETTINGS_ROOTS_MAX)) {
		snprintf(error, error_bytes, "%s: \"%s\": %s", row->name, value,
			value[0] != '/' ? "an absolute path is expected" : "too many");
		return -EINVAL;
	}
	copy = strdup(value);
	if (copy == NULL) {
		snprintf(error, error_bytes, "out of memory");
		return -ENOMEM;
	}
	if (row->type == TYPE_LIST) {
		s->data_root[s->n_data_roots++] = copy;
		return 0;
	}
	free(*text);
	*text = copy;
	return 0;
}

static void unknown(const char *name, char *error, size_t error_bytes)
{
	const char *names[ROWS + 2], *nearest;

	for (size_t i = 0; i < ROWS; i++)
		names[i] = rows[i].name;
	names[ROWS] = "help";
	names[ROWS + 1] = "version";
	nearest = suggest_nearest(name, names, ROWS + 2);
	snprintf(error, error_bytes, "%s: no such setting%s%s%s", name,
		nearest ? ", the nearest is \"" : "; gpt2d --help lists them",
		nearest ? nearest : "", nearest ? "\"" : "");
}

int settings_set(
	struct settings *s, const char *name, const char *value, char *error, size_t error_bytes)
{
	const struct row *row = find(name, strlen(name));

	if (row == NULL) {
		unknown(name, error, error_bytes);
		return -ENOENT;
	}
	return set_row(s, row, value, error, error_bytes);
}

int settings_parse(struct settings *s, int argc, char **argv, enum settings_action *action,
	char *error, size_t error_bytes)
{
	*action = SETTINGS_RUN;
	for (int i = 1; i < argc; i++) {
		const char *name = argv[i], *value;
		const struct row *row;
		int rc;

		if (strcmp(name, "--help") == 0 || strcmp(name, "--version") == 0) {
			*action = name[2] == 'h' ? SETTINGS_HELP : SETTINGS_VERSION;
			return 0;
		}
		if (strncmp(name, "--", 2) != 0 || name[2] == '\0') {
			snprintf(error, error_bytes, "%s: an option (--name) is expected", name);
			return -EINVAL;
		}
		name += 2;
		row = find(name, strcspn(name, "="));
		value = strchr(name, '=');
		if (row == NULL) {
			unknown(name, error, error_bytes);
			return -EINVAL;
		}
		if (value != NULL)
			value++;
		else if (row->type != TYPE_SWITCH && i + 1 < argc)
			value = argv[++i];
		if ((row->type == TYPE_SWITCH) != (value == NULL)) {
			snprintf(error, error_bytes, "--%s: %s", row->name,
				value ? "takes no value" : "a value is expected");
			return -EINVAL;
		}
		rc = set_row(s, row, value, error, error_bytes);
		if (rc < 0)
			return rc;
	}
	return 0;
}

void settings_print_help(FILE *out)
{
	fputs("usage: gpt2d [--option value]...\n\n", out);
	fputs("The daemon that keeps engines warm and the queue of runs safe.\n\n", out);
	for (size_t i = 0; i < ROWS; i++) {
		const struct row *r = &rows[i];

		fprintf(out, "  --%s%s%s\n        %s", r->name, r->argument ? " " : "",
			r->argument ? r->argument : "", r->help);
		if (r->type == TYPE_INTEGER)
			fprintf(out, " (%lld to %lld, default %lld)", (long long)r->min,
				(long long)r->max, (long long)r->standard);
		fputc('\n', out);
	}
	fputs("  --version\n        print what this build is\n  --help\n        print this\n", out);
}
