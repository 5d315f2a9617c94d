#include "ctl/print/members.h"

#include <stdlib.h>
#include <string.h>

#include "ctl/print/format.h"
#include "proto/host/memory.h"

enum { NAME_BYTES = 64 };

/* The member of a dotted key; NULL: it does not exist. */
static const json_t *find(const json_t *object, const char *key)
{
	char name[NAME_BYTES];

	for (const char *dot; (dot = strchr(key, '.')) != NULL; key = dot + 1) {
		snprintf(name, sizeof(name), "%.*s", (int)(dot - key), key);
		object = json_object_get(object, name);
	}
	return json_object_get(object, key);
}

static char *format_ns(double ns, char out[FORMAT_BYTES])
{
	return format_duration(ns * 1e-9, out);
}

static char *format_share(double fraction, char out[FORMAT_BYTES])
{
	snprintf(out, FORMAT_BYTES, "%.1f%%", 100.0 * fraction);
	return out;
}

/* A number in one of the formats. */
static bool format_number(const json_t *value, const char *as, char out[FORMAT_BYTES])
{
	static const struct {
		const char *as;
		char *(*real)(double value, char out[FORMAT_BYTES]);
		char *(*whole)(int64_t value, char out[FORMAT_BYTES]);
	} formats[] = {
		{"size", NULL, format_size},
		{"count", NULL, format_count},
		{"si", format_si, NULL},
		{"duration", format_duration, NULL},
		{"ns", format_ns, NULL},
		{"signed", format_signed, NULL},
		{"p", format_p, NULL},
		{"share", format_share, NULL},
		{"loss", format_loss, NULL},
	};

	if (*as == '.' || as[strspn(as, "0123456789")] == 'g') {
		snprintf(out, FORMAT_BYTES, *as == '.' ? "%.*f" : "%.*g", atoi(as + (*as == '.')),
			json_number_value(value));
		return true;
	}
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
		if (strcmp(formats[i].as, as) != 0)
			continue;
		if (formats[i].real)
			formats[i].real(json_number_value(value), out);
		else
			formats[i].whole((int64_t)json_number_value(value), out);
		return true;
	}
	return false;
}

/* Prints the value; false: it is absent, or "". */
static bool print_value(FILE *to, const json_t *value, const char *as)
{
	char number[FORMAT_BYTES], *text;
	size_t most;

	if (strcmp(as, "s") == 0) {
		fputs(json_integer_value(value) == 1 ? "" : "s", to);
		return true;
	}
	if (json_is_number(value) && format_number(value, as, number)) {
		fputs(number, to);
		return true;
	}
	if (json_is_integer(value)) {
		fprintf(to, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
		return true;
	}
	if (!json_is_string(value) || json_string_length(value) == 0)
		return false;
	most = *as >= '0' && *as <= '9' ? (size_t)atoi(as) : json_string_length(value);
	text = memory_zeroed(1, most + 1);
	if (strcmp(as, "time") == 0)
		format_time(json_string_value(value), number);
	else
		term_clean(json_string_value(value), text, most + 1);
	fputs(strcmp(as, "time") == 0 ? number : text, to);
	free(text);
	return true;
}

/* Parses {KEY:AS|OTHERWISE} without the braces. */
static bool print_member(FILE *to, const json_t *object, const char *member, size_t n)
{
	char copy[NAME_BYTES], *key = copy, *otherwise, *as;

	snprintf(copy, sizeof(copy), "%.*s", (int)n, member);
	otherwise = strchr(copy, '|');
	if (otherwise)
		*otherwise++ = '\0';
	as = strchr(copy, ':');
	if (as)
		*as++ = '\0';
	if (print_value(to, find(object, key), as ? as : ""))
		return true;
	fputs(otherwise ? otherwise : "?", to);
	return false;
}

static char *text_of(const json_t *object, const char *format, const char *end, bool *shown);

/* Prints format up to end; false: a member is absent. */
static bool print(FILE *to, const json_t *object, const char *format, const char *end)
{
	bool whole = true;

	for (const char *close; format < end; format = close + 1) {
		close = format;
		if (*format == '{') {
			close = strchr(format, '}');
			whole &= print_member(to, object, format + 1, (size_t)(close - format) - 1);
		} else if (*format == '[') {
			bool shown;
			char *text;

			close = strchr(format, ']');
			text = text_of(object, format + 1, close, &shown);
			if (shown)
				fputs(text, to);
			free(text);
		} else {
			fputc(*format, to);
		}
	}
	return whole;
}

void members_print(FILE *to, const json_t *object, const char *format)
{
	print(to, object, format, format + strlen(format));
}

/* format up to end, as text; *shown: all members exist. The caller's. */
static char *text_of(const json_t *object, const char *format, const char *end, bool *shown)
{
	char *text;
	size_t n;
	FILE *to = memory_stream(&text, &n);

	*shown = print(to, object, format, end);
	memory_stream_end(to);
	return text;
}

char *members_text(const json_t *object, const char *format)
{
	bool shown;

	return text_of(object, format, format + strlen(format), &shown);
}

void members_cells(struct table *table, const json_t *object, const char *format)
{
	const char *end;
	bool shown;

	do {
		char *text;

		end = format + strcspn(format, "\t");
		text = text_of(object, format, end, &shown);
		table_cell(table, "%s", text);
		free(text);
		format = end + 1;
	} while (*end);
}

void members_table(const struct term *term, const char *indent, const json_t *rows,
	const char *columns, const char *cells)
{
	struct table table;
	const json_t *row;
	size_t i;

	table_init(&table);
	table_columns(&table, columns);
	json_array_foreach(rows, i, row)
		members_cells(&table, row, cells);
	table_print(&table, term, indent);
	table_finish(&table);
}
