/* submit --dry-run, for people: what each arm would do, and the spec as it was understood. */
#include <stdio.h>
#include <string.h>

#include "ctl/format.h"
#include "ctl/text.h"

void text_plan(const json_t *plan, char *out, size_t out_bytes)
{
	const int64_t reduce = format_int(plan, "reduce_elems", -1);
	const int64_t n = format_int(plan, "n_reduce", 0);
	const int64_t gather = format_int(plan, "gather_elems", -1);
	const int64_t n_gather = format_int(plan, "n_gather", 0);
	const int64_t elem_bytes = format_int(plan, "elem_bytes", 4);
	char count[FORMAT_BYTES], size[FORMAT_BYTES];
	int used;

	if (reduce < 0) {
		snprintf(out, out_bytes, "-");
		return;
	}
	used = snprintf(out, out_bytes, "%lld bucket%s of %s el (%s)", (long long)n,
		n == 1 ? "" : "s", format_count(reduce, count),
		format_size(reduce * elem_bytes, size));
	if (gather >= 0 && used > 0 && (size_t)used < out_bytes &&
		(gather != reduce || n_gather != n))
		snprintf(out + used, out_bytes - (size_t)used, ", gathered in %lld of %s el",
			(long long)n_gather, format_count(gather, count));
}

/* ---- any object, indented; the engine may add to it what is not known here ---- */

static bool is_bytes(const char *key)
{
	const size_t n = strlen(key);

	return n > 6 && strcmp(key + n - 6, "_bytes") == 0;
}

static void print_scalar(FILE *out, const char *key, const json_t *value)
{
	char count[FORMAT_BYTES], size[FORMAT_BYTES], clean[4096];

	if (json_is_integer(value) && is_bytes(key))
		fprintf(out, "%s (%s)", format_size(json_integer_value(value), size),
			format_count(json_integer_value(value), count));
	else if (json_is_integer(value))
		fputs(format_count(json_integer_value(value), count), out);
	else if (json_is_real(value))
		fprintf(out, "%.6g", json_real_value(value));
	else if (json_is_string(value)) {
		term_clean(json_string_value(value), clean, sizeof(clean));
		fputs(clean, out);
	} else
		fputs(json_is_true(value) ? "yes" : json_is_false(value) ? "no" : "-", out);
}

static void print_object(FILE *out, const json_t *object, int indent);

static void print_value(FILE *out, const char *key, const json_t *value, int indent)
{
	const json_t *element;
	char clean[128];
	size_t i;

	term_clean(key, clean, sizeof(clean));
	if (json_is_object(value)) {
		fprintf(out, "%*s%s\n", indent, "", clean);
		print_object(out, value, indent + 2);
		return;
	}
	fprintf(out, "%*s%-*s", indent, "", 24 - indent, clean);
	if (!json_is_array(value)) {
		fputc(' ', out);
		print_scalar(out, key, value);
		fputc('\n', out);
		return;
	}
	json_array_foreach(value, i, element) {
		if (json_is_object(element)) {
			fputc('\n', out);
			print_object(out, element, indent + 2);
		} else {
			fputc(' ', out);
			print_scalar(out, key, element);
		}
	}
	fputc('\n', out);
}

/* indent stays small: objects nest as deep as the daemon's checks do, JSON's depth is limited by
 * jansson */
static void print_object(FILE *out, const json_t *object, int indent)
{
	const json_t *value;
	const char *key;

	json_object_foreach((json_t *)object, key, value)
		print_value(out, key, value, indent < 20 ? indent : 20);
}

/* ---- the dry run ---- */

static void print_bucket(FILE *out, const char *what, const json_t *plan, const char *const keys[3])
{
	const int64_t n = format_int(plan, keys[2], 0);
	const int64_t elems = format_int(plan, keys[1], 0);
	char asked[FORMAT_BYTES], effective[FORMAT_BYTES], size[FORMAT_BYTES];

	fprintf(out, "  %-22s %lld bucket%s of %s el (%s), asked %s el\n", what, (long long)n,
		n == 1 ? "" : "s", format_count(elems, effective),
		format_size(elems * format_int(plan, "elem_bytes", 4), size),
		format_count(format_int(plan, keys[0], 0), asked));
}

/* What was asked for, and what it comes to. */
static void print_plan(FILE *out, const json_t *plan)
{
	static const char *const reduce[] = {"asked_reduce_elems", "reduce_elems", "n_reduce"};
	static const char *const gather[] = {"asked_gather_elems", "gather_elems", "n_gather"};

	if (!json_is_object(plan))
		return;
	print_bucket(out, "reduce buckets", plan, reduce);
	print_bucket(out, "all-gather buckets", plan, gather);
}

static void print_warnings(const struct term *t, const json_t *warnings)
{
	const json_t *warning;
	char clean[1024];
	size_t i;

	json_array_foreach(warnings, i, warning) {
		if (!json_is_string(warning))
			continue;
		term_clean(json_string_value(warning), clean, sizeof(clean));
		fprintf(t->file, "  %swarning%s: %s\n", term_colour(t, TERM_YELLOW),
			term_colour(t, TERM_PLAIN), clean);
	}
}

static void print_arm(const struct term *t, const json_t *row)
{
	const json_t *check = json_object_get(row, "check"), *value;
	char arm[80], hash[80];
	const char *key;

	fprintf(t->file, "%sarm %s%s  spec %.16s\n", term_colour(t, TERM_BOLD),
		format_string(row, "arm", "", arm, sizeof(arm)), term_colour(t, TERM_PLAIN),
		format_string(row, "spec_sha256", "-", hash, sizeof(hash)));
	print_plan(t->file, json_object_get(check, "plan"));
	json_object_foreach((json_t *)check, key, value) {
		if (strcmp(key, "plan") != 0 && strcmp(key, "warnings") != 0)
			print_value(t->file, key, value, 2);
	}
	print_warnings(t, json_object_get(check, "warnings"));
	fputc('\n', t->file);
}

void text_dry_run(struct ctl *ctl, const json_t *reply)
{
	const json_t *rows = json_object_get(reply, "arms"), *row;
	const int64_t segments = format_int(reply, "segments", 1);
	char hash[80];
	size_t i;

	fputs("dry run: nothing is queued\n\nspec, as understood:\n", ctl->out.file);
	json_dumpf(json_object_get(reply, "spec"), ctl->out.file,
		JSON_INDENT(2) | JSON_REAL_PRECISION(15));
	fprintf(ctl->out.file, "\nspec_sha256 %s\n%lld segment%s\n\n",
		format_string(reply, "spec_sha256", "-", hash, sizeof(hash)), (long long)segments,
		segments == 1 ? "" : "s");
	json_array_foreach(rows, i, row)
		print_arm(&ctl->out, row);
}
