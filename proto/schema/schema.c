#include "proto/schema/schema.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

#define DEFS "$defs"

static bool is_object_row(const struct schema_row *row)
{
	return row->type[0] == '#';
}

static bool is_object_name(const struct schema_document *d, const char *name, size_t n)
{
	for (size_t t = 0; d->tables[t]; t++)
		for (const struct schema_row *row = d->tables[t]; row->key; row++)
			if (is_object_row(row) && strlen(row->key) == n &&
				strncmp(row->key, name, n) == 0)
				return true;
	return false;
}

/* ---- types ---- */

static const struct {
	const char *name, *schema;
} basics[] = {
	{"int", "{\"type\": \"integer\"}"},
	{"count", "{\"type\": \"integer\", \"minimum\": 0}"},
	{"real", "{\"type\": \"number\"}"},
	{"text", "{\"type\": \"string\"}"},
	{"bool", "{\"type\": \"boolean\"}"},
	{"null", "{\"type\": \"null\"}"},
	{"any", "{}"},
	{"object", "{\"type\": \"object\"}"},
	{"sha256", "{\"type\": \"string\", \"pattern\": \"^[0-9a-f]{64}$\"}"},
	{"time",
		"{\"type\": \"string\", \"pattern\": "
		"\"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{3})?Z$\"}"},
};

static size_t find_basic(const char *type, size_t n)
{
	size_t i = 0;

	while (i < sizeof(basics) / sizeof(basics[0]) &&
		(strlen(basics[i].name) != n || strncmp(basics[i].name, type, n) != 0))
		i++;
	return i;
}

/* How much of type stands before a | that is in no bracket. */
static size_t first_of(const char *type, size_t n)
{
	int depth = 0;

	for (size_t i = 0; i < n; i++) {
		depth += type[i] == '[' || type[i] == '{';
		depth -= type[i] == ']' || type[i] == '}';
		if (type[i] == '|' && depth == 0)
			return i;
	}
	return n;
}

/* A fragment of a URI: a blank is %20. */
static json_t *reference(const char *name, size_t n)
{
	char fragment[128] = "#/" DEFS "/";
	size_t used = strlen(fragment);

	for (size_t i = 0; i < n && used + 4 < sizeof(fragment); i++)
		used += (size_t)snprintf(fragment + used, sizeof(fragment) - used, "%s%.*s",
			name[i] == ' ' ? "%20" : "", name[i] != ' ', name + i);
	return json_pack("{s:s}", "$ref", fragment);
}

static json_t *schema_of(const struct schema_document *d, const char *type, size_t n);

static json_t *words_schema(const char *words, size_t n)
{
	json_t *list = json_array();

	for (size_t at = 0; at < n;) {
		const char *comma = memchr(words + at, ',', n - at);
		const size_t length = comma ? (size_t)(comma - words) - at : n - at;

		json_array_append_new(list, json_stringn(words + at, length));
		at += length + 1;
	}
	return json_pack("{s:o}", "enum", list);
}

static json_t *one_schema(const struct schema_document *d, const char *type, size_t n)
{
	const size_t basic = find_basic(type, n);

	if (basic < sizeof(basics) / sizeof(basics[0]))
		return json_loads(basics[basic].schema, 0, NULL);
	if (n > 1 && type[0] == '=')
		return words_schema(type + 1, n - 1);
	if (n > 2 && type[0] == '[' && type[n - 1] == ']')
		return json_pack(
			"{s:s, s:o}", "type", "array", "items", schema_of(d, type + 1, n - 2));
	if (n > 2 && type[0] == '{' && type[n - 1] == '}')
		return json_pack("{s:s, s:o}", "type", "object", "additionalProperties",
			schema_of(d, type + 1, n - 2));
	if (is_object_name(d, type, n))
		return reference(type, n);
	return NULL;
}

static json_t *schema_of(const struct schema_document *d, const char *type, size_t n)
{
	size_t part = first_of(type, n);
	json_t *list;

	if (part == n)
		return one_schema(d, type, n);
	list = json_array();
	for (size_t at = 0; at < n; at += part + 1) {
		part = first_of(type + at, n - at);
		if (json_array_append_new(list, one_schema(d, type + at, part)) != 0) {
			json_decref(list);
			return NULL;
		}
	}
	return json_pack("{s:o}", "anyOf", list);
}

