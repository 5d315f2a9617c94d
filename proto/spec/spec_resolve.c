#include "proto/spec/spec_resolve.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "proto/spec/spec_error.h"
#include "proto/spec/spec_value.h"

bool spec_resolve_given(const struct spec_resolving *r, enum spec_key key)
{
	return r->values.value[key].state == SPEC_GIVEN;
}

bool spec_resolve_wrong(const struct spec_resolving *r, enum spec_key key)
{
	return r->values.value[key].state == SPEC_WRONG;
}

void spec_resolve_complain(
	const struct spec_resolving *r, enum spec_key key, const char *format, ...)
{
	const struct spec_value *v = &r->values.value[key];
	char message[512], path[256];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	snprintf(path, sizeof(path), "%s%s%s%s%s", v->from_set ? "--set " : "",
		v->from_arm ? "arms." : "", v->from_arm ? r->arm : "", v->from_arm ? "." : "",
		spec_table[key].key);
	spec_error_add(r->errors, v->line, path, "%s", message);
}

static enum spec_key parent_of(enum spec_key key)
{
	for (size_t i = key; i > 0; i--)
		if (spec_table[i].type == SPEC_TYPE_OBJECT && i != key &&
			spec_table_inside(&spec_table[key], spec_table[i].key))
			return (enum spec_key)i;
	return key;
}

/*
 * A key that is not there is missing where the key that asks for it stands (in the arm that chose
 * another data.kind, say), or else its object.
 */
static void complain_missing(
	struct spec_resolving *r, enum spec_key key, enum spec_key asks, const char *message)
{
	struct spec_value saved = r->values.value[key];

	if (spec_resolve_wrong(r, key) || spec_resolve_wrong(r, asks))
		return;
	if (!spec_resolve_given(r, asks))
		asks = parent_of(key);
	if (spec_resolve_given(r, asks))
		r->values.value[key] = r->values.value[asks];
	spec_resolve_complain(r, key, "%s", message);
	r->values.value[key] = saved;
}

/* Of two keys that contradict each other, the one said last: by --set, by an arm, in the base. */
static enum spec_key later(const struct spec_resolving *r, enum spec_key a, enum spec_key b)
{
	const struct spec_value *x = &r->values.value[a], *y = &r->values.value[b];
	int rank_x = 4 * x->from_set + 2 * x->from_arm + (x->state == SPEC_GIVEN);
	int rank_y = 4 * y->from_set + 2 * y->from_arm + (y->state == SPEC_GIVEN);

	return rank_y > rank_x ? b : a;
}

/* Does the key mean anything beside the choice it hangs on? */
static bool applies(struct spec_resolving *r, enum spec_key key)
{
	const struct spec_row *row = &spec_table[key];
	int choice = r->values.value[row->only_key].choice;

	if (!row->only_mask || spec_resolve_wrong(r, row->only_key))
		return true;
	if (row->only_mask & 1U << choice)
		return true;
	if (spec_resolve_given(r, key))
		spec_resolve_complain(r, key, "has no meaning with %s \"%s\"",
			spec_table[row->only_key].key,
			spec_table_choice(spec_table[row->only_key].choices, choice));
	return false;
}

static void store_values(struct spec_resolving *r)
{
	for (size_t i = 0; i < SPEC_KEY_COUNT; i++) {
		const struct spec_row *row = &spec_table[i];
		const struct spec_value *v = &r->values.value[i];

		if (row->scope != SPEC_SCOPE_CONFIG || row->field == SPEC_NO_FIELD)
			continue;
		if (v->state != SPEC_GIVEN && v->state != SPEC_DEFAULT)
			continue;
		if (applies(r, (enum spec_key)i))
			spec_value_store(row, v, (char *)r->config + row->field);
	}
}

