#include "proto/spec/spec_read.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/host/memory.h"
#include "proto/suggest.h"
#include "proto/utf8.h"

enum { PATH_BYTES = 256, BEGINNING = 3 /* letters that an abbreviation must share */ };

struct reading {
	struct spec_source *source;
	struct spec_errors *errors;
	struct spec_layer *layer; /* destination of the values */
	const char *arm;          /* its arm; NULL: the base */
	bool from_set;
	const struct spec_json_node *sweep; /* of the text; NULL: none */
};

static void read_members(struct reading *r, const struct spec_json *json,
	const struct spec_json_node *object, const char *path);

/* A key as the user sees it: "arms.b.seq_len", "--set seq_len". */
static void complain(
	const struct reading *r, struct spec_place at, const char *path, const char *message)
{
	char key[2 * PATH_BYTES];

	snprintf(key, sizeof(key), "%s%s%s%s%s", r->from_set ? "--set " : "", r->arm ? "arms." : "",
		r->arm ? r->arm : "", r->arm && *path ? "." : "", path);
	spec_error_add(r->errors, r->from_set ? (struct spec_place){0} : at, key, "%s", message);
}

/* The only one of n names that begins like word; NULL: none or more than one. */
static const char *only_beginning(const char *word, const char *const *names, size_t n)
{
	const char *found = NULL;

	for (size_t i = 0; i < n; i++) {
		if (strlen(word) < BEGINNING || strncmp(word, names[i], BEGINNING) != 0)
			continue;
		if (found)
			return NULL;
		found = names[i];
	}
	return found;
}

/*
 * Finds optimizer.params.lr for "optimizer.lr": the same object at the top, the same name at the
 * end.
 */
static const char *key_further_in(const char *path)
{
	const char *last = strrchr(path, '.');
	const size_t top = strcspn(path, ".") + 1;

	for (size_t i = 0; last && i < SPEC_KEY_COUNT; i++) {
		if (strncmp(spec_table[i].key, path, top) == 0 &&
			strcmp(spec_table_last(&spec_table[i]), last + 1) == 0)
			return spec_table[i].key;
	}
	return NULL;
}

/*
 * The nearest key: first in the same object, then one with this name elsewhere. Dotted paths are
 * compared whole.
 */
static const char *nearest_key(const char *object, const char *last, const char *path)
{
	const char *names[SPEC_KEY_COUNT], *keys[SPEC_KEY_COUNT], *found;
	size_t n = 0, i;

	for (i = 0; i < SPEC_KEY_COUNT && !strchr(last, '.'); i++) {
		if (spec_table_inside(&spec_table[i], object)) {
			names[n] = spec_table_last(&spec_table[i]);
			keys[n++] = spec_table[i].key;
		}
	}
	found = suggest_nearest(last, names, n);
	if (!found && object[0])
		found = only_beginning(last, names, n);
	for (i = 0; found && i < n; i++)
		if (names[i] == found)
			return keys[i];
	found = key_further_in(path);
	if (found)
		return found;
	for (i = 0; i < SPEC_KEY_COUNT; i++) {
		names[i] = strchr(last, '.') ? spec_table[i].key : spec_table_last(&spec_table[i]);
		keys[i] = spec_table[i].key;
	}
	found = suggest_nearest(strchr(last, '.') ? path : last, names, SPEC_KEY_COUNT);
	for (i = 0; found && i < SPEC_KEY_COUNT; i++)
		if (names[i] == found)
			return keys[i];
	return NULL;
}

static void unknown_key(struct reading *r, struct spec_place at, const char *object,
	const char *last, const char *path)
{
	char message[PATH_BYTES + 64];
	bool whole = strchr(last, '.') && spec_table_find(path);
	const char *near = NULL;

	if (!whole && spec_error_room(r->errors))
		near = nearest_key(object, last, path);
	if (whole)
		snprintf(message, sizeof(message),
			"dotted keys stand in arms and --set only; nest it");
	else if (!near)
		snprintf(message, sizeof(message),
			"unknown key, gpt2d-spec(5) lists all; notes are called \"comment\" "
			"or \"x_...\"");
	else
		snprintf(message, sizeof(message), "unknown key; did you mean %s?", near);
	complain(r, at, path, message);
}

