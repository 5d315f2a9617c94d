#include "ctl/import/deepspeed.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "proto/host/memory.h"
#include "proto/suggest.h"

enum { PATH_BYTES = 160 };

struct conversion {
	const struct spec_json *json;
	const char *const *sets;
	size_t n_sets;
	struct deepspeed_import *out;
	struct spec_errors *errors;
};

/* The member of the file that is being converted. */
struct member {
	const struct deepspeed_row *row;
	const struct spec_json_node *node;
	const char *key; /* dotted */
};

static void walk(struct conversion *c, const struct spec_json_node *object, const char *path);

const char *deepspeed_kind_name(enum deepspeed_kind kind)
{
	static const char *const names[] = {[DEEPSPEED_MAPPED] = "mapped",
		[DEEPSPEED_AUTO] = "auto",
		[DEEPSPEED_DEFAULT] = "default",
		[DEEPSPEED_HARMLESS] = "harmless",
		[DEEPSPEED_UNSUPPORTED] = "unsupported",
		[DEEPSPEED_UNKNOWN] = "unknown"};

	return names[kind];
}

static void note(struct conversion *c, struct spec_place at, const char *key,
	enum deepspeed_kind kind, const char *format, ...) __attribute__((format(printf, 5, 6)));

static void note(struct conversion *c, struct spec_place at, const char *key,
	enum deepspeed_kind kind, const char *format, ...)
{
	struct deepspeed_import *out = c->out;
	struct deepspeed_note *added;
	char text[400];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	out->notes = memory_resized(out->notes, (out->n_notes + 1) * sizeof(*out->notes));
	added = &out->notes[out->n_notes++];
	*added = (struct deepspeed_note){.at = at, .kind = kind, .text = memory_text(text)};
	snprintf(added->key, sizeof(added->key), "%s", key);
}

/* ---- the file ---- */

/* The node of a dotted key; NULL: not in the file, or null. */
static const struct spec_json_node *find(const struct conversion *c, const char *key)
{
	const struct spec_json_node *node = spec_json_find(c->json, &c->json->node[0], key);

	return node && node->type != SPEC_JSON_NULL ? node : NULL;
}

static bool is_text(const struct spec_json_node *node, const char *text)
{
	return node && node->type == SPEC_JSON_STRING && strcasecmp(node->text, text) == 0;
}

static bool is_true(const struct conversion *c, const char *key)
{
	const struct spec_json_node *node = find(c, key);

	return node && node->type == SPEC_JSON_TRUE;
}

/* Whether the file sets it: a number, true, or a text other than "auto". */
static bool has_value(const struct conversion *c, const char *key)
{
	const struct spec_json_node *node = find(c, key);

	return node && !is_text(node, "auto");
}

/* ---- values that others depend on ---- */

/* The value of --set for the key; NULL: none. */
static const char *set_of(const struct conversion *c, const char *key)
{
	return spec_draft_set_of(c->sets, c->n_sets, key);
}

/* The same, if it is a JSON number. */
static const char *number_of(const struct conversion *c, const char *key)
{
	struct spec_errors *ignored = memory_zeroed(1, sizeof(*ignored));
	const char *set = set_of(c, key), *found = NULL;
	struct spec_json json = {0};

	if (set && spec_json_parse(set, strlen(set), &json, ignored) == 0) {
		found = json.node[0].type == SPEC_JSON_NUMBER ? set : NULL;
		spec_json_finish(&json);
	}
	free(ignored);
	return found;
}

static int stage(const struct conversion *c)
{
	const struct spec_json_node *node = find(c, "zero_optimization.stage");
	const char *text = number_of(c, "zero_optimization.stage");
	int64_t value = 0;

	if (!text && !node)
		return is_true(c, "zero_optimization");
	if (!text)
		text = node->type == SPEC_JSON_NUMBER ? node->text : "0";
	return spec_json_int64(text, &value) == SPEC_JSON_WHOLE && value > 0 && value <= 3
		? (int)value
		: 0;
}