static bool is_preset(const struct spec_model *m, const struct spec_preset *p)
{
	return m->n_layer == p->n_layer && m->n_head == p->n_head && m->n_embd == p->n_embd &&
		m->vocab_size == p->vocab_size && m->n_positions == p->n_positions &&
		m->tied_head && m->gelu == SPEC_GELU_TANH && fpclassify(m->dropout) == FP_ZERO;
}

static void resolve_model(struct spec_resolving *r)
{
	struct spec_model *m = &r->config->model;
	const struct spec_preset *p =
		&spec_presets[spec_resolve_given(r, SPEC_KEY_MODEL_PRESET)
					? r->values.value[SPEC_KEY_MODEL_PRESET].choice
					: SPEC_PRESET_CUSTOM];
	struct {
		enum spec_key key;
		int64_t *field, preset;
	} shape[] = {
		{SPEC_KEY_MODEL_N_LAYER, &m->n_layer, p->n_layer},
		{SPEC_KEY_MODEL_N_HEAD, &m->n_head, p->n_head},
		{SPEC_KEY_MODEL_N_EMBD, &m->n_embd, p->n_embd},
		{SPEC_KEY_MODEL_VOCAB_SIZE, &m->vocab_size, p->vocab_size},
		{SPEC_KEY_MODEL_N_POSITIONS, &m->n_positions, p->n_positions},
	};
	bool any = spec_resolve_given(r, SPEC_KEY_MODEL_PRESET);

	if (spec_resolve_wrong(r, SPEC_KEY_MODEL) || spec_resolve_wrong(r, SPEC_KEY_MODEL_PRESET))
		return;
	for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++)
		any = any || r->values.value[shape[i].key].state != SPEC_ABSENT;
	if (!any) {
		spec_resolve_complain(r, SPEC_KEY_MODEL,
			"required: a preset (gpt2, gpt2-medium, gpt2-large, gpt2-xl, nano) or a "
			"shape");
		return;
	}
	for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
		if (r->values.value[shape[i].key].state != SPEC_ABSENT)
			continue;
		*shape[i].field = shape[i].preset;
		if (shape[i].preset == 0)
			complain_missing(r, shape[i].key, SPEC_KEY_MODEL_PRESET,
				"required, no preset gives it");
	}
	strcpy(m->preset, is_preset(m, p) ? p->name : "custom");
}

static void check_shape(struct spec_resolving *r)
{
	const struct spec_config *c = r->config;
	const struct spec_model *m = &c->model;

	if (m->n_embd > 0 && m->n_head > 0 && m->n_embd % m->n_head != 0)
		spec_resolve_complain(r,
			later(r, later(r, SPEC_KEY_MODEL_N_EMBD, SPEC_KEY_MODEL_N_HEAD),
				SPEC_KEY_MODEL_PRESET),
			"n_embd %" PRId64 " is not a multiple of n_head %" PRId64, m->n_embd,
			m->n_head);
	if (c->seq_len > 0 && m->n_positions > 0 && c->seq_len > m->n_positions)
		spec_resolve_complain(r,
			later(r, SPEC_KEY_SEQ_LEN,
				later(r, SPEC_KEY_MODEL_N_POSITIONS, SPEC_KEY_MODEL_PRESET)),
			"seq_len %" PRId64 " is more than the model's n_positions %" PRId64,
			c->seq_len, m->n_positions);
	if (r->values.value[SPEC_KEY_SEQ_LEN].state == SPEC_ABSENT)
		spec_resolve_complain(r, SPEC_KEY_SEQ_LEN, "required: tokens of a sequence");
}

/* Removes the first bytes of path, and the slashes after them. */
static void path_cut(char *path, size_t bytes)
{
	bytes += strspn(path + bytes, "/");
	memmove(path, path + bytes, strlen(path + bytes) + 1);
}

