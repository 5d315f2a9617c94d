#include "ctl/results/samples.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <regex.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/host/file.h"
#include "proto/host/memory.h"
#include "proto/spec/spec_json.h"

/* A file that is being read. */
struct source {
	char path[4096];
	const char *selector; /* after the colon; NULL: none */
	char *text;           /* ends in NUL */
	size_t n;
	struct samples *to;
	char *error;
	size_t error_bytes;
};

static int refuse(struct source *s, size_t line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static int refuse(struct source *s, size_t line, const char *format, ...)
{
	char where[32] = "";
	va_list args;
	int n;

	if (line > 0)
		snprintf(where, sizeof(where), ":%zu", line);
	n = snprintf(s->error, s->error_bytes, "%s%s: ", s->path, where);
	va_start(args, format);
	if (n > 0 && (size_t)n < s->error_bytes)
		vsnprintf(s->error + n, s->error_bytes - (size_t)n, format, args);
	va_end(args);
	return -EINVAL;
}

static int add(struct source *s, size_t line, double value)
{
	struct samples *to = s->to;

	if (!isfinite(value) || value <= 0.0)
		return refuse(s, line, "%g is not a time or a rate (expected above 0)", value);
	if (to->n == SAMPLES_MAX)
		return refuse(s, line, "more than %d values", SAMPLES_MAX);
	to->values = memory_resized(to->values, (to->n + 1) * sizeof(*to->values));
	to->values[to->n++] = value;
	return 0;
}

/* A decimal number that fills all n bytes, independent of the locale. */
static bool number_of(const char *text, size_t n, double *out)
{
	char copy[64];

	if (n > 0 && *text == '+') {
		text++;
		n--;
	}
	if (n == 0 || n >= sizeof(copy))
		return false;
	memcpy(copy, text, n);
	copy[n] = '\0';
	if (copy[strspn(copy, "0123456789.eE+-")] != '\0' || !strpbrk(copy, "0123456789"))
		return false;
	return spec_json_real(copy, out) == 0;
}

/* ---- numbers, one or several per line ---- */

/* A comma between two digits may be a decimal comma, unless the number has a decimal point. */
static bool is_ambiguous(const char *number, size_t n)
{
	return number[n] == ',' && strchr("0123456789", number[n + 1]) && number[n + 1] &&
		!memchr(number, '.', n);
}

static int read_numbers(struct source *s)
{
	static const char between[] = " \t\r,;";
	size_t line = 1;
	int rc = 0;

	for (char *at = s->text; *at && rc == 0;) {
		const size_t n = strcspn(at, " \t\r,;\n");
		double value;

		if (*at == '\n') {
			line++;
			at++;
		} else if (*at == '#') {
			at += strcspn(at, "\n");
		} else if (strchr(between, *at)) {
			at++;
		} else if (number_of(at, n, &value) && is_ambiguous(at, n)) {
			return refuse(s, line,
				"\"%.*s\" is one value or several (write a decimal point, or a "
				"blank after the comma between two values)",
				(int)strcspn(at, " \t\r\n;"), at);
		} else if (number_of(at, n, &value)) {
			rc = add(s, line, value);
			at += n;
		} else {
			return refuse(s, line,
				"\"%.*s\" is not a number (a CSV file needs FILE:COLUMN, JSON "
				"FILE:MEMBER, a log --pattern)",
				n < 40 ? (int)n : 40, at);
		}
	}
	return rc;
}

/* ---- CSV: the first line names the columns ---- */

enum { CSV_FIELD_MAX = 256 };

/* The next field of a line, without quotes; NULL after the last one. */
static char *next_field(char **at, char field[CSV_FIELD_MAX])
{
	const bool quoted = **at == '"';
	size_t n = 0;

	if (**at == '\0' || **at == '\n' || **at == '\r')
		return NULL;
	*at += quoted;
	for (; **at && **at != '\n' && **at != '\r' && (quoted || **at != ','); (*at)++) {
		if (quoted && **at == '"' && *++(*at) != '"')
			break;
		if (n + 1 < CSV_FIELD_MAX)
			field[n++] = **at;
	}
	field[n] = '\0';
	*at += **at == ',';
	return field;
}

static char *next_line(char *at)
{
	at += strcspn(at, "\n");
	return *at ? at + 1 : at;
}

static size_t fields_of(const char *line)
{
	bool quoted = false;
	size_t n = 1;

	for (; *line && *line != '\n'; line++) {
		quoted ^= *line == '"';
		n += !quoted && *line == ',';
	}
	return n;
}

static int no_column(struct source *s)
{
	char field[CSV_FIELD_MAX], list[CSV_FIELD_MAX] = "", *at = s->text;
	size_t used = 0;

	while (used < sizeof(list) && next_field(&at, field))
		used += (size_t)snprintf(
			list + used, sizeof(list) - used, "%s\"%s\"", used ? ", " : "", field);
	return refuse(s, 1, "no column \"%s\" (expected one of %s%s)", s->selector, list,
		used < sizeof(list) ? "" : "...");
}

static int read_csv(struct source *s)
{
	const size_t columns = fields_of(s->text);
	char field[CSV_FIELD_MAX], *at = s->text, *found;
	size_t column = 0, line = 1;
	int rc = 0;

	if (s->text[strspn(s->text, " \t\r\n")] == '\0')
		return 0;
	while ((found = next_field(&at, field)) && strcmp(found, s->selector) != 0)
		column++;
	if (!found)
		return no_column(s);
	for (at = next_line(s->text); *at && rc == 0; at = next_line(at)) {
		char *in = at;
		double value;

		line++;
		found = field;
		for (size_t i = 0; found && i <= column; i++)
			found = next_field(&in, field);
		if (!found && at[strspn(at, "\r\n")] == '\0')
			break;
		if (fields_of(at) != columns)
			return refuse(s, line,
				"%zu fields (expected %zu, as in line 1; numbers have a decimal "
				"point)",
				fields_of(at), columns);
		if (!found || !number_of(field, strlen(field), &value))
			return refuse(s, line, "column \"%s\": \"%s\" is not a number", s->selector,
				found ? field : "");
		rc = add(s, line, value);
	}
	return rc;
}

/* ---- JSON: one document, or one per line ---- */

/* The value at dotted members and array indices; NULL: none. */
static const json_t *follow(const json_t *value, const char *path)
{
	while (value && *path) {
		const size_t n = strcspn(path, ".");
		char key[CSV_FIELD_MAX];

		snprintf(key, sizeof(key), "%.*s", (int)n, path);
		value = json_is_array(value) ? json_array_get(value, strtoul(key, NULL, 10))
					     : json_object_get(value, key);
		path += n + (path[n] == '.');
	}
	return value;
}

static int add_json(struct source *s, size_t line, const json_t *value)
{
	const json_t *item;
	size_t i;
	int rc = 0;

	if (json_is_number(value))
		return add(s, line, json_number_value(value));
	if (!json_is_array(value))
		return refuse(s, line, "%s%sholds no number and no array of numbers",
			s->selector ? s->selector : "", s->selector ? ": " : "");
	json_array_foreach(value, i, item) {
		if (!json_is_number(item))
			return refuse(s, line, "item %zu is not a number", i + 1);
		rc = rc ? rc : add(s, line, json_number_value(item));
	}
	return rc;
}

/* hyperfine's export has the times of each of its commands. */
static int add_hyperfine(struct source *s, const json_t *root)
{
	const json_t *results = json_object_get(root, "results");

	if (!json_is_array(results))
		return refuse(
			s, 0, "JSON, but not hyperfine's (name a member: FILE:MEMBER.MEMBER)");
	if (json_array_size(results) != 1)
		return refuse(s, 0, "%zu commands (name one: FILE:results.0.times)",
			json_array_size(results));
	return add_json(s, 0, json_object_get(json_array_get(results, 0), "times"));
}

static int read_json(struct source *s)
{
	size_t at = 0, line = 1;
	int rc = 0;

	while (rc == 0 && s->text[at + strspn(s->text + at, " \t\r\n")] != '\0') {
		json_error_t why;
		json_t *root = json_loadb(s->text + at, s->n - at, JSON_DISABLE_EOF_CHECK, &why);
		const json_t *value;

		if (!root)
			return refuse(s, line + (size_t)(why.line > 0 ? why.line - 1 : 0), "%s",
				why.text);
		value = s->selector ? follow(root, s->selector) : NULL;
		if (s->selector && !value)
			rc = refuse(s, line, "no member \"%s\"", s->selector);
		else
			rc = s->selector              ? add_json(s, line, value)
				: json_is_array(root) ? add_json(s, line, root)
						      : add_hyperfine(s, root);
		for (size_t end = at + (size_t)why.position; at < end; at++)
			line += s->text[at] == '\n';
		json_decref(root);
	}
	return rc;
}

/* ---- logs ---- */

static int read_log(struct source *s, const struct samples_options *options)
{
	regex_t regex;
	regmatch_t group[2];
	double sum = 0.0, value;
	size_t steps = 0, line = 0;
	char why[128];
	int rc = regcomp(&regex, options->pattern, REG_EXTENDED | REG_NEWLINE);

	if (rc != 0) {
		regerror(rc, &regex, why, sizeof(why));
		snprintf(s->error, s->error_bytes, "--pattern: %s", why);
		return -EINVAL;
	}
	if (regex.re_nsub < 1) {
		regfree(&regex);
		snprintf(s->error, s->error_bytes,
			"--pattern: no group (put the number in parentheses)");
		return -EINVAL;
	}
	rc = 0;
	for (char *at = s->text, *end; *at && rc == 0; at = end) {
		end = next_line(at);
		line++;
		if (end > at && end[-1] == '\n')
			end[-1] = '\0';
		if (regexec(&regex, at, 2, group, 0) != 0)
			continue;
		if (!number_of(
			    at + group[1].rm_so, (size_t)(group[1].rm_eo - group[1].rm_so), &value))
			rc = refuse(s, line, "\"%.*s\" is not a number",
				(int)(group[1].rm_eo - group[1].rm_so), at + group[1].rm_so);
		else if (steps++ >= options->drop)
			sum += value;
	}
	regfree(&regex);
	if (rc)
		return rc;
	if (steps <= options->drop)
		return refuse(s, 0, "the pattern found %zu steps (expected more than --drop %zu)",
			steps, options->drop);
	return add(s, 0, sum / (double)(steps - options->drop));
}

/* ---- files ---- */

static int load(struct source *s)
{
	const int fd = open(s->path, O_RDONLY | O_CLOEXEC);
	int rc = fd < 0 ? -errno : file_read_all(fd, SAMPLES_FILE_BYTES_MAX, &s->text, &s->n);

	if (fd >= 0)
		close(fd);
	if (rc == -EFBIG)
		rc = refuse(s, 0, "more than %d MiB", SAMPLES_FILE_BYTES_MAX >> 20);
	else if (rc < 0)
		snprintf(s->error, s->error_bytes, "%s: %s", s->path, strerror(-rc));
	else if (memchr(s->text, '\0', s->n))
		rc = refuse(s, 0, "is not text (it holds a NUL byte)");
	return rc;
}

/* FILE, or FILE:SELECTOR if no file has the whole name. */
static void split(struct source *s, const char *name)
{
	char *colon;

	snprintf(s->path, sizeof(s->path), "%s", name);
	colon = strrchr(s->path, ':');
	if (access(s->path, F_OK) == 0 || !colon || !colon[1])
		return;
	*colon = '\0';
	s->selector = colon + 1;
}

int samples_read(struct samples *to, const char *name, const struct samples_options *options,
	char *error, size_t error_bytes)
{
	struct source s = {.to = to, .error = error, .error_bytes = error_bytes};
	const size_t before = to->n;
	int rc;

	split(&s, name);
	rc = load(&s);
	if (rc == 0) {
		const char first = s.text[strspn(s.text, " \t\r\n")];

		if (options->pattern)
			rc = read_log(&s, options);
		else if (first == '{' || first == '[')
			rc = read_json(&s);
		else
			rc = s.selector ? read_csv(&s) : read_numbers(&s);
	}
	if (rc == 0 && to->n == before)
		rc = refuse(&s, 0, "no value");
	free(s.text);
	return rc;
}

void samples_finish(struct samples *s)
{
	free(s->values);
	*s = (struct samples){0};
}
