#include "ctl/import/spec_draft.h"

#include <stdlib.h>
#include <string.h>

#include "proto/host/memory.h"
#include "proto/spec/spec_value.h"

/* The required keys, how to set them, and a value that conflicts with nothing. */
static const struct {
	enum spec_key key, other; /* one of the two is enough */
	const char *advice, *stand_in;
} required[] = {
	{SPEC_KEY_MODEL, SPEC_KEY_MODEL, "--set model=gpt2",
		"{\"preset\": \"gpt2\", \"n_positions\": 1048576}"},
	{SPEC_KEY_DATA, SPEC_KEY_DATA, "--set data.train=FILE", "{\"kind\": \"synthetic\"}"},
	{SPEC_KEY_SEQ_LEN, SPEC_KEY_SEQ_LEN, "--set seq_len=1024", "1"},
	{SPEC_KEY_MICRO_BATCH, SPEC_KEY_BATCH, "--set train_micro_batch_size_per_gpu=N", "1"},
	{SPEC_KEY_TOTAL_NUM_STEPS, SPEC_KEY_TOTAL_NUM_STEPS,
		"--set scheduler.params.total_num_steps=N", "2147483647"},
	{SPEC_KEY_WORK, SPEC_KEY_WORK, "--set work.optimizer_steps=N", "{\"optimizer_steps\": 1}"},
};

enum { REQUIRED = sizeof(required) / sizeof(required[0]) };

void spec_draft_put(struct spec_draft *draft, enum spec_key key, struct spec_place at, char *value)
{
	free(draft->value[key]);
	draft->value[key] = value;
	draft->at[key] = at;
}

void spec_draft_finish(struct spec_draft *draft)
{
	for (size_t i = 0; i < SPEC_KEY_COUNT; i++)
		free(draft->value[i]);
	*draft = (struct spec_draft){0};
}

static void print_node(const struct spec_json *json, const struct spec_json_node *node, FILE *out)
{
	static const char *const words[] = {
		[SPEC_JSON_NULL] = "null", [SPEC_JSON_FALSE] = "false", [SPEC_JSON_TRUE] = "true"};
	const bool object = node->type == SPEC_JSON_OBJECT;

	if (node->type == SPEC_JSON_NUMBER) {
		fputs(node->text, out);
	} else if (node->type == SPEC_JSON_STRING) {
		spec_value_print_string(node->text, out);
	} else if (!object && node->type != SPEC_JSON_ARRAY) {
		fputs(words[node->type], out);
	} else {
		putc(object ? '{' : '[', out);
		for (uint32_t i = node->child; i; i = json->node[i].next) {
			if (i != node->child)
				fputs(", ", out);
			if (object) {
				spec_value_print_string(json->node[i].key, out);
				fputs(": ", out);
			}
			print_node(json, &json->node[i], out);
		}
		putc(object ? '}' : ']', out);
	}
}

char *spec_draft_json(const struct spec_json *json, const struct spec_json_node *node)
{
	char *text = NULL;
	size_t n = 0;
	FILE *out = memory_stream(&text, &n);

	print_node(json, node, out);
	memory_stream_end(out);
	return text;
}

/* ---- --set ---- */

const char *spec_draft_set_of(const char *const *sets, size_t n_sets, const char *key)
{
	const size_t n = strlen(key);
	const char *found = NULL;

	for (size_t i = 0; i < n_sets; i++)
		if (strncmp(sets[i], key, n) == 0 && sets[i][n] == '=')
			found = sets[i] + n + 1;
	return found;
}

static void put_node(struct spec_draft *over, const struct spec_json *json,
	const struct spec_json_node *node, const struct spec_row *row)
{
	const enum spec_key key = (enum spec_key)(row - spec_table);
	char path[256];

	if (row->type != SPEC_TYPE_OBJECT) {
		spec_draft_put(over, key, (struct spec_place){0}, spec_draft_json(json, node));
		return;
	}
	if (node->type == SPEC_JSON_STRING && row->shorthand)
		put_node(over, json, node, &spec_table[row->shorthand]);
	for (uint32_t i = node->child; i; i = json->node[i].next) {
		const struct spec_row *inner;

		snprintf(path, sizeof(path), "%s.%.120s", row->key, json->node[i].key);
		inner = spec_table_find(path);
		if (inner)
			put_node(over, json, &json->node[i], inner);
	}
}

/* A value is JSON, or a bare word: as spec_parse reads it. */
static void put_set(struct spec_draft *over, const char *set)
{
	struct spec_errors *ignored = memory_zeroed(1, sizeof(*ignored));
	const char *value = strchr(set, '=') + 1;
	char *key = memory_printed("%.*s", (int)(value - 1 - set), set);
	const struct spec_row *row = spec_table_find(key);
	const bool text = row && (row->type == SPEC_TYPE_NAME || row->type == SPEC_TYPE_PATH) &&
		(!*value || !strchr("\"[{", *value));
	struct spec_json_node word = {.type = SPEC_JSON_STRING, .text = value};
	struct spec_json json = {0};

	if (row && !text && spec_json_parse(value, strlen(value), &json, ignored) == 0)
		put_node(over, &json, &json.node[0], row);
	else if (row)
		put_node(over, &json, &word, row);
	spec_json_finish(&json);
	free(key);
	free(ignored);
}

