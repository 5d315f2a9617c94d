/* gpt2ctl artifacts: the files of a run, and copies of them. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/results/artifact_copy.h"
#include "ctl/print/format.h"
#include "ctl/print/members.h"
#include "ctl/print/text.h"
#include "ctl/verbs/verb.h"
#include "proto/artifact.h"
#include "proto/host/memory.h"
#include "proto/text.h"

static const struct option_row options[] = {
	{"segment", 's', OPTION_INT, "N", 1, 1e9, "only the files of segment N"},
	{"copy", 'c', OPTION_STRING, "DIR", 0, 0,
		"copy them to DIR, with their directories; each is checked by its hash"},
	{"force", 'f', OPTION_FLAG, NULL, 0, 0, "with --copy: replace files in DIR that differ"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

static void print_files(const struct term *t, const json_t *files)
{
	const json_t *file;
	struct table table;
	size_t i;

	if (json_array_size(files) == 0)
		return;
	table_init(&table);
	table.whole = true;
	table_columns(&table, ">SEGMENT\t>BYTES\tFILE\tSHA-256");
	json_array_foreach(files, i, file) {
		members_cells(&table, file, "{segment|-}\t{bytes:count|0}\t{path}");
		members_cells(&table, file,
			json_is_string(json_object_get(file, "sha256")) ? "{sha256}"
									: "(unreadable)");
	}
	table_print(&table, t, "");
	table_finish(&table);
}

static void print_copy(const struct term *t, const json_t *result)
{
	char text[32], size[FORMAT_BYTES];
	int64_t copied = 0, present = 0, bytes = 0;
	const json_t *file;
	size_t i;

	json_array_foreach(json_object_get(result, "files"), i, file) {
		format_string(file, "result", "", text, sizeof(text));
		if (strcmp(text, "copied") == 0) {
			copied++;
			bytes += format_int(file, "bytes", 0);
		} else if (strcmp(text, "present") == 0) {
			present++;
		}
	}
	fprintf(t->file, "copied %lld file%s, %s", (long long)copied, copied == 1 ? "" : "s",
		format_size(bytes, size));
	members_print(t->file, result, ", to {copied_to}");
	if (present > 0)
		fprintf(t->file, "; %lld %s already there", (long long)present,
			present == 1 ? "was" : "were");
	fputc('\n', t->file);
}

/* A line of standard error. */
static void print_trouble(const struct term *err, const json_t *object, const char *format)
{
	fprintf(err->file, "%sgpt2ctl:%s ", term_colour(err, TERM_RED),
		term_colour(err, TERM_PLAIN));
	members_print(err->file, object, format);
	fputc('\n', err->file);
}

/* A line for each file with the member key. */
static void print_each(
	const struct term *err, const json_t *files, const char *key, const char *format)
{
	const json_t *file;
	size_t i;

	json_array_foreach(files, i, file)
		if (json_object_get(file, key))
			print_trouble(err, file, format);
}

static void print_troubles(struct output *o, const json_t *result)
{
	const json_t *files = json_object_get(result, "files");
	const json_t *missing = json_object_get(result, "missing");
	const struct term *err = &o->err;
	json_t *count;

	if (o->unread)
		return;
	print_each(err, files, "altered", "altered {path}: {altered}");
	if (json_array_size(missing) > 1 && json_array_size(files) == 0) {
		count = json_pack("{s:i, s:O}", "n", (int)json_array_size(missing), "dir",
			json_object_get(result, "dir"));
		print_trouble(err, count,
			"missing: none of the {n} files that the engine wrote exists; was {dir} "
			"removed, or is its disk not mounted?");
		json_decref(count);
	} else {
		print_each(err, missing, "path",
			"missing {path}: the engine wrote {bytes} bytes, the file does not exist");
	}
	print_each(err, files, "message", "left out {path}: {message}");
	if (format_int(result, "left_out", 0) > 0)
		print_trouble(err, result,
			"left out {left_out} file{left_out:s} with names that are not those of "
			"artifacts");
}