static void read_scalar(struct reading *r, const struct spec_json *json,
	const struct spec_json_node *node, const struct spec_row *row)
{
	struct spec_value *v = &r->layer->value[row - spec_table];
	struct spec_value fresh = {.at = r->from_set ? (struct spec_place){0} : node->at,
		.from_set = r->from_set,
		.from_arm = r->arm != NULL};
	char message[256];

	if (v->state != SPEC_ABSENT && !r->from_set) {
		snprintf(message, sizeof(message), "given twice, first in line %d", v->at.line);
		complain(r, node->at, row->key, message);
		return;
	}
	if (spec_value_read(row, json, node, &fresh, message, sizeof(message)))
		fresh.state = SPEC_GIVEN;
	else
		fresh.state = SPEC_WRONG;
	*v = fresh;
	if (fresh.state == SPEC_WRONG)
		complain(r, node->at, row->key, message);
}

/* Another arm of the source; at most SPEC_ARMS_MAX. */
static struct spec_source_arm *add_arm(
	struct spec_source *source, const char *name, struct spec_place at)
{
	struct spec_source_arm *arm;

	source->arms = memory_resized(source->arms, (source->n_arms + 1) * sizeof(*arm));
	arm = &source->arms[source->n_arms++];
	*arm = (struct spec_source_arm){.at = at};
	strcpy(arm->name, name);
	return arm;
}

static void read_arm(
	struct reading *r, const struct spec_json *json, const struct spec_json_node *node)
{
	const char *wrong = spec_table_name_wrong(node->key);
	char path[PATH_BYTES + 8], what[96], message[160];
	struct spec_source_arm *arm;
	struct reading in = *r;

	snprintf(path, sizeof(path), "arms.%.200s", node->key);
	if (wrong) {
		complain(r, node->at, path, wrong);
		return;
	}
	if (node->type != SPEC_JSON_OBJECT) {
		snprintf(message, sizeof(message), "an object of overrides expected, found %s",
			spec_json_describe(node, what, sizeof(what)));
		complain(r, node->at, path, message);
		return;
	}
	if (r->source->n_arms == SPEC_ARMS_MAX) {
		snprintf(message, sizeof(message), "more than %d arms", SPEC_ARMS_MAX);
		complain(r, node->at, path, message);
		return;
	}
	arm = add_arm(r->source, node->key, node->at);
	in.arm = arm->name;
	in.layer = &arm->layer;
	read_members(&in, json, node, "");
}

static void read_arms(
	struct reading *r, const struct spec_json *json, const struct spec_json_node *node)
{
	char what[96], message[160];

	if (r->from_set || r->arm) {
		complain(r, node->at, "arms",
			r->arm ? "an arm has no arms"
			       : "only a key of an arm can be set: arms.NAME.KEY");
		return;
	}
	r->source->has_arms = true;
	if (node->type != SPEC_JSON_OBJECT) {
		snprintf(message, sizeof(message), "an object of arms expected, found %s",
			spec_json_describe(node, what, sizeof(what)));
		complain(r, node->at, "arms", message);
		return;
	}
	for (uint32_t i = node->child; i; i = json->node[i].next)
		if (!json->node[i].duplicate && !spec_table_note(json->node[i].key))
			read_arm(r, json, &json->node[i]);
	if (r->source->n_arms == 0 && r->errors->n == 0)
		complain(r, node->at, "arms", "holds no arm");
}

/* ---- sweep ---- */

enum { SWEEP_KEYS_MAX = 8 };

/* A key of a sweep and its values, as in the text. */
struct sweep_axis {
	const struct spec_row *row;
	struct spec_json json; /* belongs to the source */
	const struct spec_json_node *values;
	uint32_t at; /* its value in the current combination */
};

/* An arm's name from a value: its text, without characters that are not allowed in a name. */
static void add_to_name(char *name, size_t bytes, const struct spec_json_node *value)
{
	static const char *const words[] = {[SPEC_JSON_NULL] = "null",
		[SPEC_JSON_FALSE] = "false",
		[SPEC_JSON_TRUE] = "true",
		[SPEC_JSON_ARRAY] = "array",
		[SPEC_JSON_OBJECT] = "object"};
	const char *text = value->text ? value->text : words[value->type];
	size_t n = strlen(name);

	if (n > 0 && n + 1 < bytes)
		name[n++] = '_';
	for (; *text && n + 1 < bytes; text++)
		if (strchr("+/ ", *text) == NULL)
			name[n++] = *text;
	name[n] = '\0';
}