/* ---- objects ---- */

static int add_member(const struct schema_document *d, json_t *object, const char *key,
	const char *type, const char *help)
{
	const bool optional = type[0] == '?';
	json_t *schema = schema_of(d, type + optional, strlen(type + optional));

	if (schema && *help)
		json_object_set_new(schema, "description", json_string(help));
	if (json_object_set_new(json_object_get(object, "properties"), key, schema) != 0) {
		fprintf(stderr, "%s: no such type: %s\n", key, type);
		return -EINVAL;
	}
	if (!optional)
		json_array_append_new(json_object_get(object, "required"), json_string(key));
	return 0;
}

static json_t *empty_object(const char *help)
{
	return json_pack("{s:s, s:s, s:{}, s:[], s:b}", "type", "object", "description", help,
		"properties", "required", "additionalProperties", 0);
}

/* The members that every event has in front, and as a line of gpt2ctl the run's name. */
static int begin_event(const struct schema_document *d, json_t *object)
{
	return add_member(d, object, "id", "count", "of the run") != 0 ||
			add_member(d, object, "seq", "count",
				"the event's number, one more than that before") != 0 ||
			add_member(d, object, "at", "time", "") != 0 ||
			(d->lines && add_member(d, object, "name", "?text", "of the run") != 0)
		? -EINVAL
		: 0;
}

static int begin_line(const struct schema_document *d, json_t *object, const char *kind)
{
	json_t *properties = json_object_get(object, "properties");
	json_t *required = json_object_get(object, "required");

	json_object_set_new(properties, "schema", json_pack("{s:i}", "const", d->lines_version));
	json_object_set_new(properties, "kind", json_pack("{s:s}", "const", kind));
	json_array_append_new(required, json_string("schema"));
	return json_array_append_new(required, json_string("kind"));
}

/* An event as it is sent: its members are the notification's params. */
static json_t *notification(const char *method, json_t *params)
{
	return json_pack("{s:s, s:{s:{s:s}, s:{s:s}, s:o}, s:[s, s, s], s:b}", "type", "object",
		"properties", "jsonrpc", "const", "2.0", "method", "const", method, "params",
		params, "required", "jsonrpc", "method", "params", "additionalProperties", 0);
}

/* The object that begins at *row, which is moved behind it; NULL when a row is wrong. */
static json_t *take_object(const struct schema_document *d, const struct schema_row **row)
{
	const struct schema_row *head = *row;
	const bool event = strcmp(head->type, SCHEMA_EVENT) == 0;
	const bool line = d->lines && (event || strcmp(head->type, SCHEMA_OUTPUT) == 0);
	json_t *object = empty_object(head->help);
	int rc = 0;

	if (line)
		rc = begin_line(d, object, head->key);
	if (event && rc == 0)
		rc = begin_event(d, object);
	for (++*row; (*row)->key && !is_object_row(*row); ++*row) {
		const struct schema_row *m = *row;

		if (rc == 0)
			rc = add_member(d, object, m->key, m->type, m->help);
		if (rc != 0)
			break;
	}
	if (rc != 0) {
		json_decref(object);
		return NULL;
	}
	return event && !d->lines ? notification(head->key, object) : object;
}

int schema_print(const struct schema_document *d, FILE *out)
{
	json_t *roots = json_array(), *defs = json_object();
	json_t *whole = json_pack("{s:s, s:s, s:o, s:o}", "$schema",
		"https://json-schema.org/draft/2020-12/schema", "title", d->title, "anyOf", roots,
		DEFS, defs);
	int rc = whole ? 0 : -EINVAL;

	for (size_t t = 0; d->tables[t]; t++) {
		for (const struct schema_row *row = d->tables[t]; rc == 0 && row->key;) {
			const char *name = row->key;

			if (strcmp(row->type, SCHEMA_OBJECT) != 0)
				json_array_append_new(roots, reference(name, strlen(name)));
			if (json_object_set_new(defs, name, take_object(d, &row)) != 0)
				rc = -EINVAL;
		}
	}
	if (rc == 0 && json_dumpf(whole, out, JSON_INDENT(2)) != 0)
		rc = -EINVAL;
	fputc('\n', out);
	json_decref(whole);
	return rc;
}
