/* artifacts, for people. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ctl/print/format.h"
#include "ctl/print/table.h"
#include "ctl/print/text.h"

static void segment_cell(struct table *t, const json_t *file)
{
	const int64_t segment = format_int(file, "segment", -1);

	if (segment < 0)
		table_cell(t, "-");
	else
		table_cell(t, "%lld", (long long)segment + 1);
}

static void print_files(const struct term *t, const json_t *files)
{
	char path[4096], count[FORMAT_BYTES], sha256[80];
	const json_t *file;
	struct table table;
	size_t i;

	if (json_array_size(files) == 0)
		return;
	table_init(&table);
	table.whole = true;
	table_column(&table, "SEGMENT", true);
	table_column(&table, "BYTES", true);
	table_column(&table, "FILE", false);
	table_column(&table, "SHA-256", false);
	json_array_foreach(files, i, file) {
		segment_cell(&table, file);
		table_cell(&table, "%s", format_count(format_int(file, "bytes", 0), count));
		table_cell(&table, "%s", format_string(file, "path", "?", path, sizeof(path)));
		table_cell(&table, "%s",
			format_string(file, "sha256", "(cannot be read)", sha256, sizeof(sha256)));
	}
	table_print(&table, t, "");
	table_finish(&table);
}

static void print_copy(const struct term *t, const json_t *result)
{
	char text[32], dir[4096], size[FORMAT_BYTES];
	int64_t copied = 0, present = 0, bytes = 0;
	const json_t *file;
	size_t i;

	json_array_foreach(json_object_get(result, "files"), i, file) {
		format_string(file, "result", "", text, sizeof(text));
		if (strcmp(text, "copied") == 0) {
			copied++;
			bytes = format_sum(bytes, format_int(file, "bytes", 0));
		} else if (strcmp(text, "present") == 0) {
			present++;
		}
	}
	fprintf(t->file, "copied %lld file%s, %s, to %s", (long long)copied, copied == 1 ? "" : "s",
		format_size(bytes, size),
		format_string(result, "copied_to", "?", dir, sizeof(dir)));
	if (present > 0)
		fprintf(t->file, "; %lld %s there already", (long long)present,
			present == 1 ? "was" : "were");
	fputc('\n', t->file);
}

static void print_trouble(const struct term *err, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void print_trouble(const struct term *err, const char *format, ...)
{
	va_list args;

	fprintf(err->file, "%sgpt2ctl:%s ", term_colour(err, TERM_RED),
		term_colour(err, TERM_PLAIN));
	va_start(args, format);
	vfprintf(err->file, format, args);
	va_end(args);
	fputc('\n', err->file);
}

/* What happened to file: why is the member that says so; nothing where it is not there. */
static void print_happened(
	const struct term *err, const char *what, const json_t *file, const char *why)
{
	char path[4096], text[300];

	if (json_is_string(json_object_get(file, why)))
		print_trouble(err, "%s %s: %s", what,
			format_string(file, "path", "?", path, sizeof(path)),
			format_string(file, why, "", text, sizeof(text)));
}

/* A line for each; where nothing at all is left it is the folder that is not there. */
static void print_missing(const struct term *err, const json_t *result)
{
	const json_t *missing = json_object_get(result, "missing"), *file;
	const size_t n = json_array_size(missing);
	char path[4096];
	size_t i;

	if (n > 1 && json_array_size(json_object_get(result, "files")) == 0) {
		print_trouble(err,
			"missing: none of the %zu files that the engine wrote is there; is %s gone,"
			" or its disk not mounted?",
			n, format_string(result, "dir", "?", path, sizeof(path)));
		return;
	}
	json_array_foreach(missing, i, file)
		print_trouble(err, "missing %s: the engine wrote it (%lld bytes), it is gone",
			format_string(file, "path", "?", path, sizeof(path)),
			(long long)format_int(file, "bytes", 0));
}

void text_artifacts_trouble(struct ctl *ctl, const json_t *result)
{
	const int64_t left_out = format_int(result, "left_out", 0);
	const struct term *err = &ctl->err;
	const json_t *file;
	size_t i;

	if (ctl->out_unread)
		return; /* who read the list wants no more of it */
	json_array_foreach(json_object_get(result, "files"), i, file)
		print_happened(err, "altered", file, "altered");
	print_missing(err, result);
	json_array_foreach(json_object_get(result, "files"), i, file)
		print_happened(err, "left out", file, "message");
	if (left_out > 0)
		print_trouble(err, "left out %lld name%s that no artifact has", (long long)left_out,
			left_out == 1 ? "" : "s");
}

void text_artifacts(struct ctl *ctl, const json_t *result)
{
	const json_t *files = json_object_get(result, "files"), *file;
	const struct term *t = &ctl->out;
	char name[80], state[32], reason[600], dir[4096], size[FORMAT_BYTES];
	int64_t bytes = 0;
	bool unstored;
	size_t i;

	json_array_foreach(files, i, file)
		bytes = format_sum(bytes, format_int(file, "bytes", 0));
	format_string(result, "reason", "", reason, sizeof(reason));
	unstored = text_unstored(reason) != NULL;
	if (!json_object_get(result, "copied_to")) {
		fprintf(t->file, "run %lld %s (%s%s%s): %zu file%s, %s, in %s\n",
			(long long)format_int(result, "id", 0),
			format_string(result, "name", "", name, sizeof(name)),
			format_string(result, "state", "?", state, sizeof(state)),
			unstored ? ": " : "", unstored ? reason : "",
			json_array_size(files), json_array_size(files) == 1 ? "" : "s",
			format_size(bytes, size),
			format_string(result, "dir", "?", dir, sizeof(dir)));
		print_files(t, files);
	}
	if (json_object_get(result, "copied_to"))
		print_copy(t, result);
}
