#include "ctl/verbs/spec_source.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/print/format.h"
#include "proto/host/file.h"
#include "proto/host/memory.h"
#include "proto/spec/spec_json.h"
#include "proto/text.h"

/* ---- reading ---- */

/* A file of at most SPEC_BYTES_MAX bytes: 0 with *text and *n, or CTL_USAGE with e. */
static int read_file(const char *file, char **text, size_t *n, struct ctl_error *e)
{
	const bool is_stdin = strcmp(file, "-") == 0;
	const int fd = is_stdin ? STDIN_FILENO : open(file, O_RDONLY | O_CLOEXEC);
	const int rc = fd < 0 ? -errno : file_read_all(fd, SPEC_BYTES_MAX, text, n);

	if (fd >= 0 && !is_stdin)
		close(fd);
	if (rc == -EFBIG)
		return ctl_error_set(e, CTL_USAGE,
			"%.800s: file too large for a spec (at most %d bytes)", file,
			(int)SPEC_BYTES_MAX);
	return rc ? ctl_error_set(e, CTL_USAGE, "%.800s: %s", *file ? file : "\"\"", strerror(-rc))
		  : 0;
}

/*
 * The absolute directory from which the spec's relative paths start: the file's, or for a pipe, as
 * with <(jq . spec.json), the current one. The caller's; NULL with errno.
 */
static char *base_folder(const char *file)
{
	struct stat st;
	char *copy, *folder;

	if (strcmp(file, "-") == 0 || (stat(file, &st) == 0 && !S_ISREG(st.st_mode)))
		return realpath(".", NULL);
	copy = memory_text(file);
	folder = realpath(dirname(copy), NULL);
	free(copy);
	return folder;
}

int spec_source_load(const struct options *args, struct spec_source *source, struct ctl_error *e)
{
	const char *file = args->words[0];
	const bool is_stdin = strcmp(file, "-") == 0;
	char *folder = base_folder(file), *text = NULL;

	*source = (struct spec_source){.name = is_stdin ? "stdin" : file, .args = args};
	if (!folder)
		ctl_error_set(e, CTL_USAGE, "%.800s: %s", is_stdin ? "current directory" : file,
			strerror(errno));
	else
		read_file(file, &text, &source->n, e);
	source->folder = folder;
	source->text = text;
	if (e->exit)
		spec_source_unload(source);
	return e->exit;
}

void spec_source_unload(struct spec_source *source)
{
	free((char *)source->text);
	free((char *)source->folder);
	source->text = source->folder = NULL;
}

/* ---- errors ---- */

/* Whether the option, of the form KEY=VALUE, sets the key. */
static bool gives(const struct options *args, const char *option, const char *key)
{
	const size_t n = strlen(key);
	size_t left;
	const char **sets = options_all(args, option, &left);
	bool found = false;

	for (; left > 0 && !found; left--)
		found = strncmp(sets[left - 1], key, n) == 0 && sets[left - 1][n] == '=';
	free(sets);
	return found;
}

static bool is_set(const struct options *args, const char *key)
{
	return gives(args, "set", key);
}

/* The parser names a key of any option "--set KEY": the name with the real option. */
static const char *with_option(const struct options *args, const char *key, char *out, size_t bytes)
{
	static const char *const options[] = {"set", "sweep", "keys"};
	const char *name = key + strlen("--set ");

	if (strncmp(key, "--set ", strlen("--set ")) != 0)
		return key;
	if (strcmp(name, "name") == 0 && options_has(args, "name") && !is_set(args, "name"))
		return "--name";
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		if (!gives(args, options[i], name))
			continue;
		snprintf(out, bytes, "--%s %s", options[i], name);
		return out;
	}
	return key;
}

static struct spec_place place_of(const struct spec_source *s, const char *key)
{
	struct spec_errors *errors = memory_zeroed(1, sizeof(*errors));
	struct spec_json json;
	struct spec_place at = {0};

	if (s->draft)
		at = spec_draft_place(s->draft, key);
	else if (s->rerun_of == 0 && spec_json_parse(s->text, s->n, &json, errors) == 0) {
		const struct spec_json_node *node = spec_json_find(&json, &json.node[0], key);

		if (node)
			at = node->at;
		spec_json_finish(&json);
	}
	free(errors);
	return at;
}

/* Advice if rerun requests another number of GPUs; "": none. */
static const char *advice(const struct spec_source *s, const char *key)
{
	if (s->rerun_of == 0)
		return "";
	if (strcmp(key, "train_batch_size") == 0 && is_set(s->args, "gpus") &&
		!is_set(s->args, "train_batch_size"))
		return "; the run had this size for its own gpus: with --set gpus, also use --set "
		       "train_batch_size";
	if (strcmp(key, "gpus") == 0 && !is_set(s->args, "gpus"))
		return "; use all ranks that exist: --set gpus=0, with --set train_batch_size";
	return "";
}

/* A row for the output: the place in the file (in_file: its value is wrong), or the option. */
static json_t *make_row(const struct spec_source *s, struct spec_place at, bool in_file,
	const char *key, const char *message)
{
	const bool set = !in_file && is_set(s->args, key);
	char shown[sizeof("--set ") + sizeof(((struct spec_error *)0)->key)];
	char text[1024];

	snprintf(shown, sizeof(shown), "%s%s", set ? "--set " : "", key);
	snprintf(text, sizeof(text), "%s%s", message, advice(s, key));
	if (s->rerun_of || set || strncmp(key, "--", 2) == 0)
		at = (struct spec_place){0};
	return json_pack("{s:i, s:i, s:o, s:o}", "line", at.line, "column", at.column, "key",
		text_json(shown), "message", text_json(text));
}