/* base has no links: what ".." leads to from there is its name without the last part. */
static void absolute_path(struct spec_resolving *r, enum spec_key key, char path[SPEC_PATH_MAX])
{
	const char *base = r->options->base_dir;
	char whole[2 * SPEC_PATH_MAX];
	size_t n;

	if (!path[0] || path[0] == '/')
		return;
	if (!base || base[0] != '/') {
		spec_resolve_complain(r, key,
			"\"%.200s\" is a relative path, an absolute one is needed here", path);
		return;
	}
	n = strlen(base);
	while (n > 0 && base[n - 1] == '/')
		n--;
	for (;;) {
		const size_t up = strncmp(path, "../", 3) == 0;

		if (!up && strncmp(path, "./", 2) != 0)
			break;
		path_cut(path, up ? 3 : 2);
		while (up && n > 0 && base[--n] != '/')
			;
	}
	if (n + 1 + strlen(path) >= SPEC_PATH_MAX) {
		spec_resolve_complain(r, key,
			"a path of %zu bytes with the spec's folder, at most %d",
			n + 1 + strlen(path), SPEC_PATH_MAX - 1);
		return;
	}
	snprintf(whole, sizeof(whole), "%.*s/%s", (int)n, base, path);
	memset(path, 0, SPEC_PATH_MAX);
	memcpy(path, whole, strlen(whole));
}

static void resolve_data(struct spec_resolving *r)
{
	struct spec_config *c = r->config;

	if (spec_resolve_wrong(r, SPEC_KEY_DATA) || spec_resolve_wrong(r, SPEC_KEY_DATA_KIND))
		return;
	absolute_path(r, SPEC_KEY_DATA_TRAIN, c->data_train);
	absolute_path(r, SPEC_KEY_DATA_VAL, c->data_val);
	if (c->data_kind != SPEC_DATA_FILE)
		return;
	if (!c->data_train[0])
		complain_missing(r, SPEC_KEY_DATA_TRAIN, SPEC_KEY_DATA_KIND,
			"required: a token file (or data.kind \"synthetic\")");
	if (!c->data_val[0] && c->validation_steps > 0 && !spec_resolve_wrong(r, SPEC_KEY_DATA_VAL))
		spec_resolve_complain(r, SPEC_KEY_VALIDATION_STEPS,
			"%" PRId64 " is not allowed without data.val", c->validation_steps);
}

static void resolve_schedule(struct spec_resolving *r)
{
	const struct spec_config *c = r->config;

	if (spec_resolve_wrong(r, SPEC_KEY_SCHEDULER_TYPE) ||
		spec_resolve_wrong(r, SPEC_KEY_TOTAL_NUM_STEPS) ||
		spec_resolve_wrong(r, SPEC_KEY_WARMUP_NUM_STEPS))
		return;
	if (c->schedule != SPEC_WARMUP_DECAY_LR && c->schedule != SPEC_WARMUP_COSINE_LR)
		return;
	if (c->total_num_steps == 0)
		complain_missing(r, SPEC_KEY_TOTAL_NUM_STEPS, SPEC_KEY_SCHEDULER_TYPE,
			"required with WarmupDecayLR and WarmupCosineLR");
	else if (c->total_num_steps < c->warmup_num_steps)
		spec_resolve_complain(r,
			later(r, SPEC_KEY_TOTAL_NUM_STEPS, SPEC_KEY_WARMUP_NUM_STEPS),
			"total_num_steps %" PRId64 " is less than warmup_num_steps %" PRId64,
			c->total_num_steps, c->warmup_num_steps);
}

