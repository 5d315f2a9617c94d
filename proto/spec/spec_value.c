#include "proto/spec/spec_value.h"

#include <inttypes.h>
#include <string.h>

#include "proto/suggest.h"

enum { CHOICES_MAX = 16, SIZED_BYTES = 40 };

static bool expected(
	const char *what, const struct spec_json_node *node, char *message, size_t bytes)
{
	char found[96];

	snprintf(message, bytes, "%s expected, found %s", what,
		spec_json_describe(node, found, sizeof(found)));
	return false;
}

/* A number in quotes, as YAML and shell scripts often write it, is not read as a number. */
static bool number_expected(
	const char *what, const struct spec_json_node *node, char *message, size_t bytes)
{
	double ignored;

	expected(what, node, message, bytes);
	if (node->type == SPEC_JSON_STRING && *node->text &&
		node->text[strspn(node->text, "0123456789.eE+-")] == '\0' &&
		spec_json_real(node->text, &ignored) == 0)
		snprintf(message + strlen(message), bytes - strlen(message),
			"; write it without quotes");
	return false;
}

/* "1.5G" as the JSON number "1.5e9"; false: the text is not a size. */
static bool size_number(const char *text, char number[SIZED_BYTES])
{
	static const struct {
		char letter;
		int power;
	} units[] = {{'K', 3}, {'M', 6}, {'G', 9}};
	size_t n = strspn(text, "0123456789"), more;

	if (n == 0 || (text[0] == '0' && n > 1) || strlen(text) + 2 > SIZED_BYTES)
		return false;
	if (text[n] == '.') {
		more = strspn(text + n + 1, "0123456789");
		n = more ? n + 1 + more : 0;
	}
	for (size_t i = 0; n > 0 && i < sizeof(units) / sizeof(units[0]); i++) {
		if (text[n] == units[i].letter && text[n + 1] == '\0') {
			snprintf(number, SIZED_BYTES, "%.*se%d", (int)n, text, units[i].power);
			return true;
		}
	}
	return false;
}

static bool read_int(const struct spec_row *row, const struct spec_json_node *node, int64_t *out,
	char *message, size_t bytes)
{
	char size[SIZED_BYTES];
	const bool sized =
		row->size && node->type == SPEC_JSON_STRING && size_number(node->text, size);
	enum spec_json_integer whole;
	int64_t v = 0;

	if (node->type != SPEC_JSON_NUMBER && !sized)
		return number_expected(row->size && node->type == SPEC_JSON_STRING
				? "whole number or a size such as \"200M\" (K, M, G: 1e3, 1e6, 1e9)"
				: "whole number",
			node, message, bytes);
	whole = spec_json_int64(sized ? size : node->text, &v);
	if (whole == SPEC_JSON_FRACTION) {
		snprintf(message, bytes, "%.40s is no whole number", node->text);
		return false;
	}
	if (whole == SPEC_JSON_TOO_BIG || v < row->min || v > row->max) {
		bool low = whole == SPEC_JSON_TOO_BIG ? node->text[0] == '-' : v < row->min;

		snprintf(message, bytes, "%.40s is not allowed, at %s %" PRId64, node->text,
			low ? "least" : "most", low ? row->min : row->max);
		return false;
	}
	*out = v;
	return true;
}

static bool read_real(const struct spec_row *row, const struct spec_json_node *node, double *out,
	char *message, size_t bytes)
{
	char limit[SPEC_JSON_REAL_BYTES];
	double v;

	if (node->type != SPEC_JSON_NUMBER)
		return number_expected("number", node, message, bytes);
	if (spec_json_real(node->text, &v)) {
		snprintf(message, bytes, "%.40s is beyond a double's range", node->text);
		return false;
	}
	if (v < row->low || (row->above_low && v == row->low)) {
		spec_json_format_real(row->low, limit);
		snprintf(message, bytes, "%.40s is not allowed, %s %s", node->text,
			row->above_low ? "above" : "at least", limit);
		return false;
	}
	if (v > row->high || (row->below_high && v == row->high)) {
		spec_json_format_real(row->high, limit);
		snprintf(message, bytes, "%.40s is not allowed, %s %s", node->text,
			row->below_high ? "below" : "at most", limit);
		return false;
	}
	*out = v;
	return true;
}