/* Insert the row by its line; rows without a line come last. An equal row is dropped. */
static void insert_row(json_t *rows, json_t *row)
{
	const int64_t line = format_int(row, "line", 0);
	size_t at = json_array_size(rows);
	const json_t *other;
	size_t i;

	json_array_foreach(rows, i, other) {
		const int64_t before = format_int(other, "line", 0);

		if (json_equal(other, row)) {
			json_decref(row);
			return;
		}
		if (line > 0 && (before == 0 || line < before) && i < at)
			at = i;
	}
	json_array_insert_new(rows, at, row);
}

static void print_rows(struct output *o, const char *name, json_t *rows)
{
	json_t *object = json_pack("{s:{s:i, s:s, s:o, s:o}}", "error", "exit", CTL_USAGE,
		"message", "the spec was refused", "file", text_json(name), "errors", rows);
	struct spec_error error;
	char clean[SPEC_PATH_MAX];
	const json_t *row;
	size_t i;

	term_clean(name, clean, sizeof(clean));
	json_array_foreach(rows, i, row) {
		error = (struct spec_error){.at = {.line = (int)format_int(row, "line", 0),
						    .column = (int)format_int(row, "column", 0)}};
		format_string(row, "key", "", error.key, sizeof(error.key));
		format_string(row, "message", "", error.message, sizeof(error.message));
		spec_error_print(&error, clean, o->err.file);
	}
	output_print(o, "error", object, NULL);
	json_decref(object);
}

void spec_source_report(
	struct output *o, const struct spec_source *source, const struct spec_errors *errors)
{
	json_t *rows = json_array();
	char more[64], name[sizeof("--sweep ") + sizeof(errors->error[0].key)];

	for (size_t i = 0; i < errors->n; i++) {
		const struct spec_error *row = &errors->error[i];

		insert_row(rows,
			make_row(source, source->draft ? place_of(source, row->key) : row->at,
				row->at.line > 0,
				with_option(source->args, row->key, name, sizeof(name)),
				row->message));
	}
	if (errors->dropped > 0) {
		snprintf(more, sizeof(more), "and %zu more errors", errors->dropped);
		json_array_append_new(
			rows, make_row(source, (struct spec_place){0}, false, "", more));
	}
	print_rows(o, source->name, rows);
}

/* ---- gpt2d's rows ---- */

/* Whether the arm sets the key itself, in the file or by --set. */
static bool has_own(const struct spec_source *s, const char *arm, const char *key)
{
	char own[1024];

	snprintf(own, sizeof(own), "arms.%s.%s", arm, key);
	return is_set(s->args, own) || place_of(s, own).line > 0;
}

/* Splits "arms.NAME.KEY": KEY and *arm, if that arm has KEY from the whole spec; else NULL. */
static const char *shared_key(
	const struct spec_source *s, const json_t *arms, const char *key, const char **arm)
{
	const char *name, *rest = NULL;
	json_t *ignored;
	size_t most = 0;

	if (strncmp(key, "arms.", 5) != 0)
		return NULL;
	/* a name may have dots, and begin with another name */
	json_object_foreach((json_t *)arms, name, ignored) {
		const size_t n = strlen(name);

		if (n < most || strncmp(key + 5, name, n) != 0 || key[5 + n] != '.')
			continue;
		most = n;
		*arm = name;
		rest = key + 5 + n + 1;
	}
	return rest && !has_own(s, *arm, rest) ? rest : NULL;
}

/* Whether all arms that share the key have this error. */
static bool in_all_arms(const struct spec_source *s, const json_t *arms, const json_t *rows,
	const char *shared, const json_t *message)
{
	const char *name, *key, *arm;
	size_t sharing = 0, n = 0, i;
	const json_t *row;
	json_t *ignored;

	json_object_foreach((json_t *)arms, name, ignored)
		sharing += !has_own(s, name, shared);
	json_array_foreach(rows, i, row) {
		key = json_string_value(json_object_get(row, "key"));
		key = key ? shared_key(s, arms, key, &arm) : NULL;
		n += key && strcmp(key, shared) == 0 &&
			json_equal(json_object_get(row, "message"), message);
	}
	return n >= sharing;
}

void spec_source_report_rows(
	struct output *o, const struct spec_source *source, const json_t *arms, const json_t *rows)
{
	json_t *placed = json_array();
	const json_t *row;
	char text[1024], key[sizeof(((struct spec_error *)0)->key)];
	const char *arm, *shared;
	size_t i;

	json_array_foreach(rows, i, row) {
		format_string(row, "key", "", key, sizeof(key));
		format_string(row, "message", "", text, 600);
		shared = shared_key(source, arms, key, &arm);
		if (shared &&
			!in_all_arms(source, arms, rows, shared, json_object_get(row, "message")))
			snprintf(text + strlen(text), 300, " (arm %.200s)", arm);
		if (!shared)
			shared = key;
		insert_row(placed, make_row(source, place_of(source, shared), false, shared, text));
	}
	print_rows(o, source->name, placed);
}
