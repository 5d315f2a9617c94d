/* The table as JSON Schema and as manual text. */
#include "proto/spec/spec.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "proto/host/memory.h"
#include "proto/schema/man_page.h"
#include "proto/spec/spec_table.h"
#include "proto/spec/spec_value.h"

/* ---- JSON Schema ---- */

static json_t *real_schema(const struct spec_row *row)
{
	return json_pack("{s:s, s:f, s:f}", "type", "number",
		row->above_low ? "exclusiveMinimum" : "minimum", row->low,
		row->below_high ? "exclusiveMaximum" : "maximum", row->high);
}

static json_t *int_schema(const struct spec_row *row)
{
	json_t *number = json_pack("{s:s, s:I, s:I}", "type", "integer", "minimum",
		(json_int_t)row->min, "maximum", (json_int_t)row->max);

	if (!row->size)
		return number;
	return json_pack("{s:[o, {s:s, s:s}]}", "anyOf", number, "type", "string", "pattern",
		"^(0|[1-9][0-9]*)(\\.[0-9]+)?[KMG]$");
}

static json_t *choices_schema(const struct spec_choice *choices)
{
	json_t *names = json_array();

	for (const struct spec_choice *c = choices; c->name; c++)
		json_array_append_new(names, json_string(c->name));
	return json_pack("{s:o}", "enum", names);
}

static json_t *type_schema(const struct spec_row *row)
{
	switch (row->type) {
	case SPEC_TYPE_BOOL:
		return json_pack("{s:s}", "type", "boolean");
	case SPEC_TYPE_INT:
		return int_schema(row);
	case SPEC_TYPE_REAL:
		return real_schema(row);
	case SPEC_TYPE_BETAS:
		return json_pack("{s:s, s:i, s:i, s:o}", "type", "array", "minItems", 2, "maxItems",
			2, "items", real_schema(row));
	case SPEC_TYPE_CHOICE:
		return choices_schema(row->choices);
	case SPEC_TYPE_NAME:
		return json_pack("{s:s, s:o}", "type", "string", "pattern",
			json_sprintf("^[A-Za-z0-9_][A-Za-z0-9._-]{0,%d}$", SPEC_NAME_MAX - 1));
	case SPEC_TYPE_RUN:
		return json_pack("{s:[s, s], s:i, s:i, s:i}", "type", "integer", "string",
			"minimum", 1, "minLength", 1, "maxLength", SPEC_PATH_MAX - 1);
	default:
		return json_pack("{s:s, s:i, s:i}", "type", "string", "minLength", 1, "maxLength",
			SPEC_PATH_MAX - 1);
	}
}

static json_t *arms_schema(void)
{
	json_t *patterns = json_pack("{s:b}", "^x_", 1);
	char *name = memory_printed(
		"^(?!x_|comment$)[A-Za-z0-9_][A-Za-z0-9._-]{0,%d}$", SPEC_NAME_MAX - 1);

	json_object_set_new(patterns, name, json_pack("{s:s}", "$ref", "#/$defs/arm"));
	free(name);
	return json_pack("{s:s, s:i, s:{s:b}, s:o, s:b}", "type", "object", "minProperties", 1,
		"properties", "comment", 1, "patternProperties", patterns, "additionalProperties",
		0);
}

/* Exactly one of the leading keys of the work group. */
static json_t *one_work(void)
{
	json_t *keys = json_array();

	for (size_t i = 0; i < SPEC_KEY_COUNT; i++)
		if (spec_table[i].group == SPEC_GROUP_WORK)
			json_array_append_new(keys,
				json_pack("{s:[s]}", "required", spec_table_last(&spec_table[i])));
	return keys;
}

static json_t *object_schema(const char *object, bool arm);

/* arm: the keys that an arm may have: none is required, none has a default. */
static json_t *key_schema(const struct spec_row *row, bool arm)
{
	json_t *schema = json_pack("{s:s}", "description", row->help);
	json_t *type;

	if (row->fallback && !arm)
		json_object_set_new(
			schema, "default", json_loads(row->fallback, JSON_DECODE_ANY, NULL));
	if (row - spec_table == SPEC_KEY_WORK && !arm)
		json_object_set_new(schema, "oneOf", one_work());
	if (row->type == SPEC_TYPE_ARMS)
		type = arms_schema();
	else if (row->type == SPEC_TYPE_SWEEP)
		type = json_pack("{s:s, s:i, s:{s:s, s:i}}", "type", "object", "minProperties", 1,
			"additionalProperties", "type", "array", "minItems", 1);
	else if (row->type != SPEC_TYPE_OBJECT)
		type = type_schema(row);
	else if (row->shorthand)
		type = json_pack("{s:[o, o]}", "anyOf",
			choices_schema(spec_table[row->shorthand].choices),
			object_schema(row->key, arm));
	else
		type = object_schema(row->key, arm);
	json_object_update_new(schema, type);
	return schema;
}

static json_t *object_schema(const char *object, bool arm)
{
	json_t *required = json_array(), *properties = json_object();
	json_t *schema = json_pack("{s:s}", "type", "object");

	for (size_t i = 0; i < SPEC_KEY_COUNT; i++) {
		const struct spec_row *row = &spec_table[i];
		/* dotted keys of an arm use their whole path */
		const bool dotted =
			arm && !*object && strchr(row->key, '.') && row->type != SPEC_TYPE_OBJECT;

		if (row->required)
			json_array_append_new(required, json_string(row->key));
		if ((spec_table_inside(row, object) || dotted) &&
			!(arm && row->scope == SPEC_SCOPE_RUN))
			json_object_set_new(properties, *object ? spec_table_last(row) : row->key,
				key_schema(row, arm));
	}
	json_object_set_new(properties, "comment", json_true());
	if (!arm && !*object)
		json_object_set(schema, "required", required);
	json_decref(required);
	json_object_update_new(schema,
		json_pack("{s:o, s:{s:b}, s:b}", "properties", properties, "patternProperties",
			"^x_", 1, "additionalProperties", 0));
	return schema;
}

void spec_print_schema(FILE *out)
{
	json_t *schema = json_pack("{s:s, s:s, s:{s:o}}", "$schema",
		"https://json-schema.org/draft/2020-12/schema", "title", "gpt2d run spec", "$defs",
		"arm", object_schema("", true));

	json_object_update_new(schema, object_schema("", false));
	json_dumpf(schema, out, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
	fputc('\n', out);
	json_decref(schema);
}

/* ---- manual ---- */

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
			man_page_text(out, c->name);
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
		man_page_text(out, row->key);
		fputs("\n(", out);
		man_range(out, row);
		if (row->fallback || row->fallback_help) {
			fputs("; default: ", out);
			man_page_text(out, row->fallback ? row->fallback : row->fallback_help);
		}
		if (row->required)
			fputs("; required", out);
		fputs(")\n", out);
		man_page_text(out, row->help);
		putc('\n', out);
	}
}