/* n_embd of --set; 0: not known. */
static int64_t width(const struct conversion *c)
{
	const char *preset = set_of(c, "model.preset"), *given = number_of(c, "model.n_embd");
	int64_t value;

	if (given)
		return spec_json_int64(given, &value) == SPEC_JSON_WHOLE && value > 0 &&
				value <= spec_table[SPEC_KEY_MODEL_N_EMBD].max
			? value
			: 0;
	preset = preset ? preset : set_of(c, "model");
	for (size_t i = 0; preset && i < SPEC_PRESETS; i++)
		if (strcmp(spec_presets[i].name, preset) == 0)
			return spec_presets[i].n_embd;
	return 0;
}

static const char *compute_type(const struct conversion *c)
{
	if (is_true(c, "fp16.enabled"))
		return "fp16";
	return is_true(c, "bf16.enabled") || is_true(c, "bfloat16.enabled") ? "bf16" : "fp32";
}

/* The optimizer's rate, as JSON. */
static const char *rate(const struct conversion *c)
{
	const struct spec_json_node *node = find(c, "optimizer.params.lr");
	const char *set = number_of(c, "optimizer.params.lr");

	if (set)
		return set;
	if (node && node->type == SPEC_JSON_NUMBER)
		return node->text;
	return is_text(node, "auto") ? "5e-5" : "0.001";
}

static bool has_schedule(const struct conversion *c)
{
	const struct spec_json_node *type = find(c, "scheduler.type");

	return is_text(type, "WarmupLR") || is_text(type, "WarmupDecayLR") ||
		is_text(type, "WarmupCosineLR");
}

/* ---- converting a key ---- */

/* Takes text. */
static void put(struct conversion *c, enum spec_key key, struct spec_place at, char *text)
{
	spec_draft_put(&c->out->draft, key, at, text);
}

/* Notes of one member. */
static void harmless(struct conversion *c, const struct member *m, const char *why)
{
	note(c, m->node->at, m->key, DEEPSPEED_HARMLESS, "%s", why);
}

static void unsupported(struct conversion *c, const struct member *m, const char *why)
{
	note(c, m->node->at, m->key, DEEPSPEED_UNSUPPORTED, "%s", why);
}

/* "auto": value as JSON (NULL: the spec's default), with its source. --set has precedence. */
static void take_auto(
	struct conversion *c, const struct member *m, const char *value, const char *source)
{
	const struct spec_row *to = &spec_table[m->row->to];
	const char *set = set_of(c, to->key);

	if (set) {
		note(c, m->node->at, m->key, DEEPSPEED_AUTO, "%s, from --set", set);
		return;
	}
	if (value)
		put(c, m->row->to, m->node->at, memory_text(value));
	if (value)
		note(c, m->node->at, m->key, DEEPSPEED_AUTO, "%s, %s", value, source);
	else if (source)
		note(c, m->node->at, m->key, DEEPSPEED_AUTO, "%s", source);
	else
		note(c, m->node->at, m->key, DEEPSPEED_AUTO, "%s, the default",
			to->fallback ? to->fallback : to->fallback_help);
}

static bool is_auto(const struct member *m)
{
	return is_text(m->node, "auto");
}

static void take_same(struct conversion *c, const struct member *m)
{
	if (m->node->type == SPEC_JSON_NULL)
		harmless(c, m, "null, the same as absent");
	else if (is_auto(m))
		take_auto(c, m, m->row->automatic, m->row->text);
	else
		put(c, m->row->to, m->node->at, spec_draft_json(c->json, m->node));
}

