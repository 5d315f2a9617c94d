/* The table as JSON Schema and as manual text. */
#include "proto/spec/spec.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "proto/spec/spec_table.h"
#include "proto/spec/spec_value.h"

struct docs {
	FILE *out;
	int depth;
	bool arm; /* the keys an arm may hold: none is required, none has a default */
};

static void line(const struct docs *d, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static void line(const struct docs *d, const char *format, ...)
{
	va_list args;

	for (int i = 0; i < d->depth; i++)
		fputs("  ", d->out);
	va_start(args, format);
	vfprintf(d->out, format, args);
	va_end(args);
	putc('\n', d->out);
}

static void text_line(const struct docs *d, const char *key, const char *text)
{
	for (int i = 0; i < d->depth; i++)
		fputs("  ", d->out);
	fprintf(d->out, "\"%s\": ", key);
	spec_value_print_string(text, d->out);
	fputs(",\n", d->out);
}

/* ---- JSON Schema; in every object the last member is written without a comma ---- */

static void schema_real_range(const struct docs *d, const struct spec_row *row)
{
	char low[SPEC_JSON_REAL_BYTES], high[SPEC_JSON_REAL_BYTES];

	spec_json_format_real(row->low, low);
	spec_json_format_real(row->high, high);
	line(d, "\"%s\": %s,", row->above_low ? "exclusiveMinimum" : "minimum", low);
	line(d, "\"%s\": %s", row->below_high ? "exclusiveMaximum" : "maximum", high);
}

static void schema_int(struct docs *d, const struct spec_row *row)
{
	if (row->size) {
		line(d, "\"anyOf\": [{");
		d->depth++;
	}
	line(d, "\"type\": \"integer\",");
	line(d, "\"minimum\": %" PRId64 ",", row->min);
	line(d, "\"maximum\": %" PRId64, row->max);
	if (row->size) {
		d->depth--;
		line(d,
			"}, {\"type\": \"string\", \"pattern\": "
			"\"^(0|[1-9][0-9]*)(\\\\.[0-9]+)?[KMG]$\"}]");
	}
}

static void schema_choices(const struct docs *d, const struct spec_choice *choices)
{
	fprintf(d->out, "%*s\"enum\": [", 2 * d->depth, "");
	for (const struct spec_choice *c = choices; c->name; c++)
		fprintf(d->out, "%s\"%s\"", c == choices ? "" : ", ", c->name);
	fputs("]\n", d->out);
}

/* type and range: the last members of a key's schema */
static void schema_type(struct docs *d, const struct spec_row *row)
{
	switch (row->type) {
	case SPEC_TYPE_BOOL:
		line(d, "\"type\": \"boolean\"");
		break;
	case SPEC_TYPE_INT:
		schema_int(d, row);
		break;
	case SPEC_TYPE_REAL:
		line(d, "\"type\": \"number\",");
		schema_real_range(d, row);
		break;
	case SPEC_TYPE_BETAS:
		line(d, "\"type\": \"array\",");
		line(d, "\"minItems\": 2,");
		line(d, "\"maxItems\": 2,");
		line(d, "\"items\": {");
		d->depth++;
		line(d, "\"type\": \"number\",");
		schema_real_range(d, row);
		d->depth--;
		line(d, "}");
		break;
	case SPEC_TYPE_CHOICE:
		schema_choices(d, row->choices);
		break;
	case SPEC_TYPE_NAME:
		line(d, "\"type\": \"string\",");
		line(d, "\"pattern\": \"^[A-Za-z0-9_][A-Za-z0-9._-]{0,%d}$\"", SPEC_NAME_MAX - 1);
		break;
	case SPEC_TYPE_RUN:
		line(d, "\"type\": [\"integer\", \"string\"],");
		line(d, "\"minimum\": 1,");
		line(d, "\"minLength\": 1,");
		line(d, "\"maxLength\": %d", SPEC_PATH_MAX - 1);
		break;
	default:
		line(d, "\"type\": \"string\",");
		line(d, "\"minLength\": 1,");
		line(d, "\"maxLength\": %d", SPEC_PATH_MAX - 1);
		break;
	}
}

static void schema_object(struct docs *d, const char *object);

static void schema_arms(struct docs *d)
{
	line(d, "\"type\": \"object\",");
	line(d, "\"minProperties\": 1,");
	line(d, "\"properties\": {\"comment\": true},");
	line(d, "\"patternProperties\": {");
	line(d, "  \"^x_\": true,");
	line(d,
		"  \"^(?!x_|comment$)[A-Za-z0-9_][A-Za-z0-9._-]{0,%d}$\": {\"$ref\": "
		"\"#/$defs/arm\"}",
		SPEC_NAME_MAX - 1);
	line(d, "},");
	line(d, "\"additionalProperties\": false");
}

/* exactly_one: the keys that lead the work group */
static void schema_one_work(struct docs *d)
{
	bool first = true;

	fprintf(d->out, "%*s\"oneOf\": [", 2 * d->depth, "");
	for (size_t i = 0; i < SPEC_KEY_COUNT; i++) {
		if (spec_table[i].group != SPEC_GROUP_WORK)
			continue;
		fprintf(d->out, "%s{\"required\": [\"%s\"]}", first ? "" : ", ",
			spec_table_last(&spec_table[i]));
		first = false;
	}
	fputs("],\n", d->out);
}

static void schema_key(struct docs *d, const struct spec_row *row, const char *name, bool last)
{
	line(d, "\"%s\": {", name);
	d->depth++;
	text_line(d, "description", row->help);
	if (row->fallback && !d->arm)
		line(d, "\"default\": %s,", row->fallback);
	if (row->type == SPEC_TYPE_ARMS) {
		schema_arms(d);
	} else if (row->type == SPEC_TYPE_SWEEP) {
		line(d, "\"type\": \"object\",");
		line(d, "\"minProperties\": 1,");
		line(d, "\"additionalProperties\": {\"type\": \"array\", \"minItems\": 1}");
	} else if (row->type != SPEC_TYPE_OBJECT) {
		schema_type(d, row);
	} else if (row->shorthand) {
		line(d, "\"anyOf\": [{");
		d->depth++;
		schema_choices(d, spec_table[row->shorthand].choices);
		d->depth--;
		line(d, "}, {");
		d->depth++;
		schema_object(d, row->key);
		d->depth--;
		line(d, "}]");
	} else {
		if (row - spec_table == SPEC_KEY_WORK && !d->arm)
			schema_one_work(d);
		schema_object(d, row->key);
	}
	d->depth--;
	line(d, last ? "}" : "},");
}

static bool schema_has(const struct docs *d, const struct spec_row *row, const char *object)
{
	bool dotted = d->arm && !*object && strchr(row->key, '.') && row->type != SPEC_TYPE_OBJECT;

	return (spec_table_inside(row, object) || dotted) &&
		!(d->arm && row->scope == SPEC_SCOPE_RUN);
}

static void schema_required(const struct docs *d, const char *object)
{
	bool first = true;

	if (d->arm || *object)
		return;
	fprintf(d->out, "%*s\"required\": [", 2 * d->depth, "");
	for (size_t i = 0; i < SPEC_KEY_COUNT; i++) {
		if (!spec_table[i].required)
			continue;
		fprintf(d->out, "%s\"%s\"", first ? "" : ", ", spec_table[i].key);
		first = false;
	}
	fputs("],\n", d->out);
}

static void schema_object(struct docs *d, const char *object)
{
	line(d, "\"type\": \"object\",");
	schema_required(d, object);
	line(d, "\"properties\": {");
	d->depth++;
	for (size_t i = 0; i < SPEC_KEY_COUNT; i++) {
		const struct spec_row *row = &spec_table[i];

		/* dotted keys of an arm go by their whole path */
		if (schema_has(d, row, object))
			schema_key(d, row, *object ? spec_table_last(row) : row->key, false);
	}
	line(d, "\"comment\": true");
	d->depth--;
	line(d, "},");
	line(d, "\"patternProperties\": {\"^x_\": true},");
	line(d, "\"additionalProperties\": false");
}

void spec_print_schema(FILE *out)
{
	struct docs d = {.out = out};

	line(&d, "{");
	d.depth++;
	line(&d, "\"$schema\": \"https://json-schema.org/draft/2020-12/schema\",");
	line(&d, "\"title\": \"gpt2d run spec\",");
	line(&d, "\"$defs\": {");
	d.depth++;
	line(&d, "\"arm\": {");
	d.depth++;
	d.arm = true;
	schema_object(&d, "");
	d.arm = false;
	d.depth--;
	line(&d, "}");
	d.depth--;
	line(&d, "},");
	schema_object(&d, "");
	d.depth--;
	line(&d, "}");
}

/* ---- manual ---- */

/* Text that mdoc takes as text, each sentence on a line of its own. */
static void man_text(FILE *out, const char *text)
{
	if (*text == '.' || *text == '\'')
		fputs("\\&", out);
	for (; *text; text++) {
		if (text[0] == '.' && text[1] == ' ' && text[2] != '.')
			fputs(*++text ? ".\n" : ".", out);
		else if (*text == '\\')
			fputs("\\e", out);
		else if (*text == '-')
			fputs("\\-", out);
		else
			putc(*text, out);
	}
}

static void man_range(FILE *out, const struct spec_row *row)
{
	char low[SPEC_JSON_REAL_BYTES], high[SPEC_JSON_REAL_BYTES];

	switch (row->type) {
	case SPEC_TYPE_BOOL:
		fputs("true or false", out);
		break;
	case SPEC_TYPE_INT:
		fprintf(out, "whole number%s, %" PRId64 " to %" PRId64,
			row->size ? ", or a string such as \"500M\"" : "", row->min, row->max);
		break;
	case SPEC_TYPE_REAL:
	case SPEC_TYPE_BETAS:
		spec_json_format_real(row->low, low);
		spec_json_format_real(row->high, high);
		fprintf(out, "%s %s %s and %s %s",
			row->type == SPEC_TYPE_BETAS ? "array of two numbers, each" : "number,",
			row->above_low ? "above" : "at least", low,
			row->below_high ? "below" : "at most", high);
		break;
	case SPEC_TYPE_CHOICE:
		for (const struct spec_choice *c = row->choices; c->name; c++) {
			fputs(c == row->choices ? "" : ", ", out);
			putc('"', out);
			man_text(out, c->name);
			putc('"', out);
		}
		break;
	case SPEC_TYPE_NAME:
		fputs("name", out);
		break;
	case SPEC_TYPE_PATH:
		fputs("path", out);
		break;
	case SPEC_TYPE_RUN:
		fputs("the ID of a run, or a path", out);
		break;
	default:
		fputs("object", out);
		break;
	}
}

void spec_print_man(FILE *out)
{
	for (size_t i = 0; i < SPEC_KEY_COUNT; i++) {
		const struct spec_row *row = &spec_table[i];

		fputs(".It Ic ", out);
		man_text(out, row->key);
		fputs("\n(", out);
		man_range(out, row);
		if (row->fallback || row->fallback_help) {
			fputs("; default: ", out);
			man_text(out, row->fallback ? row->fallback : row->fallback_help);
		}
		if (row->required)
			fputs("; required", out);
		fputs(")\n", out);
		man_text(out, row->help);
		putc('\n', out);
	}
}
