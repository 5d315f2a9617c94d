#include "proto/schema/schema.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

#define DEFS "$defs"

static bool is_head(const struct schema_row *row)
{
	return row->type[0] == '#';
}

static bool is(const struct schema_row *row, const char *type)
{
	return strcmp(row->type, type) == 0;
}

/* The object, or else the reply, with that name. */
static const struct schema_row *find(const struct schema_document *d, const char *name, size_t n)
{
	const struct schema_row *reply = NULL;

	for (size_t t = 0; d->tables[t]; t++) {
		for (const struct schema_row *row = d->tables[t]; row->key; row++) {
			if (!is_head(row) || strlen(row->key) != n ||
				strncmp(row->key, name, n) != 0)
				continue;
			if (is(row, SCHEMA_OBJECT))
				return row;
			if (is(row, SCHEMA_PRINTED))
				reply = row;
		}
	}
	return reply;
}

bool schema_has(const struct schema_document *d, const struct schema_row *head)
{
	static const char *const messages[] = {
		SCHEMA_REQUEST, SCHEMA_REPLY, SCHEMA_ORDER, SCHEMA_REPORT};

	for (size_t i = 0; d->lines && i < sizeof(messages) / sizeof(messages[0]); i++)
		if (is(head, messages[i]))
			return false;
	return !is(head, SCHEMA_MORE);
}

static int visit_rows(const struct schema_document *d, const struct schema_row *head,
	int (*visit)(const struct schema_row *member, void *arg), void *arg)
{
	int rc = 0;

	for (const struct schema_row *row = head + 1; rc == 0 && row->key && !is_head(row); row++) {
		const struct schema_row *same = NULL;

		if (strcmp(row->key, "...") == 0)
			same = find(d, row->type, strlen(row->type));
		if (same)
			rc = visit_rows(d, same, visit, arg);
		else if (row->type[0] != '.' || !d->lines)
			rc = visit(row, arg);
	}
	return rc;
}

int schema_visit(const struct schema_document *d, const struct schema_row *head,
	int (*visit)(const struct schema_row *member, void *arg), void *arg)
{
	int rc = visit_rows(d, head, visit, arg);

	for (size_t t = 0; d->lines && d->tables[t]; t++)
		for (const struct schema_row *row = d->tables[t]; rc == 0 && row->key; row++)
			if (is(row, SCHEMA_MORE) && strcmp(row->key, head->key) == 0)
				rc = visit_rows(d, row, visit, arg);
	return rc;
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

/* Length of type before a | outside brackets. */
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
	return find(d, type, n) ? reference(type, n) : NULL;
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

struct object {
	const struct schema_document *document;
	json_t *json;
};

static int add_member(const struct schema_row *member, void *arg)
{
	const struct object *o = arg;
	const char *type = member->type + (member->type[0] == '.');
	const bool optional = type[0] == '?';
	json_t *schema = schema_of(o->document, type + optional, strlen(type + optional));

	if (schema && *member->help)
		json_object_set_new(schema, "description", json_string(member->help));
	if (json_object_set_new(json_object_get(o->json, "properties"), member->key, schema) != 0) {
		fprintf(stderr, "%s: no such type: %s\n", member->key, type);
		return -EINVAL;
	}
	if (!optional)
		json_array_append_new(
			json_object_get(o->json, "required"), json_string(member->key));
	return 0;
}

static json_t *empty_object(const char *help)
{
	return json_pack("{s:s, s:s, s:{}, s:[], s:b}", "type", "object", "description", help,
		"properties", "required", "additionalProperties", 0);
}

static void begin_line(const struct object *o, const char *kind)
{
	json_t *properties = json_object_get(o->json, "properties");
	json_t *required = json_object_get(o->json, "required");

	json_object_set_new(
		properties, "schema", json_pack("{s:i}", "const", o->document->lines_version));
	json_object_set_new(properties, "kind", json_pack("{s:s}", "const", kind));
	json_array_append_new(required, json_string("schema"));
	json_array_append_new(required, json_string("kind"));
}

/* The first members of every event, and in a line of gpt2ctl the run's name. */
static int begin_event(struct object *o)
{
	static const struct schema_row front[] = {
		{"id", "count", "of the run"},
		{"seq", "count", "the event's number, one more than that before"},
		{"at", "time", ""},
		{"name", "?text", "of the run"},
	};
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < (o->document->lines ? 4 : 3); i++)
		rc = add_member(&front[i], o);
	return rc;
}

/* An event as sent: its members are the notification's params. */
static json_t *notification(const char *method, json_t *params)
{
	return json_pack("{s:s, s:{s:{s:s}, s:{s:s}, s:o}, s:[s, s, s], s:b}", "type", "object",
		"properties", "jsonrpc", "const", "2.0", "method", "const", method, "params",
		params, "required", "jsonrpc", "method", "params", "additionalProperties", 0);
}

/* The object that begins at head; NULL if a row is wrong. */
static json_t *object_schema(const struct schema_document *d, const struct schema_row *head)
{
	struct object o = {d, empty_object(head->help)};
	const bool event = is(head, SCHEMA_EVENT);
	int rc = 0;

	if (d->lines && (event || is(head, SCHEMA_OUTPUT) || is(head, SCHEMA_PRINTED)))
		begin_line(&o, head->key);
	if (event)
		rc = begin_event(&o);
	if (rc == 0)
		rc = schema_visit(d, head, add_member, &o);
	if (rc != 0) {
		json_decref(o.json);
		return NULL;
	}
	return event && !d->lines ? notification(head->key, o.json) : o.json;
}

static void def_name(
	const struct schema_document *d, const struct schema_row *head, char *name, size_t bytes)
{
	const char *suffix = "";

	if (is(head, SCHEMA_REQUEST) || is(head, SCHEMA_ORDER) || is(head, SCHEMA_REPORT))
		suffix = " params";
	else if (is(head, SCHEMA_REPLY) || (is(head, SCHEMA_PRINTED) && !d->lines))
		suffix = " result";
	snprintf(name, bytes, "%s%s", head->key, suffix);
}

int schema_print(const struct schema_document *d, FILE *out)
{
	json_t *roots = json_array(), *defs = json_object();
	json_t *whole = json_pack("{s:s, s:s, s:o, s:o}", "$schema",
		"https://json-schema.org/draft/2020-12/schema", "title", d->title, "anyOf", roots,
		DEFS, defs);
	int rc = whole ? 0 : -EINVAL;

	for (size_t t = 0; d->tables[t]; t++) {
		for (const struct schema_row *row = d->tables[t]; rc == 0 && row->key; row++) {
			char name[64];

			if (!is_head(row) || !schema_has(d, row))
				continue;
			def_name(d, row, name, sizeof(name));
			if (!is(row, SCHEMA_OBJECT))
				json_array_append_new(roots, reference(name, strlen(name)));
			if (json_object_set_new(defs, name, object_schema(d, row)) != 0)
				rc = -EINVAL;
		}
	}
	if (rc == 0 && json_dumpf(whole, out, JSON_INDENT(2)) != 0)
		rc = -EINVAL;
	fputc('\n', out);
	json_decref(whole);
	return rc;
}