static bool read_betas(const struct spec_row *row, const struct spec_json *json,
	const struct spec_json_node *node, double out[2], char *message, size_t bytes)
{
	const struct spec_json_node *first;

	if (node->type != SPEC_JSON_ARRAY)
		return expected("an array of two numbers", node, message, bytes);
	if (node->children != 2) {
		snprintf(message, bytes, "an array of two numbers expected, found %u of them",
			(unsigned)node->children);
		return false;
	}
	first = &json->node[node->child];
	return read_real(row, first, &out[0], message, bytes) &&
		read_real(row, &json->node[first->next], &out[1], message, bytes);
}

static bool read_choice(const struct spec_row *row, const struct spec_json_node *node, int *out,
	char *message, size_t bytes)
{
	const char *names[CHOICES_MAX] = {NULL}, *near;
	char list[160] = "";
	size_t n = 0, used = 0;

	for (const struct spec_choice *c = row->choices; c->name; c++) {
		if (node->type == SPEC_JSON_STRING && !strcmp(c->name, node->text)) {
			*out = c->value;
			return true;
		}
		used += (size_t)snprintf(
			list + used, sizeof(list) - used, "%s\"%s\"", n ? ", " : "", c->name);
		names[n++] = c->name;
	}
	if (node->type != SPEC_JSON_STRING) {
		char what[200];

		snprintf(what, sizeof(what), "%s%s", n > 1 ? "one of " : "", list);
		return expected(what, node, message, bytes);
	}
	near = suggest_nearest(node->text, names, n);
	snprintf(message, bytes, "\"%.40s\" is not allowed, %s%s%s%s%s", node->text,
		n > 1 ? "one of " : "only ", list, near && n > 1 ? "; did you mean \"" : "",
		near && n > 1 ? near : "", near && n > 1 ? "\"?" : "");
	return false;
}

static bool read_path(
	const struct spec_json_node *node, const char **out, char *message, size_t bytes)
{
	if (node->type != SPEC_JSON_STRING)
		return expected("a path, in quotes,", node, message, bytes);
	if (!*node->text) {
		snprintf(message, bytes, "an empty path is not allowed");
		return false;
	}
	if (strlen(node->text) >= SPEC_PATH_MAX) {
		snprintf(message, bytes, "a path of %zu bytes, at most %d", strlen(node->text),
			SPEC_PATH_MAX - 1);
		return false;
	}
	for (const char *p = node->text; *p; p++) {
		if ((unsigned char)*p < 0x20 || *p == 0x7f) {
			snprintf(message, bytes, "control character 0x%02x in a path",
				(unsigned char)*p);
			return false;
		}
	}
	*out = node->text;
	return true;
}

/* A number is an ID, and digits in quotes too. */
static bool read_run(
	const struct spec_json_node *node, const char **out, char *message, size_t bytes)
{
	const bool number = node->type == SPEC_JSON_NUMBER;

	if (!number && node->type != SPEC_JSON_STRING)
		return expected("the ID of a run, or a path in quotes,", node, message, bytes);
	if (!number && node->text[strspn(node->text, "0123456789")] != '\0')
		return read_path(node, out, message, bytes);
	if (spec_run_id(node->text) < 1) {
		snprintf(message, bytes, "\"%.40s\" is no run's ID: a whole number from 1",
			node->text);
		return false;
	}
	*out = node->text;
	return true;
}

static bool read_name(
	const struct spec_json_node *node, const char **out, char *message, size_t bytes)
{
	const char *wrong;

	if (node->type != SPEC_JSON_STRING)
		return expected("string", node, message, bytes);
	wrong = spec_table_name_wrong(node->text);
	if (wrong) {
		snprintf(message, bytes, "\"%.70s\": %s", node->text, wrong);
		return false;
	}
	*out = node->text;
	return true;
}

static bool read_bool(const struct spec_json_node *node, bool *out, char *message, size_t bytes)
{
	if (node->type != SPEC_JSON_TRUE && node->type != SPEC_JSON_FALSE)
		return expected("true or false", node, message, bytes);
	*out = node->type == SPEC_JSON_TRUE;
	return true;
}