static void resolve_precision(struct spec_resolving *r)
{
	static const enum spec_key flags[] = {
		SPEC_KEY_TF32, SPEC_KEY_BF16_ENABLED, SPEC_KEY_FP16_ENABLED};
	static const enum spec_precision kinds[] = {SPEC_TF32, SPEC_BF16, SPEC_FP16};
	const struct spec_choice *grad_dtypes = spec_table[SPEC_KEY_GRAD_DTYPE].choices;
	struct spec_config *c = r->config;
	enum spec_precision compute;
	int last = -1;

	c->precision = SPEC_FP32;
	for (int i = 0; i < 3; i++) {
		const struct spec_value *v = &r->values.value[flags[i]];

		if (v->state == SPEC_WRONG)
			return;
		if (v->state == SPEC_ABSENT || !v->b)
			continue;
		if (last >= 0)
			spec_resolve_complain(r, later(r, flags[i], flags[last]),
				"%s and %s are both on, one at most", spec_table[flags[last]].key,
				spec_table[flags[i]].key);
		last = i;
		c->precision = kinds[i];
	}
	compute = c->precision == SPEC_TF32 ? SPEC_FP32 : c->precision;
	if (c->grad_dtype == SPEC_TF32) /* "auto" */
		c->grad_dtype = compute;
	else if (c->grad_dtype != SPEC_FP32 && c->grad_dtype != compute)
		spec_resolve_complain(r, SPEC_KEY_GRAD_DTYPE,
			"\"%s\" is not allowed, only \"fp32\" and the compute type, here \"%s\"",
			spec_table_choice(grad_dtypes, (int)c->grad_dtype),
			spec_table_choice(grad_dtypes, (int)compute));
	if (ldexp(1, (int)c->fp16_initial_scale_power) < c->fp16_min_loss_scale)
		spec_resolve_complain(r,
			later(r, SPEC_KEY_MIN_LOSS_SCALE, SPEC_KEY_INITIAL_SCALE_POWER),
			"min_loss_scale is greater than the first scale, 2^%" PRId64,
			c->fp16_initial_scale_power);
}

static void resolve_config(struct spec_resolving *r)
{
	store_values(r);
	resolve_model(r);
	check_shape(r);
	resolve_data(r);
	resolve_schedule(r);
	resolve_precision(r);
	spec_resolve_work(r);
}

static void fill_defaults(struct spec_layer *values, const struct spec_layer *defaults)
{
	for (size_t i = 0; i < SPEC_KEY_COUNT; i++)
		if (values->value[i].state == SPEC_ABSENT)
			values->value[i] = defaults->value[i];
}

/* Keys of the run itself; design only where there are arms to order. */
static void resolve_run(const struct spec_source *source, const struct spec_options *options,
	struct spec *spec, struct spec_errors *errors)
{
	struct spec_resolving r = {.options = options, .errors = errors, .values = source->base};

	fill_defaults(&r.values, &source->defaults);
	for (size_t i = 0; i < SPEC_KEY_COUNT; i++) {
		const struct spec_row *row = &spec_table[i];
		bool design = !strncmp(row->key, "design.", 7);

		if (row->scope != SPEC_SCOPE_RUN || row->field == SPEC_NO_FIELD)
			continue;
		if (design && !source->has_arms && spec_resolve_given(&r, (enum spec_key)i))
			spec_resolve_complain(&r, (enum spec_key)i, "has no meaning without arms");
		if (spec_resolve_wrong(&r, (enum spec_key)i))
			continue;
		spec_value_store(row, &r.values.value[i], spec_table_field(row, spec, 0));
	}
	spec->has_arms = source->has_arms;
}

void spec_resolve(const struct spec_source *source, const struct spec_options *options,
	struct spec *spec, struct spec_errors *errors)
{
	struct spec_resolving r = {.options = options, .errors = errors};

	resolve_run(source, options, spec, errors);
	if (source->n_arms == 0) {
		spec->n_arms = 1;
		strcpy(spec->arms[0].name, "run");
		r.values = source->base;
		fill_defaults(&r.values, &source->defaults);
		r.config = &spec->arms[0].config;
		resolve_config(&r);
		return;
	}
	spec->n_arms = source->n_arms;
	for (size_t i = 0; i < source->n_arms; i++) {
		strcpy(spec->arms[i].name, source->arms[i].name);
		r.arm = source->arms[i].name;
		r.values = source->base;
		spec_layer_put(&r.values, &source->arms[i].layer);
		fill_defaults(&r.values, &source->defaults);
		r.config = &spec->arms[i].config;
		resolve_config(&r);
	}
	spec_resolve_arms(source, spec, errors);
}