/* Whether the node is one of the values of "false|null|1". */
static bool is_one_of(const struct spec_json_node *node, const char *values)
{
	static const char *const words[] = {[SPEC_JSON_NULL] = "null",
		[SPEC_JSON_FALSE] = "false",
		[SPEC_JSON_TRUE] = "true",
		[SPEC_JSON_ARRAY] = "array",
		[SPEC_JSON_OBJECT] = "object"};
	const char *text = node->text ? node->text : words[node->type];
	double value, inert;

	while (*values) {
		const size_t n = strcspn(values, "|");
		char one[24];

		snprintf(one, sizeof(one), "%.*s", (int)n, values);
		if (strcasecmp(one, text) == 0)
			return true;
		if (node->type == SPEC_JSON_NUMBER && strspn(one, "-0123456789") == n &&
			spec_json_real(text, &value) == 0 && spec_json_real(one, &inert) == 0 &&
			value <= inert && value >= inert)
			return true;
		values += n + (values[n] == '|');
	}
	return false;
}

static void take_off(struct conversion *c, const struct member *m)
{
	const struct spec_json_node *node = m->node;
	char inner[PATH_BYTES];

	if (m->row->member && node->type == SPEC_JSON_OBJECT) {
		snprintf(inner, sizeof(inner), "%s.%s", m->key, m->row->member);
		node = find(c, inner);
	}
	if (!node || is_one_of(node, m->row->inert))
		harmless(c, m, node == m->node ? "gpt2d has the same value" : "off");
	else
		unsupported(c, m, m->row->text);
}

static void take_stage3(struct conversion *c, const struct member *m)
{
	char why[64];

	snprintf(why, sizeof(why), "no effect at stage %d", stage(c));
	if (stage(c) < 3)
		harmless(c, m, why);
	else if (is_auto(m))
		unsupported(c, m, m->row->text);
	else
		take_off(c, m);
}

static void take_no_effect(struct conversion *c, const struct member *m)
{
	harmless(c, m, m->row->text);
}

static void take_group(struct conversion *c, const struct member *m)
{
	char found[96];

	if (m->node->type == SPEC_JSON_OBJECT)
		walk(c, m->node, m->key);
	else if (m->node->type == SPEC_JSON_NULL)
		harmless(c, m, "null, the same as absent");
	else
		spec_error_add(c->errors, m->node->at, m->key, "an object expected, found %s",
			spec_json_describe(m->node, found, sizeof(found)));
}

/* ---- the sizes of a batch ---- */

static bool batch_says(const struct conversion *c, const char *key)
{
	return has_value(c, key) || set_of(c, key);
}

static void take_micro_batch(struct conversion *c, const struct member *m)
{
	if (is_auto(m) && batch_says(c, "train_batch_size"))
		take_auto(c, m, NULL, "train_batch_size / (gradient_accumulation_steps x gpus)");
	else if (is_auto(m))
		take_auto(c, m, "8", "Transformers' default of per_device_train_batch_size");
	else
		take_same(c, m);
}

static void take_accumulation(struct conversion *c, const struct member *m)
{
	if (is_auto(m) && batch_says(c, "train_batch_size") &&
		batch_says(c, "train_micro_batch_size_per_gpu"))
		take_auto(c, m, NULL, "train_batch_size / (train_micro_batch_size_per_gpu x gpus)");
	else if (is_auto(m))
		take_auto(c, m, "1", "Transformers' default of gradient_accumulation_steps");
	else
		take_same(c, m);
}

/* ---- optimizer and schedule ---- */

static void take_optimizer_type(struct conversion *c, const struct member *m)
{
	put(c, m->row->to, m->node->at, memory_text("\"AdamW\""));
	if (is_text(m->node, "Adam"))
		note(c, m->node->at, m->key, DEEPSPEED_MAPPED,
			"AdamW, which DeepSpeed's Adam is unless adam_w_mode is false");
	else if (m->node->type == SPEC_JSON_NULL || is_auto(m))
		harmless(c, m, "gpt2d uses AdamW");
	else if (!is_text(m->node, "AdamW"))
		unsupported(c, m, "gpt2d supports AdamW only and uses it instead");
}