static void print_artifacts(struct output *o, const json_t *result)
{
	const json_t *files = json_object_get(result, "files"), *file;
	const struct term *t = &o->out;
	char size[FORMAT_BYTES];
	int64_t bytes = 0;
	size_t i;

	json_array_foreach(files, i, file)
		bytes += format_int(file, "bytes", 0);
	if (!json_object_get(result, "copied_to")) {
		members_print(t->file, result, "run {id} {name|} ({state}): ");
		fprintf(t->file, "%zu file%s, %s, ", json_array_size(files),
			json_array_size(files) == 1 ? "" : "s", format_size(bytes, size));
		members_print(t->file, result, "in {dir}\n");
		print_files(t, files);
	} else {
		print_copy(t, result);
	}
}

/* ---- comparing the files with those that the engine wrote ---- */

/*
 * Each RUN_COMPLETE.txt has the SHA-256 of the spec and the metrics beside it; for other files the
 * engine reported the size.
 */

enum { MARKER_BYTES = 16 << 10 }; /* gpt2d refuses longer ones too */

static const char *path_of(const json_t *file)
{
	const char *path = json_string_value(json_object_get(file, "path"));

	return path ? path : "";
}

static bool is_marker(const char *path)
{
	const char *slash = strrchr(path, '/');

	return strcmp(slash ? slash + 1 : path, ARTIFACT_COMPLETE) == 0;
}

/* Whether the value after " key=" is this one. */
static bool names(const char *text, const char *key, const char *value)
{
	const char *at = strstr(text, key);
	const size_t n = strlen(value);

	if (at == NULL || strncmp(at + strlen(key), value, n) != 0)
		return false;
	at += strlen(key) + n;
	return *at == ' ' || *at == '\n';
}

/* The marker's text, the caller's; NULL: gpt2d does not have it any more. "": it is not valid. */
static int read_marker(
	struct client *c, int64_t run, const json_t *file, char **text, struct ctl_error *e)
{
	const int64_t bytes = format_int(file, "bytes", 0);
	size_t n;
	int exit;

	*text = NULL;
	if (bytes < 1 || bytes > MARKER_BYTES) {
		*text = memory_text("");
		return 0;
	}
	exit = artifact_copy_read(c, run, path_of(file), 0, bytes, text, &n, e);
	if (exit != CTL_NO_SUCH_RUN && exit != CTL_USAGE)
		return exit;
	ctl_error_clear(e);
	return 0;
}

/* Whether the file with this name beside the marker has another hash. */
static bool check_file(const json_t *by_path, const char *marker, const char *text,
	const char *name, const char *key)
{
	const int folder = (int)(strlen(marker) - strlen(ARTIFACT_COMPLETE));
	char path[PATH_MAX];
	const char *sha256;
	json_t *file;

	snprintf(path, sizeof(path), "%.*s%s", folder, marker, name);
	file = json_object_get(by_path, path);
	sha256 = json_string_value(json_object_get(file, "sha256"));
	if (sha256 == NULL || names(text, key, sha256))
		return false;
	json_object_set_new(
		file, "altered", json_string("its hash is not the one in " ARTIFACT_COMPLETE));
	return true;
}

/* Whether the size differs from the engine's report. */
static bool check_size(json_t *file)
{
	const int64_t announced = format_int(file, "announced", -1);
	const int64_t bytes = format_int(file, "bytes", announced);

	if (announced < 0 || bytes == announced)
		return false;
	if (json_object_get(file, "altered") == NULL)
		json_object_set_new(file, "altered",
			json_sprintf("%lld bytes, the engine wrote %lld", (long long)bytes,
				(long long)announced));
	return true;
}

/*
 * A file whose hash differs from the marker beside it, or whose size differs from the report, gets
 * "altered" with the reason. gpt2d itself sets it for RUN_COMPLETE.txt of a run that is not done.
 */
static int check_files(struct client *c, json_t *result, bool *altered, struct ctl_error *e)
{
	json_t *files = json_object_get(result, "files"), *by_path = json_object(), *file;
	const int64_t run = format_int(result, "id", 0);
	char *text;
	bool found = false;
	int exit = 0;
	size_t i;

	json_array_foreach(files, i, file) {
		json_object_set(by_path, path_of(file), file);
		found |= json_object_get(file, "altered") != NULL;
	}
	json_array_foreach(files, i, file) {
		const char *path = path_of(file);

		if (!is_marker(path) || !json_is_string(json_object_get(file, "sha256")) ||
			json_object_get(file, "altered") != NULL)
			continue;
		exit = read_marker(c, run, file, &text, e);
		if (exit)
			break;
		if (!text)
			continue;
		found |= check_file(by_path, path, text, ARTIFACT_METRICS, " metrics_sha256=");
		found |= check_file(by_path, path, text, ARTIFACT_SPEC, " spec_sha256=");
		free(text);
	}
	json_array_foreach(files, i, file)
		found |= check_size(file);
	json_decref(by_path);
	if (exit == 0)
		*altered = found;
	return exit;
}