void spec_draft_apply(struct spec_draft *draft, const char *const *sets, size_t n_sets)
{
	struct spec_draft over = {0};
	const struct spec_place nowhere = {0};

	for (size_t i = 0; i < n_sets; i++)
		put_set(&over, sets[i]);
	/* a leading key replaces its whole group */
	for (size_t i = 0; i < SPEC_KEY_COUNT; i++)
		for (size_t k = 0; k < SPEC_KEY_COUNT && spec_table[i].leads && over.value[i]; k++)
			if (spec_table[k].group == spec_table[i].group)
				spec_draft_put(draft, (enum spec_key)k, nowhere, NULL);
	for (size_t i = 0; i < SPEC_KEY_COUNT; i++)
		if (over.value[i])
			spec_draft_put(draft, (enum spec_key)i, nowhere, over.value[i]);
}

/* ---- what is missing ---- */

static bool is_at_or_below(const char *key, const char *object)
{
	const size_t n = strlen(object);

	return strncmp(key, object, n) == 0 && (!key[n] || key[n] == '.' || key[n] == '=');
}

/* Whether the draft has the key, or one of the object's. */
static bool has(const struct spec_draft *draft, const char *object)
{
	for (size_t i = 0; i < SPEC_KEY_COUNT; i++)
		if (draft->value[i] && is_at_or_below(spec_table[i].key, object))
			return true;
	return false;
}

static bool given(
	const struct spec_draft *draft, const char *const *sets, size_t n_sets, const char *object)
{
	for (size_t i = 0; i < n_sets; i++)
		if (is_at_or_below(sets[i], object))
			return true;
	return has(draft, object);
}

/* total_num_steps is required with some schedules. */
static bool applies(
	const struct spec_draft *draft, const char *const *sets, size_t n_sets, enum spec_key key)
{
	const char *type = draft->value[SPEC_KEY_SCHEDULER_TYPE];

	if (key != SPEC_KEY_TOTAL_NUM_STEPS)
		return true;
	return type &&
		(strcmp(type, "\"WarmupDecayLR\"") == 0 ||
			strcmp(type, "\"WarmupCosineLR\"") == 0) &&
		!spec_draft_set_of(sets, n_sets, "scheduler.type");
}

static bool is_missing(
	const struct spec_draft *draft, const char *const *sets, size_t n_sets, size_t i)
{
	return applies(draft, sets, n_sets, required[i].key) &&
		!given(draft, sets, n_sets, spec_table[required[i].key].key) &&
		!given(draft, sets, n_sets, spec_table[required[i].other].key);
}

size_t spec_draft_missing(const struct spec_draft *draft, const char *const *sets, size_t n_sets,
	struct spec_draft_missing missing[SPEC_DRAFT_MISSING_MAX])
{
	size_t n = 0;

	for (size_t i = 0; i < REQUIRED; i++)
		if (is_missing(draft, sets, n_sets, i))
			missing[n++] =
				(struct spec_draft_missing){required[i].key, required[i].advice};
	return n;
}

struct spec_place spec_draft_place(const struct spec_draft *draft, const char *key)
{
	const struct spec_row *row = spec_table_find(key);

	return row ? draft->at[row - spec_table] : (struct spec_place){0};
}

int spec_draft_check(const struct spec_draft *draft, const struct spec_options *options,
	struct spec_errors *errors)
{
	struct spec_draft whole = *draft; /* borrows the values */
	struct spec *spec = NULL;
	char *text;
	int rc;

	for (size_t i = 0; i < REQUIRED; i++)
		if (is_missing(draft, options->sets, options->n_sets, i))
			whole.value[required[i].key] = (char *)required[i].stand_in;
	text = spec_draft_text(&whole);
	rc = spec_parse(text, strlen(text), options, &spec, errors);
	for (size_t i = 0; i < errors->n; i++)
		errors->error[i].at = spec_draft_place(draft, errors->error[i].key);
	spec_free(spec);
	free(text);
	return rc;
}

/* ---- text ---- */

static void print_object(const struct spec_draft *draft, const char *object, int depth, FILE *out)
{
	bool first = true;

	putc('{', out);
	for (size_t i = 0; i < SPEC_KEY_COUNT; i++) {
		const struct spec_row *row = &spec_table[i];

		if (!spec_table_inside(row, object) || !has(draft, row->key))
			continue;
		fprintf(out, "%s\n%*s\"%s\": ", first ? "" : ",", 2 * depth, "",
			spec_table_last(row));
		first = false;
		if (draft->value[i])
			fputs(draft->value[i], out);
		else
			print_object(draft, row->key, depth + 1, out);
	}
	fprintf(out, "\n%*s}", 2 * (depth - 1), "");
}

char *spec_draft_text(const struct spec_draft *draft)
{
	char *text = NULL;
	size_t n = 0;
	FILE *out = memory_stream(&text, &n);

	print_object(draft, "", 1, out);
	putc('\n', out);
	memory_stream_end(out);
	return text;
}