static void add_sweep_arm(struct reading *r, struct sweep_axis *axes, size_t n)
{
	struct spec_source *source = r->source;
	struct spec_source_arm *arm;
	struct reading in = *r;
	char name[SPEC_NAME_MAX + 2] = "", message[200];
	const char *wrong;

	for (size_t i = 0; i < n; i++)
		add_to_name(name, sizeof(name), &axes[i].json.node[axes[i].at]);
	wrong = spec_table_name_wrong(name);
	if (wrong) {
		snprintf(message, sizeof(message), "the arm's name would be \"%s\": %s", name,
			wrong);
		complain(r, axes[0].values->at, "sweep", message);
		return;
	}
	if (source->n_arms == SPEC_ARMS_MAX) {
		snprintf(
			message, sizeof(message), "more than %d arms with the base", SPEC_ARMS_MAX);
		if (r->errors->n == 0)
			complain(r, axes[0].values->at, "sweep", message);
		return;
	}
	arm = add_arm(source, name, axes[0].values->at);
	in.arm = arm->name;
	in.layer = &arm->layer;
	in.from_set = false;
	for (size_t i = 0; i < n; i++)
		read_scalar(&in, &axes[i].json, &axes[i].json.node[axes[i].at], axes[i].row);
}

/* All combinations, the last key's values fastest. */
static void add_sweep_arms(struct reading *r, struct sweep_axis *axes, size_t n, size_t from)
{
	if (from == n) {
		add_sweep_arm(r, axes, n);
		return;
	}
	for (uint32_t i = axes[from].values->child; i; i = axes[from].json.node[i].next) {
		axes[from].at = i;
		add_sweep_arms(r, axes, n, from + 1);
	}
}

/* One member of "sweep"; false: refused and reported. */
static bool read_axis(struct reading *r, const struct spec_json *json,
	const struct spec_json_node *node, const char *key, struct sweep_axis *axis)
{
	const struct spec_row *row = spec_table_find(key);
	char path[PATH_BYTES + 8];

	snprintf(path, sizeof(path), "sweep.%.200s", key);
	if (!row) {
		unknown_key(r, node->at, "", key, key);
		return false;
	}
	if (row->scope == SPEC_SCOPE_RUN || row->type == SPEC_TYPE_OBJECT ||
		row->type == SPEC_TYPE_BETAS) {
		complain(r, node->at, path, "is no single value that arms can differ in");
		return false;
	}
	if (node->type != SPEC_JSON_ARRAY || node->child == 0) {
		complain(r, node->at, path, "an array of values expected");
		return false;
	}
	*axis = (struct sweep_axis){.row = row, .json = *json, .values = node};
	return true;
}

/* The base as the first arm, then the combinations. */
static void make_sweep(struct reading *r, struct sweep_axis *axes, size_t n)
{
	struct spec_source *source = r->source;

	if (n == 0)
		return;
	if (source->has_arms) {
		complain(r, axes[0].values->at, "sweep", "is not allowed together with arms");
		return;
	}
	source->has_arms = source->swept = true;
	add_arm(source, "base", axes[0].values->at);
	add_sweep_arms(r, axes, n, 0);
}

static void read_row(struct reading *r, const struct spec_json *json,
	const struct spec_json_node *node, const struct spec_row *row)
{
	char what[96], message[200];

	if (row->type == SPEC_TYPE_ARMS) {
		read_arms(r, json, node);
	} else if (row->type == SPEC_TYPE_SWEEP) {
		if (r->arm || r->from_set)
			complain(r, node->at, "sweep",
				r->arm ? "an arm has no sweep"
				       : "give it as --sweep KEY=VALUE,...");
		else if (node->type == SPEC_JSON_OBJECT && node->child)
			r->sweep = node;
		else
			complain(r, node->at, "sweep",
				"an object of keys expected, each with an array of values");
	} else if (r->arm && row->scope == SPEC_SCOPE_RUN) {
		complain(
			r, node->at, row->key, "belongs to the whole run; an arm cannot change it");
	} else if (row->type != SPEC_TYPE_OBJECT) {
		read_scalar(r, json, node, row);
	} else if (node->type == SPEC_JSON_OBJECT) {
		r->layer->value[row - spec_table] = (struct spec_value){.state = SPEC_GIVEN,
			.at = r->from_set ? (struct spec_place){0} : node->at,
			.from_set = r->from_set,
			.from_arm = r->arm != NULL};
		read_members(r, json, node, row->key);
	} else if (row->shorthand && node->type == SPEC_JSON_STRING) {
		read_scalar(r, json, node, &spec_table[row->shorthand]);
	} else {
		snprintf(message, sizeof(message), "%s expected, found %s",
			row->shorthand ? "a preset's name or an object" : "an object",
			spec_json_describe(node, what, sizeof(what)));
		complain(r, node->at, row->key, message);
		r->layer->value[row - spec_table].state = SPEC_WRONG;
	}
}