static void take_adam_w_mode(struct conversion *c, const struct member *m)
{
	const struct spec_json_node *decay = find(c, "optimizer.params.weight_decay");

	if (is_one_of(m->node, "true|null") || is_text(find(c, "optimizer.type"), "AdamW"))
		harmless(c, m, "weight decay is decoupled, as in gpt2d");
	else if (!decay || is_one_of(decay, "0"))
		harmless(c, m, "no effect without weight decay");
	else
		unsupported(c, m, "gpt2d has no L2 decay, weight decay is decoupled");
}

static void take_scheduler_type(struct conversion *c, const struct member *m)
{
	static const char *const names[] = {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (is_text(m->node, names[i]))
			put(c, m->row->to, m->node->at, memory_printed("\"%s\"", names[i]));
	if (m->node->type == SPEC_JSON_NULL)
		harmless(c, m, "null, the same as absent");
	else if (!has_schedule(c))
		unsupported(c, m, "gpt2d has no such schedule, the rate is constant");
}

static void take_scheduler_params(struct conversion *c, const struct member *m)
{
	if (has_schedule(c) || m->node->type != SPEC_JSON_OBJECT)
		take_group(c, m);
	else
		unsupported(c, m, "for a schedule that gpt2d does not have");
}

static void take_max_lr(struct conversion *c, const struct member *m)
{
	if (is_auto(m))
		take_auto(c, m, rate(c), "the optimizer's lr, as in Transformers");
	else
		take_same(c, m);
}

static void take_total_steps(struct conversion *c, const struct member *m)
{
	const char *steps = number_of(c, "work.optimizer_steps");

	if (is_auto(m) && (steps || set_of(c, spec_table[m->row->to].key)))
		take_auto(c, m, steps, "work.optimizer_steps of --set");
	else if (is_auto(m) && is_text(find(c, "scheduler.type"), "WarmupLR"))
		harmless(c, m, "WarmupLR has no end");
	else if (!is_auto(m)) /* else it is missing */
		take_same(c, m);
}

/* An object, or in old files true or false. */
static void take_zero(struct conversion *c, const struct member *m)
{
	const bool on = m->node->type == SPEC_JSON_TRUE;

	if (!on && m->node->type != SPEC_JSON_FALSE) {
		take_group(c, m);
		return;
	}
	put(c, m->row->to, m->node->at, memory_text(on ? "1" : "0"));
	note(c, m->node->at, m->key, DEEPSPEED_MAPPED, "zero_optimization.stage %d", on);
}

static void take_overlap(struct conversion *c, const struct member *m)
{
	const char *value = stage(c) == 3 ? "true" : "false";
	char source[64];

	snprintf(source, sizeof(source), "DeepSpeed's default at stage %d", stage(c));
	if (is_auto(m) || m->node->type == SPEC_JSON_NULL)
		take_auto(c, m, value, source);
	else
		take_same(c, m);
}

/* factor x width: Transformers' value for the word. */
static void take_by_width(
	struct conversion *c, const struct member *m, int64_t factor, const char *source)
{
	char value[32], otherwise[128];

	if (factor > 0) {
		snprintf(value, sizeof(value), "%" PRId64, factor * width(c));
		take_auto(c, m, value, source);
		return;
	}
	snprintf(otherwise, sizeof(otherwise),
		"the default; with --set model=PRESET it would be %s", source);
	take_auto(c, m, spec_table[m->row->to].fallback, otherwise);
}

static void take_reduce_bucket(struct conversion *c, const struct member *m)
{
	if (is_auto(m))
		take_by_width(c, m, width(c), "the model's n_embd squared, as in Transformers");
	else
		take_same(c, m);
}

static void take_persistence(struct conversion *c, const struct member *m)
{
	if (stage(c) < 3)
		take_stage3(c, m);
	else if (is_auto(m))
		take_by_width(
			c, m, width(c) ? 10 : 0, "10 times the model's n_embd, as in Transformers");
	else
		take_same(c, m);
}

/*
 * DeepSpeed's object configures checkpoints that the model's code requests; it does not turn them
 * on. A user who sets one of its options probably has some.
 */
static void take_checkpointing(struct conversion *c, const struct member *m)
{
	const struct spec_json_node *number =
		find(c, "activation_checkpointing.number_checkpoints");
	const bool full = is_true(c, "activation_checkpointing.partition_activations") ||
		is_true(c, "activation_checkpointing.cpu_checkpointing") ||
		is_true(c, "activation_checkpointing.contiguous_memory_optimization") ||
		(number && !is_one_of(number, "0"));

	if (m->node->type != SPEC_JSON_OBJECT) {
		take_group(c, m);
		return;
	}
	put(c, m->row->to, m->node->at, memory_text(full ? "\"full\"" : "\"none\""));
	if (full)
		note(c, m->node->at, m->key, DEEPSPEED_MAPPED,
			"\"full\": an option of checkpoints is on");
	else
		note(c, m->node->at, m->key, DEEPSPEED_MAPPED,
			"\"none\": no option of it is on; if the model's code makes checkpoints: "
			"--set activation_checkpointing=full");
	walk(c, m->node, m->key);
}

static void take_reduced_type(struct conversion *c, const struct member *m)
{
	take_same(c, m);
	if (m->node->type == SPEC_JSON_STRING && !is_auto(m))
		note(c, m->node->at, m->key, DEEPSPEED_MAPPED, "grad_dtype \"%.16s\"",
			m->node->text);
}

static void take_accumulated_type(struct conversion *c, const struct member *m)
{
	if (m->node->type == SPEC_JSON_NULL || is_text(m->node, compute_type(c)))
		harmless(c, m, "gradients are summed in the compute type, as in gpt2d");
	else
		unsupported(c, m, "gpt2d sums gradients in the compute type");
}

static void (*const takes[DEEPSPEED_USES])(struct conversion *c, const struct member *m) = {
	[DEEPSPEED_SAME] = take_same,
	[DEEPSPEED_GROUP] = take_group,
	[DEEPSPEED_NO_EFFECT] = take_no_effect,
	[DEEPSPEED_OFF] = take_off,
	[DEEPSPEED_STAGE3] = take_stage3,
	[DEEPSPEED_MICRO_BATCH] = take_micro_batch,
	[DEEPSPEED_ACCUMULATION] = take_accumulation,
	[DEEPSPEED_OPTIMIZER_TYPE] = take_optimizer_type,
	[DEEPSPEED_ADAM_W_MODE] = take_adam_w_mode,
	[DEEPSPEED_SCHEDULER_TYPE] = take_scheduler_type,
	[DEEPSPEED_SCHEDULER_PARAMS] = take_scheduler_params,
	[DEEPSPEED_MAX_LR] = take_max_lr,
	[DEEPSPEED_TOTAL_STEPS] = take_total_steps,
	[DEEPSPEED_ZERO] = take_zero,
	[DEEPSPEED_OVERLAP] = take_overlap,
	[DEEPSPEED_REDUCE_BUCKET] = take_reduce_bucket,
	[DEEPSPEED_PERSISTENCE] = take_persistence,
	[DEEPSPEED_CHECKPOINTING] = take_checkpointing,
	[DEEPSPEED_REDUCED_TYPE] = take_reduced_type,
	[DEEPSPEED_ACCUMULATED_TYPE] = take_accumulated_type,
};

/* ---- the whole file ---- */

static const struct deepspeed_row *find_row(const char *key)
{
	for (size_t i = 0; i < deepspeed_rows; i++)
		if (strcmp(deepspeed_table[i].key, key) == 0)
			return &deepspeed_table[i];
	return NULL;
}

/* A key that DeepSpeed does not have either, with the nearest one of the same object. */
static void unknown(struct conversion *c, const struct member *m, const char *path)
{
	const size_t n = strlen(path), skip = n ? n + 1 : 0;
	const char *names[256], *near;
	size_t n_names = 0;

	for (size_t i = 0; i < deepspeed_rows && n_names < 256; i++) {
		const char *key = deepspeed_table[i].key;

		if (strncmp(key, path, n) == 0 && (!n || key[n] == '.') && !strchr(key + skip, '.'))
			names[n_names++] = key + skip;
	}
	near = suggest_nearest(m->node->key, names, n_names);
	note(c, m->node->at, m->key, DEEPSPEED_UNKNOWN, "DeepSpeed has no such key%s%s%s",
		near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static void walk(struct conversion *c, const struct spec_json_node *object, const char *path)
{
	for (uint32_t i = object->child; i; i = c->json->node[i].next) {
		struct member m = {.node = &c->json->node[i]};
		const struct spec_row *same;
		char key[PATH_BYTES];

		if (m.node->duplicate)
			continue;
		snprintf(key, sizeof(key), "%s%s%.120s", path, *path ? "." : "",
			*m.node->key ? m.node->key : "\"\"");
		m.key = key;
		m.row = strchr(m.node->key, '.') ? NULL : find_row(key);
		same = m.row ? spec_table_find(key) : NULL;
		if (same)
			c->out->draft.at[same - spec_table] = m.node->at;
		if (m.row)
			takes[m.row->use](c, &m);
		else if (spec_table_note(m.node->key))
			harmless(c, &m, "a note");
		else
			unknown(c, &m, path);
	}
}

/* Defaults of DeepSpeed that differ from those of a spec. */
static void take_defaults(struct conversion *c)
{
	const struct spec_place nowhere = {0};
	const struct spec_json_node *given = find(c, "zero_optimization.stage");
	const char *value = stage(c) == 3 ? "true" : "false";

	if (!c->out->draft.value[SPEC_KEY_OVERLAP_COMM] &&
		!set_of(c, "zero_optimization.overlap_comm")) {
		put(c, SPEC_KEY_OVERLAP_COMM, nowhere, memory_text(value));
		note(c, nowhere, "zero_optimization.overlap_comm", DEEPSPEED_DEFAULT,
			"%s, DeepSpeed's default at stage %d", value, stage(c));
	}
	if (stage(c) > 1)
		note(c, given ? given->at : nowhere, "zero_optimization.stage",
			DEEPSPEED_UNSUPPORTED,
			"no engine can run stage %d yet; try --set zero_optimization.stage=1",
			stage(c));
	if (is_text(find(c, "scheduler.type"), "WarmupLR") &&
		!find(c, "scheduler.params.warmup_max_lr") &&
		!set_of(c, "scheduler.params.warmup_max_lr")) {
		put(c, SPEC_KEY_WARMUP_MAX_LR, nowhere, memory_text(rate(c)));
		note(c, nowhere, "scheduler.params.warmup_max_lr", DEEPSPEED_DEFAULT,
			"%s, the optimizer's lr, as in DeepSpeed 0.19 (before: 0.001)", rate(c));
	}
	if (!find(c, "optimizer"))
		note(c, nowhere, "optimizer", DEEPSPEED_DEFAULT,
			"AdamW with gpt2d's defaults; with DeepSpeed, the script creates the "
			"optimizer");
}

int deepspeed_import(const char *text, size_t n, const char *const *sets, size_t n_sets,
	struct deepspeed_import *out, struct spec_errors *errors)
{
	struct conversion c = {.sets = sets, .n_sets = n_sets, .out = out, .errors = errors};
	struct spec_json json = {0};

	*out = (struct deepspeed_import){0};
	if (spec_json_parse_object(text, n, &json, errors) != 0)
		return -EINVAL;
	c.json = &json;
	walk(&c, &json.node[0], "");
	take_defaults(&c);
	spec_json_finish(&json);
	return errors->n > 0 ? -EINVAL : 0;
}

void deepspeed_finish(struct deepspeed_import *import)
{
	for (size_t i = 0; i < import->n_notes; i++)
		free(import->notes[i].text);
	free(import->notes);
	spec_draft_finish(&import->draft);
	*import = (struct deepspeed_import){0};
}
