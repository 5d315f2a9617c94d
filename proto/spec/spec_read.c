#include "proto/spec/spec_read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/host/memory.h"
#include "proto/suggest.h"
#include "proto/text.h"

enum { PATH_BYTES = 256, BEGINNING = 3 /* letters in which an abbreviation agrees */ };

struct reading {
	struct spec_source *source;
	struct spec_errors *errors;
	struct spec_layer *layer; /* where values go */
	const char *arm;          /* of which arm; NULL: the base */
	bool from_set;
};

static void read_members(struct reading *r, const struct spec_json *json,
	const struct spec_json_node *object, const char *path);

/* A key as the user has to find it: "arms.b.seq_len", "--set seq_len". */
static void complain(
	const struct reading *r, struct spec_place at, const char *path, const char *message)
{
	char key[2 * PATH_BYTES];

	snprintf(key, sizeof(key), "%s%s%s%s%s", r->from_set ? "--set " : "", r->arm ? "arms." : "",
		r->arm ? r->arm : "", r->arm && *path ? "." : "", path);
	spec_error_add(r->errors, r->from_set ? (struct spec_place){0} : at, key, "%s", message);
}

/* The only one of n names that begins as word does; NULL: none or more than one. */
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

/* optimizer.params.lr of "optimizer.lr": the same object at the top, the same name at the end. */
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
 * The nearest key: of the same object first, then one that has this name elsewhere. Dotted paths
 * are compared whole.
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
	arm = &r->source->arms[r->source->n_arms++];
	memcpy(arm->name, node->key, strlen(node->key) + 1);
	arm->at = node->at;
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

static void read_row(struct reading *r, const struct spec_json *json,
	const struct spec_json_node *node, const struct spec_row *row)
{
	char what[96], message[200];

	if (row->type == SPEC_TYPE_ARMS) {
		read_arms(r, json, node);
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

/* Keep a tree for as long as values point into it. */
static struct spec_json *keep_json(struct spec_source *source, const struct spec_json *json)
{
	source->json = memory_resized(source->json, (source->n_json + 1) * sizeof(*source->json));
	source->json[source->n_json] = *json;
	return &source->json[source->n_json++];
}

/* The arm a set's path begins with ("arms.NAME.", NAME may hold dots); NULL when there is none. */
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
 * A value is JSON; what is not, and does not begin like a string, an array or an object, is a bare
 * word. For names and paths every value without quotes is one, so that --set name=200 works.
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
	size_t left = strlen(s), n;

	for (; left > 0; s += n, left -= n) {
		n = text_utf8(s, left);
		if (n == 0)
			return false;
	}
	return true;
}

/* Where a set's value goes, and what is left of its path behind the arm; NULL: reported. */
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

/* All of them before any is put on its layer: their order matters only where they set one key. */
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

/* ---- defaults ---- */

static int read_defaults(struct spec_source *source, struct spec_errors *errors)
{
	struct spec_json json = {0}, *kept;
	char text[2048] = "[", message[256];
	size_t n = 1, i;
	uint32_t at;
	int rc;

	for (i = 0; i < SPEC_KEY_COUNT; i++)
		if (spec_table[i].fallback)
			n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", n > 1 ? "," : "",
				spec_table[i].fallback);
	snprintf(text + n, sizeof(text) - n, "]");
	rc = spec_json_parse(text, n + 1, &json, errors);
	if (rc)
		return rc;
	kept = keep_json(source, &json);
	at = kept->node[0].child;
	for (i = 0; i < SPEC_KEY_COUNT; i++) {
		struct spec_value *v = &source->defaults.value[i];

		if (!spec_table[i].fallback)
			continue;
		if (spec_value_read(
			    &spec_table[i], kept, &kept->node[at], v, message, sizeof(message)))
			v->state = SPEC_DEFAULT;
		at = kept->node[at].next;
	}
	return 0;
}

int spec_read(const char *text, size_t n, const struct spec_options *options,
	struct spec_source **out, struct spec_errors *errors)
{
	struct spec_source *source = memory_zeroed(1, sizeof(*source));
	struct reading r = {.source = source, .errors = errors};
	struct spec_json json = {0}, *kept;
	int rc;

	*out = source;
	rc = read_defaults(source, errors);
	if (rc)
		return rc;
	rc = spec_json_parse_object(text, n, &json, errors);
	if (rc)
		return -EBADMSG;
	kept = keep_json(source, &json);
	r.layer = &source->base;
	read_members(&r, kept, &kept->node[0], "");
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
	free(source);
}