/* In an arm, and only there, a key may be a whole dotted path. */
static void read_members(struct reading *r, const struct spec_json *json,
	const struct spec_json_node *object, const char *path)
{
	for (uint32_t i = object->child; i; i = json->node[i].next) {
		const struct spec_json_node *node = &json->node[i];
		const struct spec_row *row;
		char full[PATH_BYTES];
		bool dotted = strchr(node->key, '.') != NULL, cut;

		if (node->duplicate || spec_table_note(node->key))
			continue;
		cut = snprintf(full, sizeof(full), "%s%s%s", path, *path ? "." : "", node->key) >=
			(int)sizeof(full);
		row = cut || (dotted && (!r->arm || *path)) ? NULL : spec_table_find(full);
		if (row)
			read_row(r, json, node, row);
		else
			unknown_key(r, node->at, path, node->key, full);
	}
}

/* ---- --set ---- */

/* Keeps a tree as long as values point into it. */
static struct spec_json *keep_json(struct spec_source *source, const struct spec_json *json)
{
	source->json = memory_resized(source->json, (source->n_json + 1) * sizeof(*source->json));
	source->json[source->n_json] = *json;
	return &source->json[source->n_json++];
}

/*
 * The arm at the start of a set's path ("arms.NAME.", NAME may have dots); NULL if there is none.
 */
static struct spec_source_arm *set_arm(struct spec_source *source, const char *path, size_t *used)
{
	struct spec_source_arm *best = NULL;

	*used = 0;
	for (size_t i = 0; i < source->n_arms; i++) {
		size_t n = strlen(source->arms[i].name);

		if (!strncmp(path, source->arms[i].name, n) && path[n] == '.' && n >= *used) {
			*used = n;
			best = &source->arms[i];
		}
	}
	return best;
}

static void unknown_arm(struct reading *r, const char *path)
{
	const char *names[SPEC_ARMS_MAX], *near;
	char message[200], name[SPEC_NAME_MAX + 1];

	for (size_t i = 0; i < r->source->n_arms; i++)
		names[i] = r->source->arms[i].name;
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(path + 5, "."), path + 5);
	near = suggest_nearest(name, names, r->source->n_arms);
	if (r->source->n_arms == 0)
		snprintf(message, sizeof(message), "the spec has no arms");
	else if (near && !strcmp(near, name))
		snprintf(message, sizeof(message), "only a key of an arm can be set: arms.%s.KEY",
			name);
	else if (near)
		snprintf(message, sizeof(message), "no such arm; did you mean %s?", near);
	else
		snprintf(message, sizeof(message), "no such arm; the first of %zu is %s",
			r->source->n_arms, names[0]);
	complain(r, (struct spec_place){0}, path, message);
}

/* A bare word as the tree of a string. */
static void word_json(const char *word, struct spec_json *out)
{
	out->pool = memory_text(word);
	out->node = memory_zeroed(1, sizeof(*out->node));
	out->n = 1;
	out->node->type = SPEC_JSON_STRING;
	out->node->text = out->pool;
}

/*
 * A value is JSON. A text that is not JSON, and does not begin like a string, an array or an
 * object, is a bare word. For names and paths every value without quotes is one, so that --set
 * name=200 works.
 */
static int set_json(struct reading *r, const char *key, const struct spec_row *row,
	const char *value, struct spec_json *out)
{
	bool bare = !*value || !strchr("\"[{", *value);
	bool text = row->type == SPEC_TYPE_NAME || row->type == SPEC_TYPE_PATH;
	struct spec_errors *why = memory_zeroed(1, sizeof(*why));
	char message[PATH_BYTES];
	int rc = -EINVAL;

	if (!bare || !text)
		rc = spec_json_parse(value, strlen(value), out, why);
	if (rc && bare) {
		word_json(value, out);
		rc = 0;
	} else if (rc) {
		snprintf(message, sizeof(message), "the value is no JSON: %.200s",
			why->error[0].message);
		complain(r, (struct spec_place){0}, key, message);
	}
	free(why);
	return rc;
}