/* ---- the verb ---- */

/* The files of the run, or of a segment (0: of all). */
static int fetch(
	struct client *c, int64_t id, int64_t segment, json_t **result, struct ctl_error *e)
{
	json_t *params = json_pack("{s:I}", "id", (json_int_t)id);
	int64_t segments;
	int exit;

	if (segment > 0)
		json_object_set_new(params, "segment", json_integer(segment));
	exit = client_request_pages(
		c, METHOD_ARTIFACTS, params, CLIENT_CHECK_S, "left_out", result, e);
	segments = format_int(e->data, "segments", 0);
	if (exit && segment > 0 && segments > 0)
		ctl_error_set(e, exit,
			"--segment %lld: run %lld has %lld segment%s, the first is 1",
			(long long)segment, (long long)id, (long long)segments,
			segments > 1 ? "s" : "");
	return exit;
}

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	const char *dir = options_string(args, "copy", NULL);
	struct client *c = NULL;
	json_t *result = NULL;
	bool incomplete = false, altered = false, missing;
	int64_t id;
	int exit = verb_parse_id(args->words[0], &id, e);

	if (!exit && !dir && options_has(args, "force"))
		exit = ctl_error_set(e, CTL_USAGE, "--force requires --copy");
	if (!exit && dir && !*dir)
		exit = ctl_error_set(e, CTL_USAGE, "--copy: missing directory");
	if (!exit)
		exit = client_open(&ctl->link, &c, e);
	if (!exit)
		exit = fetch(c, id, options_int(args, "segment", 0), &result, e);
	if (!exit)
		exit = check_files(c, result, &altered, e);
	if (!exit && dir) {
		exit = artifact_copy_all(c, result, dir, options_has(args, "force"),
			ctl->output.err.tty && !ctl->output.json ? &ctl->output.err : NULL,
			&incomplete, e);
		json_object_set_new(result, "copied_to", text_json(dir));
		incomplete |= format_int(result, "left_out", 0) > 0;
	}
	missing = json_array_size(json_object_get(result, "missing")) > 0;
	client_close(c);
	if (!exit) {
		output_print(&ctl->output, "artifacts", result, print_artifacts);
		print_troubles(&ctl->output, result);
	}
	json_decref(result);
	if (exit)
		return e->exit;
	return incomplete || altered || missing ? CTL_TRANSPORT : CTL_OK;
}

const struct verb verb_artifacts = {
	.name = "artifacts",
	.args = "ID",
	.min_args = 1,
	.max_args = 1,
	.summary = "the files of a run, with their SHA-256; or copies of them",
	.text = "The files of the run's latest attempt, by segment. A file that the engine wrote "
		"and that does not exist, or is no regular file, is reported as missing. gpt2d "
		"follows no links: it refuses a run whose directory is a link. With --copy, each "
		"file arrives whole or not at all. A file that is already in DIR stays as it is. "
		"RUN_COMPLETE.txt is copied last, and only if all files that it vouches for were "
		"copied; an older copy of it in DIR is removed before anything beside or below it "
		"is written. Files below a link in DIR are left out. Standard error reports as "
		"altered: a specification or metrics "
		"file whose SHA-256 is not the one in RUN_COMPLETE.txt, any file whose size is not "
		"the one that the engine wrote, and a RUN_COMPLETE.txt of a run or segment that is "
		"not done. An altered file replaces no other file, even with --force, and the "
		"RUN_COMPLETE.txt beside and above it is not copied. The exit status is 1 if a "
		"file is altered or missing, or was not copied; standard error says why. gpt2ctl "
		"creates DIR, but not its parent directory.",
	.options = options,
	.run = run,
};