bool spec_value_read(const struct spec_row *row, const struct spec_json *json,
	const struct spec_json_node *node, struct spec_value *value, char *message, size_t bytes)
{
	switch (row->type) {
	case SPEC_TYPE_BOOL:
		return read_bool(node, &value->b, message, bytes);
	case SPEC_TYPE_INT:
		return read_int(row, node, &value->i, message, bytes);
	case SPEC_TYPE_REAL:
		return read_real(row, node, &value->real[0], message, bytes);
	case SPEC_TYPE_BETAS:
		return read_betas(row, json, node, value->real, message, bytes);
	case SPEC_TYPE_CHOICE:
		return read_choice(row, node, &value->choice, message, bytes);
	case SPEC_TYPE_NAME:
		return read_name(node, &value->s, message, bytes);
	case SPEC_TYPE_PATH:
		return read_path(node, &value->s, message, bytes);
	case SPEC_TYPE_RUN:
		return read_run(node, &value->s, message, bytes);
	default:
		snprintf(message, bytes, "has no value of its own");
		return false;
	}
}

static size_t field_bytes(const struct spec_row *row)
{
	static const size_t bytes[] = {
		[SPEC_TYPE_BOOL] = sizeof(bool),
		[SPEC_TYPE_INT] = sizeof(int64_t),
		[SPEC_TYPE_REAL] = sizeof(double),
		[SPEC_TYPE_BETAS] = 2 * sizeof(double),
		[SPEC_TYPE_CHOICE] = sizeof(int),
		[SPEC_TYPE_NAME] = SPEC_NAME_MAX + 1,
		[SPEC_TYPE_PATH] = SPEC_PATH_MAX,
		[SPEC_TYPE_RUN] = SPEC_PATH_MAX,
	};

	return bytes[row->type];
}

static bool is_text(const struct spec_row *row)
{
	return row->type == SPEC_TYPE_NAME || row->type == SPEC_TYPE_PATH ||
		row->type == SPEC_TYPE_RUN;
}

void spec_value_store(const struct spec_row *row, const struct spec_value *value, void *field)
{
	if (is_text(row)) {
		memset(field, 0, field_bytes(row));
		memcpy(field, value->s, strlen(value->s));
	} else {
		memcpy(field, &value->i, field_bytes(row));
	}
}

bool spec_value_same(const struct spec_row *row, const void *a, const void *b)
{
	return !memcmp(a, b, field_bytes(row));
}

bool spec_value_empty(const struct spec_row *row, const void *field)
{
	const char *bytes = field;

	if (is_text(row))
		return bytes[0] == '\0';
	for (size_t i = 0; i < field_bytes(row); i++)
		if (bytes[i])
			return false;
	return true;
}

void spec_value_print_string(const char *s, FILE *out)
{
	putc('"', out);
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			fprintf(out, "\\%c", *s);
		else if ((unsigned char)*s < 0x20)
			fprintf(out, "\\u%04x", (unsigned char)*s);
		else
			putc(*s, out);
	}
	putc('"', out);
}

void spec_value_print(const struct spec_row *row, const void *field, FILE *out)
{
	char a[SPEC_JSON_REAL_BYTES], b[SPEC_JSON_REAL_BYTES];
	int64_t i;
	double real[2];
	int choice;
	bool flag;

	switch (row->type) {
	case SPEC_TYPE_BOOL:
		memcpy(&flag, field, sizeof(flag));
		fputs(flag ? "true" : "false", out);
		break;
	case SPEC_TYPE_INT:
		memcpy(&i, field, sizeof(i));
		fprintf(out, "%" PRId64, i);
		break;
	case SPEC_TYPE_REAL:
		memcpy(real, field, sizeof(real[0]));
		spec_json_format_real(real[0], a);
		fputs(a, out);
		break;
	case SPEC_TYPE_BETAS:
		memcpy(real, field, sizeof(real));
		spec_json_format_real(real[0], a);
		spec_json_format_real(real[1], b);
		fprintf(out, "[%s, %s]", a, b);
		break;
	case SPEC_TYPE_CHOICE:
		memcpy(&choice, field, sizeof(choice));
		spec_value_print_string(spec_table_choice(row->choices, choice), out);
		break;
	case SPEC_TYPE_RUN:
		if (spec_run_id(field))
			fputs(field, out);
		else
			spec_value_print_string(field, out);
		break;
	default:
		spec_value_print_string(field, out);
		break;
	}
}