static bool all_utf8(const char *s)
{
	return utf8_valid((const unsigned char *)s, strlen(s)) == strlen(s);
}

/* The layer of a set's value, and the rest of its path after the arm; NULL: reported. */
static const char *set_target(struct reading *r, const char *path)
{
	struct spec_source_arm *arm;
	size_t used;

	r->layer = &r->source->sets;
	if (strncmp(path, "arms.", 5))
		return path;
	arm = set_arm(r->source, path + 5, &used);
	if (!arm) {
		unknown_arm(r, path);
		return NULL;
	}
	r->arm = arm->name;
	r->layer = &arm->sets;
	return path + 5 + used + 1;
}

static void unknown_set(struct reading *r, const char *key)
{
	const char *dot = strrchr(key, '.'), *last = dot ? dot + 1 : key;
	char object[PATH_BYTES];

	if (spec_table_note(last))
		return;
	snprintf(object, sizeof(object), "%.*s", dot ? (int)(dot - key) : 0, key);
	unknown_key(r, (struct spec_place){0}, object, last, key);
}

static void read_set(struct reading *r, const char *set)
{
	const char *equals = strchr(set, '='), *key;
	char path[PATH_BYTES];
	const struct spec_row *row;
	struct spec_json json = {0}, *kept;

	if (!equals || equals == set || !all_utf8(set)) {
		snprintf(path, sizeof(path), "%.100s", set);
		complain(r, (struct spec_place){0}, path, "KEY=VALUE expected, in UTF-8");
		return;
	}
	if ((size_t)(equals - set) >= sizeof(path)) {
		snprintf(path, sizeof(path), "%.100s...", set);
		complain(r, (struct spec_place){0}, path, "no such key, none is that long");
		return;
	}
	snprintf(path, sizeof(path), "%.*s", (int)(equals - set), set);
	key = set_target(r, path);
	row = key ? spec_table_find(key) : NULL;
	if (key && !row)
		unknown_set(r, key);
	if (!row || set_json(r, key, row, equals + 1, &json) != 0)
		return;
	kept = keep_json(r->source, &json);
	read_row(r, kept, &kept->node[0], row);
}

/* All are read before any is applied: their order matters only if two set one key. */
static void read_sets(
	struct spec_source *source, const struct spec_options *options, struct spec_errors *errors)
{
	for (size_t i = 0; i < options->n_sets; i++) {
		struct reading r = {.source = source, .errors = errors, .from_set = true};

		read_set(&r, options->sets[i]);
	}
	spec_layer_put(&source->base, &source->sets);
	for (size_t i = 0; i < source->n_arms; i++)
		spec_layer_put(&source->arms[i].layer, &source->arms[i].sets);
}

void spec_layer_put(struct spec_layer *under, const struct spec_layer *over)
{
	bool cleared[SPEC_GROUP_WORK + 1] = {false};
	size_t i;

	for (i = 0; i < SPEC_KEY_COUNT; i++)
		if (spec_table[i].leads && over->value[i].state != SPEC_ABSENT)
			cleared[spec_table[i].group] = true;
	for (i = 0; i < SPEC_KEY_COUNT; i++) {
		if (over->value[i].state != SPEC_ABSENT)
			under->value[i] = over->value[i];
		else if (cleared[spec_table[i].group])
			under->value[i] = (struct spec_value){0};
	}
}

/* Values of --sweep: JSON, or bare words. */
static void sweep_values(const char *list, char **text)
{
	size_t bytes;
	FILE *out = memory_stream(text, &bytes);

	putc('[', out);
	for (const char *from = list; from;
		from = strchr(from, ',') ? strchr(from, ',') + 1 : NULL) {
		const size_t n = strcspn(from, ",");
		struct spec_errors *why = memory_zeroed(1, sizeof(*why));
		struct spec_json json = {0};
		char word[PATH_BYTES];

		snprintf(word, sizeof(word), "%.*s", (int)n, from);
		if (from != list)
			putc(',', out);
		if (spec_json_parse(word, strlen(word), &json, why) == 0) {
			fputs(word, out);
			spec_json_finish(&json);
		} else {
			spec_value_print_string(word, out);
		}
		free(why);
	}
	putc(']', out);
	memory_stream_end(out);
}

/* KEY=VALUE,VALUE,... */
static bool read_sweep_option(struct reading *r, const char *option, struct sweep_axis *axis)
{
	const char *equals = strchr(option, '=');
	struct spec_json json = {0}, *kept;
	char key[PATH_BYTES], *text;
	int rc;

	r->from_set = true;
	if (!equals || equals == option || !all_utf8(option) ||
		(size_t)(equals - option) >= sizeof(key)) {
		spec_error_add(r->errors, (struct spec_place){0}, "--sweep",
			"%.100s: KEY=VALUE,VALUE,... expected, in UTF-8", option);
		return false;
	}
	snprintf(key, sizeof(key), "%.*s", (int)(equals - option), option);
	sweep_values(equals + 1, &text);
	rc = spec_json_parse(text, strlen(text), &json, r->errors);
	free(text);
	if (rc)
		return false;
	kept = keep_json(r->source, &json);
	return read_axis(r, kept, &kept->node[0], key, axis);
}

/* "sweep" of the text, and each --sweep as another member of it. */
static void read_sweeps(
	struct reading *r, const struct spec_json *json, const struct spec_options *options)
{
	struct sweep_axis axes[SWEEP_KEYS_MAX];
	size_t n = 0;

	for (uint32_t i = r->sweep ? r->sweep->child : 0; i; i = json->node[i].next) {
		const struct spec_json_node *node = &json->node[i];

		if (node->duplicate || spec_table_note(node->key))
			continue;
		if (n == SWEEP_KEYS_MAX)
			complain(r, node->at, "sweep", "at most 8 keys");
		else
			n += read_axis(r, json, node, node->key, &axes[n]);
	}
	for (size_t i = 0; i < options->n_sweeps && n < SWEEP_KEYS_MAX; i++)
		n += read_sweep_option(r, options->sweeps[i], &axes[n]);
	r->from_set = false;
	if (r->errors->n == 0)
		make_sweep(r, axes, n);
}

/* ---- defaults ---- */

/* Read once in a process. The values point into the tree. */
static struct {
	pthread_once_t once;
	struct spec_json json;
	struct spec_layer layer;
} defaults = {.once = PTHREAD_ONCE_INIT};

static void read_defaults(void)
{
	struct spec_json *json = &defaults.json;
	struct spec_errors none = {0};
	char *text, message[256];
	size_t n, i;
	FILE *out = memory_stream(&text, &n);
	uint32_t at;

	putc('[', out);
	for (i = 0; i < SPEC_KEY_COUNT; i++)
		if (spec_table[i].fallback)
			fprintf(out, "%s,", spec_table[i].fallback);
	fputs("null]", out);
	memory_stream_end(out);
	if (spec_json_parse(text, n, json, &none) < 0)
		abort(); /* the table is wrong */
	free(text);
	at = json->node[0].child;
	for (i = 0; i < SPEC_KEY_COUNT; i++) {
		struct spec_value *v = &defaults.layer.value[i];

		if (!spec_table[i].fallback)
			continue;
		if (spec_value_read(
			    &spec_table[i], json, &json->node[at], v, message, sizeof(message)))
			v->state = SPEC_DEFAULT;
		at = json->node[at].next;
	}
}

int spec_read(const char *text, size_t n, const struct spec_options *options,
	struct spec_source **out, struct spec_errors *errors)
{
	struct spec_source *source = memory_zeroed(1, sizeof(*source));
	struct reading r = {.source = source, .errors = errors};
	struct spec_json json = {0}, *kept;

	*out = source;
	pthread_once(&defaults.once, read_defaults);
	source->defaults = &defaults.layer;
	if (spec_json_parse_object(text, n, &json, errors))
		return -EBADMSG;
	kept = keep_json(source, &json);
	r.layer = &source->base;
	read_members(&r, kept, &kept->node[0], "");
	read_sweeps(&r, kept, options);
	read_sets(source, options, errors);
	return errors->n > 0 ? -EINVAL : 0;
}

void spec_source_destroy(struct spec_source *source)
{
	if (!source)
		return;
	for (size_t i = 0; i < source->n_json; i++)
		spec_json_finish(&source->json[i]);
	free(source->json);
	free(source->arms);
	free(source);
}
