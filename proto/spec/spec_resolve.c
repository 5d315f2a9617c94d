#include "proto/spec/spec_resolve.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/host/memory.h"
#include "proto/stats/verdict.h"

/* Defaults that the table gives in words. */
enum { WARMUP_STEPS = 5, WARMUP_NUM_STEPS = 1000 };
static const double COS_MIN_RATIO = 1e-4;

/* One configuration during resolution. */
struct resolving {
	const struct spec_options *options;
	struct spec_errors *errors;
	struct spec_layer values; /* arm over base over defaults */
	const char *arm;          /* NULL: the base, or a spec without arms */
	struct spec_config *config;
};

static bool given(const struct resolving *r, enum spec_key key)
{
	return r->values.value[key].state == SPEC_GIVEN;
}

static bool wrong(const struct resolving *r, enum spec_key key)
{
	return r->values.value[key].state == SPEC_WRONG;
}

/* Reports at the place of key's value. */
static void complain(const struct resolving *r, enum spec_key key, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static void complain(const struct resolving *r, enum spec_key key, const char *format, ...)
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
	spec_error_add(r->errors, v->at, path, "%s", message);
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
 * A missing key is reported at the key that requires it (in the arm that chose another data.kind,
 * say), or else at its object.
 */
static void complain_missing(
	struct resolving *r, enum spec_key key, enum spec_key asks, const char *message)
{
	struct spec_value saved = r->values.value[key];

	if (wrong(r, key) || wrong(r, asks))
		return;
	if (!given(r, asks))
		asks = parent_of(key);
	if (given(r, asks))
		r->values.value[key] = r->values.value[asks];
	complain(r, key, "%s", message);
	r->values.value[key] = saved;
}

/* The later one of two contradictory keys: from --set, an arm, the base. */
static enum spec_key later(const struct resolving *r, enum spec_key a, enum spec_key b)
{
	const struct spec_value *x = &r->values.value[a], *y = &r->values.value[b];
	int rank_x = 4 * x->from_set + 2 * x->from_arm + (x->state == SPEC_GIVEN);
	int rank_y = 4 * y->from_set + 2 * y->from_arm + (y->state == SPEC_GIVEN);

	return rank_y > rank_x ? b : a;
}

/* Whether the key applies with the value that it depends on. */
static bool applies(struct resolving *r, enum spec_key key)
{
	const struct spec_row *row = &spec_table[key], *only = &spec_table[row->only_key];
	const struct spec_value *v = &r->values.value[row->only_key];
	const int value = only->type == SPEC_TYPE_INT ? (int)v->i : v->choice;

	if (!row->only_mask || wrong(r, row->only_key))
		return true;
	if (row->only_mask & 1U << value)
		return true;
	if (given(r, key) && only->type == SPEC_TYPE_INT)
		complain(r, key, "has no meaning with %s %d", only->key, value);
	else if (given(r, key))
		complain(r, key, "has no meaning with %s \"%s\"", only->key,
			spec_table_choice(only->choices, value));
	return false;
}

static void store_values(struct resolving *r)
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

static void resolve_model(struct resolving *r)
{
	struct spec_model *m = &r->config->model;
	const struct spec_preset *p = &spec_presets[given(r, SPEC_KEY_MODEL_PRESET)
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
	bool any = given(r, SPEC_KEY_MODEL_PRESET);

	if (wrong(r, SPEC_KEY_MODEL) || wrong(r, SPEC_KEY_MODEL_PRESET))
		return;
	for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++)
		any = any || r->values.value[shape[i].key].state != SPEC_ABSENT;
	if (!any) {
		complain(r, SPEC_KEY_MODEL,
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

static void check_shape(struct resolving *r)
{
	const struct spec_config *c = r->config;
	const struct spec_model *m = &c->model;

	if (m->n_embd > 0 && m->n_head > 0 && m->n_embd % m->n_head != 0)
		complain(r,
			later(r, later(r, SPEC_KEY_MODEL_N_EMBD, SPEC_KEY_MODEL_N_HEAD),
				SPEC_KEY_MODEL_PRESET),
			"n_embd %" PRId64 " is not a multiple of n_head %" PRId64, m->n_embd,
			m->n_head);
	if (c->seq_len > 0 && m->n_positions > 0 && c->seq_len > m->n_positions)
		complain(r,
			later(r, SPEC_KEY_SEQ_LEN,
				later(r, SPEC_KEY_MODEL_N_POSITIONS, SPEC_KEY_MODEL_PRESET)),
			"seq_len %" PRId64 " is more than the model's n_positions %" PRId64,
			c->seq_len, m->n_positions);
	if (r->values.value[SPEC_KEY_SEQ_LEN].state == SPEC_ABSENT)
		complain(r, SPEC_KEY_SEQ_LEN, "required: tokens of a sequence");
}

/* Removes the first bytes of path, and the slashes after them. */
static void path_cut(char *path, size_t bytes)
{
	bytes += strspn(path + bytes, "/");
	memmove(path, path + bytes, strlen(path + bytes) + 1);
}

/* base has no links, so ".." is its name without the last part. */
static void absolute_path(struct resolving *r, enum spec_key key, char path[SPEC_PATH_MAX])
{
	const char *base = r->options->base_dir;
	char whole[2 * SPEC_PATH_MAX];
	size_t n;

	if (!path[0] || path[0] == '/')
		return;
	if (!base || base[0] != '/') {
		complain(r, key, "\"%.200s\" is a relative path, an absolute one is needed here",
			path);
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
		complain(r, key, "a path of %zu bytes with the spec's folder, at most %d",
			n + 1 + strlen(path), SPEC_PATH_MAX - 1);
		return;
	}
	snprintf(whole, sizeof(whole), "%.*s/%s", (int)n, base, path);
	memset(path, 0, SPEC_PATH_MAX);
	memcpy(path, whole, strlen(whole));
}

static void resolve_data(struct resolving *r)
{
	struct spec_config *c = r->config;

	absolute_path(r, SPEC_KEY_INIT_SAFETENSORS, c->init_safetensors);
	if (wrong(r, SPEC_KEY_DATA) || wrong(r, SPEC_KEY_DATA_KIND))
		return;
	absolute_path(r, SPEC_KEY_DATA_TRAIN, c->data_train);
	absolute_path(r, SPEC_KEY_DATA_VAL, c->data_val);
	if (c->data_kind != SPEC_DATA_FILE)
		return;
	if (!c->data_train[0])
		complain_missing(r, SPEC_KEY_DATA_TRAIN, SPEC_KEY_DATA_KIND,
			"required: a token file (or data.kind \"synthetic\")");
	if (!c->data_val[0] && c->validation_steps > 0 && !wrong(r, SPEC_KEY_DATA_VAL))
		complain(r, SPEC_KEY_VALIDATION_STEPS,
			"%" PRId64 " is not allowed without data.val", c->validation_steps);
}

static bool of_schedule(const struct spec_config *c, enum spec_key key)
{
	return spec_table[key].only_mask & 1U << c->schedule;
}

static void resolve_schedule(struct resolving *r)
{
	struct spec_config *c = r->config;
	const bool deepspeed = of_schedule(c, SPEC_KEY_WARMUP_TYPE);

	if (wrong(r, SPEC_KEY_SCHEDULER_TYPE) || wrong(r, SPEC_KEY_TOTAL_NUM_STEPS) ||
		wrong(r, SPEC_KEY_WARMUP_NUM_STEPS))
		return;
	if (deepspeed && r->values.value[SPEC_KEY_WARMUP_NUM_STEPS].state == SPEC_ABSENT)
		c->warmup_num_steps = WARMUP_NUM_STEPS;
	if (deepspeed && of_schedule(c, SPEC_KEY_COS_MIN_RATIO) &&
		r->values.value[SPEC_KEY_COS_MIN_RATIO].state == SPEC_ABSENT)
		c->cos_min_ratio = COS_MIN_RATIO;
	if (!of_schedule(c, SPEC_KEY_TOTAL_NUM_STEPS))
		return;
	if (c->total_num_steps == 0)
		complain_missing(r, SPEC_KEY_TOTAL_NUM_STEPS, SPEC_KEY_SCHEDULER_TYPE,
			"required with WarmupDecayLR, WarmupCosineLR, cosine and linear");
	else if (c->total_num_steps < c->warmup_num_steps)
		complain(r, later(r, SPEC_KEY_TOTAL_NUM_STEPS, SPEC_KEY_WARMUP_NUM_STEPS),
			"total_num_steps %" PRId64 " is less than warmup_num_steps %" PRId64,
			c->total_num_steps, c->warmup_num_steps);
}

static void resolve_precision(struct resolving *r)
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
			complain(r, later(r, flags[i], flags[last]),
				"%s and %s are both on, one at most", spec_table[flags[last]].key,
				spec_table[flags[i]].key);
		last = i;
		c->precision = kinds[i];
	}
	compute = c->precision == SPEC_TF32 ? SPEC_FP32 : c->precision;
	if (c->grad_dtype == SPEC_TF32) /* "auto" */
		c->grad_dtype = compute;
	else if (c->grad_dtype != SPEC_FP32 && c->grad_dtype != compute)
		complain(r, SPEC_KEY_GRAD_DTYPE,
			"\"%s\" is not allowed, only \"fp32\" and the compute type, here \"%s\"",
			spec_table_choice(grad_dtypes, (int)c->grad_dtype),
			spec_table_choice(grad_dtypes, (int)compute));
	if (ldexp(1, (int)c->fp16_initial_scale_power) < c->fp16_min_loss_scale)
		complain(r, later(r, SPEC_KEY_MIN_LOSS_SCALE, SPEC_KEY_INITIAL_SCALE_POWER),
			"min_loss_scale is greater than the first scale, 2^%" PRId64,
			c->fp16_initial_scale_power);
}

enum { CHECKPOINTS_KEPT = 2 /* the default */ };

/* An object without keys; a wrong key in it already has an error. */
static void complain_empty(const struct resolving *r, enum spec_key key, const char *required)
{
	const size_t n = strlen(spec_table[key].key);

	for (size_t i = 0; i < r->errors->n; i++)
		if (strncmp(r->errors->error[i].key, spec_table[key].key, n) == 0)
			return;
	if (given(r, key))
		complain(r, key, "is empty: %s", required);
}

static void resolve_checkpoint(struct resolving *r)
{
	static const enum spec_key needs[] = {SPEC_KEY_CHECKPOINT_KEEP, SPEC_KEY_CHECKPOINT_DIR};
	struct spec_config *c = r->config;

	absolute_path(r, SPEC_KEY_CHECKPOINT_DIR, c->checkpoint_dir);
	if (!spec_run_id(c->resume_from))
		absolute_path(r, SPEC_KEY_RESUME_FROM, c->resume_from);
	if (c->resume_from[0] && c->init_safetensors[0])
		complain(r, SPEC_KEY_RESUME_FROM,
			"is not allowed together with init_from: a checkpoint has the parameters");
	if (!c->init_safetensors[0])
		complain_empty(r, SPEC_KEY_INIT_FROM, "init_from.safetensors is required");
	if (wrong(r, SPEC_KEY_CHECKPOINT) || wrong(r, SPEC_KEY_CHECKPOINT_EVERY) ||
		wrong(r, SPEC_KEY_CHECKPOINT_AT_END))
		return;
	if (!given(r, SPEC_KEY_CHECKPOINT_EVERY) && !given(r, SPEC_KEY_CHECKPOINT_AT_END) &&
		!given(r, needs[0]) && !given(r, needs[1]))
		complain_empty(r, SPEC_KEY_CHECKPOINT,
			"checkpoint.every_steps or checkpoint.at_end is required");
	for (size_t i = 0; i < 2; i++)
		if (!spec_checkpoints(c) && given(r, needs[i]))
			complain(r, needs[i],
				"has no meaning without checkpoint.every_steps or "
				"checkpoint.at_end true");
	if (spec_checkpoints(c) && !c->checkpoint_keep)
		c->checkpoint_keep = CHECKPOINTS_KEPT;
	if (c->checkpoint_every > c->optimizer_steps && c->optimizer_steps && !c->checkpoint_at_end)
		complain(r, SPEC_KEY_CHECKPOINT_EVERY,
			"%" PRId64 " is more than the %" PRId64
			" optimizer steps of the run: no checkpoint would be written",
			c->checkpoint_every, c->optimizer_steps);
}

/* ---- work: ranks, the batch triple, steps, and the sizes that follow ---- */

/* a x b x c into *out; false beyond 64 bits. */
static bool product3(int64_t a, int64_t b, int64_t c, int64_t *out)
{
	int64_t ab;

	return !__builtin_mul_overflow(a, b, &ab) && !__builtin_mul_overflow(ab, c, out);
}

struct factor {
	enum spec_key key;
	int64_t value;
};

/* For a product that is too large: the key to report. */
static enum spec_key largest_given(
	const struct resolving *r, const struct factor *factors, size_t n)
{
	const struct factor *found = NULL;

	for (size_t i = 0; i < n; i++)
		if (given(r, factors[i].key) && (!found || factors[i].value > found->value))
			found = &factors[i];
	return found ? found->key : factors[0].key;
}

static void resolve_gpus(struct resolving *r)
{
	struct spec_config *c = r->config;
	int world = r->options->world;

	if (world <= 0 || wrong(r, SPEC_KEY_GPUS))
		return;
	if (c->gpus == 0)
		c->gpus = world;
	else if (c->gpus > world)
		complain(r, SPEC_KEY_GPUS, "%" PRId64 " ranks asked, the daemon has %d", c->gpus,
			world);
}

/* For a message: the required factor, with four decimals unless they would hide the rest. */
static void format_quotient(int64_t a, int64_t b, char out[SPEC_JSON_REAL_BYTES])
{
	double exact = (double)a / (double)b, shown = round(exact * 1e4) / 1e4;

	spec_json_format_real(fabs(shown - round(shown)) > 0 ? shown : exact, out);
}

/* The numbers contradict each other: all are given, or one would not be a whole number. */
static void batch_mismatch(struct resolving *r)
{
	const struct spec_config *c = r->config;
	const char *all = given(r, SPEC_KEY_GPUS) ? "" : " (all that the daemon has)";
	char micro[SPEC_JSON_REAL_BYTES], accumulation[SPEC_JSON_REAL_BYTES], gpus[64] = "gpus";
	int64_t ranks = c->gpus ? c->gpus : 1;

	if (c->gpus)
		snprintf(gpus, sizeof(gpus), "gpus %" PRId64 "%s", c->gpus, all);
	if (c->micro_batch && c->accumulation) {
		complain(r, SPEC_KEY_BATCH,
			"%" PRId64 " is not %strain_micro_batch_size_per_gpu %" PRId64
			" x gradient_accumulation_steps %" PRId64 "%s%s = %" PRId64,
			c->batch, c->gpus ? "" : "a multiple of ", c->micro_batch, c->accumulation,
			c->gpus ? " x " : "", c->gpus ? gpus : "",
			c->micro_batch * c->accumulation * ranks);
		return;
	}
	if (c->micro_batch) {
		snprintf(micro, sizeof(micro), "%" PRId64, c->micro_batch);
		format_quotient(c->batch, c->micro_batch * ranks, accumulation);
	} else {
		snprintf(accumulation, sizeof(accumulation), "%" PRId64, c->accumulation);
		format_quotient(c->batch, c->accumulation * ranks, micro);
	}
	complain(r, SPEC_KEY_BATCH,
		"%" PRId64 " cannot be made: train_micro_batch_size_per_gpu %s x "
		"gradient_accumulation_steps %s x %s, and %s is no whole number",
		c->batch, micro, accumulation, gpus, c->micro_batch ? accumulation : micro);
}

/* DeepSpeed's rule: any two give the third; one of the sizes alone means accumulation 1. */
static void resolve_batch(struct resolving *r)
{
	struct spec_config *c = r->config;
	const int64_t batch_max = spec_table[SPEC_KEY_BATCH].max;
	char gpus[32] = "";
	int64_t known;

	if (wrong(r, SPEC_KEY_MICRO_BATCH) || wrong(r, SPEC_KEY_BATCH) ||
		wrong(r, SPEC_KEY_ACCUMULATION) || wrong(r, SPEC_KEY_GPUS))
		return;
	if (!c->micro_batch && !c->batch) {
		if (c->accumulation)
			complain(r, SPEC_KEY_ACCUMULATION,
				"alone gives no batch: train_micro_batch_size_per_gpu or "
				"train_batch_size is required too");
		else
			complain(r, SPEC_KEY_MICRO_BATCH,
				"required, or train_batch_size, or both with "
				"gradient_accumulation_steps");
		return;
	}
	if (!c->accumulation && !(c->micro_batch && c->batch))
		c->accumulation = 1;
	known = (c->micro_batch ? c->micro_batch : 1) * (c->accumulation ? c->accumulation : 1);
	if (c->gpus) {
		known *= c->gpus;
		snprintf(gpus, sizeof(gpus), " x gpus %" PRId64, c->gpus);
	}
	if (!c->batch) {
		const struct factor factors[] = {
			{SPEC_KEY_MICRO_BATCH, c->micro_batch},
			{SPEC_KEY_ACCUMULATION, c->accumulation},
			{SPEC_KEY_GPUS, c->gpus},
		};

		if (known > batch_max)
			complain(r, largest_given(r, factors, 3),
				"train_micro_batch_size_per_gpu %" PRId64
				" x gradient_accumulation_steps %" PRId64 "%s = %" PRId64
				" is not allowed, a train_batch_size of at most %" PRId64,
				c->micro_batch, c->accumulation, gpus, known, batch_max);
		else if (c->gpus)
			c->batch = known;
		return;
	}
	if (c->batch % known != 0 ||
		(c->gpus && c->micro_batch && c->accumulation && c->batch != known)) {
		batch_mismatch(r);
		return;
	}
	if (!c->gpus)
		return;
	if (!c->accumulation)
		c->accumulation = c->batch / known;
	else if (!c->micro_batch)
		c->micro_batch = c->batch / known;
}

static void resolve_micro_steps(struct resolving *r)
{
	struct spec_config *c = r->config;

	if (!c->accumulation)
		return;
	if (c->work_micro_steps % c->accumulation != 0)
		complain(r, SPEC_KEY_MICRO_STEPS,
			"%" PRId64 " splits an accumulation window, a multiple of "
			"gradient_accumulation_steps %" PRId64 " is needed",
			c->work_micro_steps, c->accumulation);
	else
		c->optimizer_steps = c->work_micro_steps / c->accumulation;
}

static void resolve_tokens(struct resolving *r)
{
	struct spec_config *c = r->config;
	int64_t step = c->batch * c->seq_len; /* 24 and 20 bits */

	if (step == 0)
		return;
	if (c->work_tokens % step != 0)
		complain(r, SPEC_KEY_TOKENS,
			"%" PRId64 " is not a multiple of train_batch_size %" PRId64
			" x seq_len %" PRId64 " = %" PRId64,
			c->work_tokens, c->batch, c->seq_len, step);
	else
		c->optimizer_steps = c->work_tokens / step;
}

static void resolve_steps(struct resolving *r)
{
	static const enum spec_key kinds[] = {
		SPEC_KEY_OPTIMIZER_STEPS, SPEC_KEY_MICRO_STEPS, SPEC_KEY_TOKENS, SPEC_KEY_EPOCHS};
	struct spec_config *c = r->config;
	int first = -1, n = 0;
	bool refused = wrong(r, SPEC_KEY_WORK);

	for (int i = 0; i < 4; i++) {
		refused = refused || wrong(r, kinds[i]);
		if (!given(r, kinds[i]))
			continue;
		n++;
		if (first >= 0)
			complain(r, kinds[i], "%s is given too, exactly one is allowed",
				spec_table[kinds[first]].key);
		else
			first = i;
	}
	if (refused || n > 1)
		return;
	if (n == 0) {
		complain(r, SPEC_KEY_WORK,
			"exactly one of optimizer_steps, micro_steps, tokens and epochs is "
			"required");
		return;
	}
	if (c->work_micro_steps)
		resolve_micro_steps(r);
	else if (c->work_tokens)
		resolve_tokens(r);
	if (r->values.value[SPEC_KEY_WARMUP_STEPS].state == SPEC_ABSENT)
		c->warmup_steps = c->optimizer_steps && c->optimizer_steps <= WARMUP_STEPS
			? c->optimizer_steps - 1
			: WARMUP_STEPS;
	if (c->optimizer_steps && c->warmup_steps >= c->optimizer_steps)
		complain(r, SPEC_KEY_WARMUP_STEPS,
			"%" PRId64 " is not allowed, fewer than the %" PRId64
			" optimizer steps of the run",
			c->warmup_steps, c->optimizer_steps);
}

/*
 * Sizes in bytes that the engine will multiply. A layer keeps fewer than 64 values per token and
 * width, and a value has at most 8 bytes.
 */
static void check_sizes(struct resolving *r)
{
	const struct spec_config *c = r->config;
	const struct spec_model *m = &c->model;
	const struct factor factors[] = {
		{SPEC_KEY_MICRO_BATCH, c->micro_batch},
		{SPEC_KEY_SEQ_LEN, c->seq_len},
		{SPEC_KEY_BATCH, c->batch},
		{SPEC_KEY_MODEL_VOCAB_SIZE, m->vocab_size},
	};
	const struct factor widths[] = {
		factors[0],
		factors[1],
		factors[2],
		{SPEC_KEY_MODEL_N_EMBD, m->n_embd},
		{SPEC_KEY_MODEL_N_LAYER, m->n_layer},
	};
	const struct factor work[] = {
		{SPEC_KEY_OPTIMIZER_STEPS, c->optimizer_steps},
		{SPEC_KEY_MICRO_STEPS, c->work_micro_steps},
		factors[0],
		factors[1],
		factors[2],
		{SPEC_KEY_ACCUMULATION, c->accumulation},
	};
	int64_t rows = c->micro_batch * c->seq_len, bytes, tokens;

	if (!product3(rows, m->vocab_size, 8, &bytes))
		complain(r, largest_given(r, factors, 4),
			"the logits, train_micro_batch_size_per_gpu %" PRId64 " x seq_len %" PRId64
			" x vocab_size %" PRId64 " x 8 bytes, are beyond 64 bits",
			c->micro_batch, c->seq_len, m->vocab_size);
	if (!product3(rows, m->n_embd * m->n_layer, INT64_C(64) * 8, &bytes))
		complain(r, largest_given(r, widths, 5),
			"the activations, train_micro_batch_size_per_gpu %" PRId64
			" x seq_len %" PRId64 " x n_embd %" PRId64 " x n_layer %" PRId64
			" values, are beyond 64 bits of bytes",
			c->micro_batch, c->seq_len, m->n_embd, m->n_layer);
	if (!product3(c->optimizer_steps, c->batch, c->seq_len, &tokens))
		complain(r, largest_given(r, work, 6),
			"optimizer_steps %" PRId64 " x train_batch_size %" PRId64
			" x seq_len %" PRId64 " tokens are beyond 64 bits",
			c->optimizer_steps, c->batch, c->seq_len);
}

static void resolve_work(struct resolving *r)
{
	resolve_gpus(r);
	resolve_batch(r);
	resolve_steps(r);
	check_sizes(r);
}

/* ---- between arms ---- */

static bool same_epoch(const struct spec_config *a, const struct spec_config *b)
{
	return a->batch == b->batch && a->seq_len == b->seq_len && a->data_kind == b->data_kind &&
		a->data_synthetic_tokens == b->data_synthetic_tokens &&
		!strcmp(a->data_train, b->data_train);
}

static void compare_arms(const struct spec_arm *a, const struct spec_arm *b, struct spec_place at,
	struct spec_errors *errors)
{
	const struct spec_config *x = &a->config, *y = &b->config;
	int64_t work_x = spec_work_tokens(x), work_y = spec_work_tokens(y);
	char key[SPEC_NAME_MAX + 8];

	snprintf(key, sizeof(key), "arms.%s", b->name);
	if ((x->work_epochs > 0) != (y->work_epochs > 0))
		spec_error_add(errors, at, key,
			"one of the arms %s and %s is measured in epochs, both must be", a->name,
			b->name);
	else if (x->work_epochs != y->work_epochs)
		spec_error_add(errors, at, key,
			"trains %" PRId64 " epochs, arm %s trains %" PRId64
			"; arms must do the same work",
			y->work_epochs, a->name, x->work_epochs);
	else if (x->work_epochs && !same_epoch(x, y))
		spec_error_add(errors, at, key,
			"epochs are the same work only where the arms agree on data, "
			"train_batch_size and seq_len, and arm %s differs",
			a->name);
	else if (x->work_micro_steps && y->work_micro_steps && x->accumulation != y->accumulation)
		spec_error_add(errors, at, key,
			"micro_steps are the same work only where the arms agree on "
			"gradient_accumulation_steps: %" PRId64 " here, %" PRId64 " in arm %s",
			y->accumulation, x->accumulation, a->name);
	else if (work_x && work_y && work_x != work_y)
		spec_error_add(errors, at, key,
			"trains %" PRId64 " tokens, arm %s trains %" PRId64
			"; arms must do the same work",
			work_y, a->name, work_x);
}

static bool same_config(const struct spec *spec, size_t a, size_t b)
{
	return memcmp(&spec->arms[a].config, &spec->arms[b].config, sizeof(spec->arms[a].config)) ==
		0;
}

/* Omits a sweep's combination that equals the spec's own values. */
static void drop_repeated(struct spec *spec)
{
	size_t n = 1;

	for (size_t i = 1; i < spec->n_arms; i++)
		if (!same_config(spec, i, 0))
			spec->arms[n++] = spec->arms[i];
	spec->n_arms = n;
}

/* The arm that repeats the first one: an existing arm, or a new one. */
static void add_control(struct spec *spec, struct spec_place at, struct spec_errors *errors)
{
	struct spec_arm *control = &spec->arms[spec->n_arms];

	spec->control = SPEC_NO_CONTROL;
	for (size_t i = 1; i < spec->n_arms && spec->control == SPEC_NO_CONTROL; i++)
		if (same_config(spec, i, 0))
			spec->control = i;
	if (!spec->aa_control || spec->n_arms < 2 || spec->control != SPEC_NO_CONTROL)
		return;
	if (spec->n_arms == SPEC_ARMS_MAX ||
		strlen(spec->arms[0].name) + strlen("-aa") > SPEC_NAME_MAX) {
		spec_error_add(errors, at, "design.aa_control",
			"no room for the control: at most %d arms with it, and at most %d "
			"characters in %s-aa (false runs without a control)",
			SPEC_ARMS_MAX, SPEC_NAME_MAX, spec->arms[0].name);
		return;
	}
	*control = spec->arms[0];
	strcat(control->name, "-aa");
	for (size_t i = 1; i < spec->n_arms; i++)
		if (strcmp(spec->arms[i].name, control->name) == 0)
			spec_error_add(errors, at, "design.aa_control",
				"the control would be named %s, as another arm is (rename that "
				"arm; false runs without a control)",
				control->name);
	spec->control = spec->n_arms++;
}

/* A design that requests a verdict but cannot give one. */
static void check_blocks(
	const struct spec_source *source, const struct spec *spec, struct spec_errors *errors)
{
	const size_t controls = 1 + (spec->control != SPEC_NO_CONTROL);
	const size_t n = spec->n_arms > controls ? spec->n_arms - controls : 1;
	const double alpha = spec->stop_half_width > 0 ? VERDICT_ALPHA_STOPPING : VERDICT_ALPHA;
	const int64_t least = (int64_t)verdict_blocks_least(n, alpha);
	const struct spec_value *v = &source->base.value[SPEC_KEY_REPETITIONS];

	if (spec->repetitions >= VERDICT_BLOCKS_MIN && spec->repetitions < least)
		spec_error_add(errors, v->state == SPEC_GIVEN ? v->at : source->arms[0].at,
			"design.repetitions",
			"%" PRId64 " blocks can never settle %zu comparisons, at least %" PRId64
			" (fewer than %d give figures without a verdict)",
			spec->repetitions, n, least, VERDICT_BLOCKS_MIN);
}

static void resolve_arms(
	const struct spec_source *source, struct spec *spec, struct spec_errors *errors)
{
	if (errors->n > 0)
		return; /* invalid numbers cannot be compared */
	for (size_t i = 1; i < spec->n_arms; i++)
		compare_arms(&spec->arms[0], &spec->arms[i], source->arms[i].at, errors);
	if (source->swept)
		drop_repeated(spec);
	if (source->swept && spec->n_arms == 1)
		spec_error_add(errors, source->arms[0].at, "sweep",
			"all values are the spec's own, so there is nothing to compare");
	add_control(spec, source->arms[0].at, errors);
	check_blocks(source, spec, errors);
}

/* ---- the whole ---- */

static void resolve_config(struct resolving *r)
{
	store_values(r);
	resolve_model(r);
	check_shape(r);
	resolve_data(r);
	resolve_schedule(r);
	resolve_precision(r);
	resolve_work(r);
	resolve_checkpoint(r);
}

static void fill_defaults(struct spec_layer *values, const struct spec_layer *defaults)
{
	for (size_t i = 0; i < SPEC_KEY_COUNT; i++)
		if (values->value[i].state == SPEC_ABSENT)
			values->value[i] = defaults->value[i];
}

/* Keys of the run itself; design only if there are arms. */
static void resolve_run(const struct spec_source *source, const struct spec_options *options,
	struct spec *spec, struct spec_errors *errors)
{
	struct resolving r = {.options = options, .errors = errors, .values = source->base};

	fill_defaults(&r.values, source->defaults);
	for (size_t i = 0; i < SPEC_KEY_COUNT; i++) {
		const struct spec_row *row = &spec_table[i];
		bool design = !strncmp(row->key, "design.", 7);

		if (row->scope != SPEC_SCOPE_RUN || row->field == SPEC_NO_FIELD ||
			r.values.value[i].state == SPEC_ABSENT)
			continue;
		if (design && !source->has_arms && given(&r, (enum spec_key)i))
			complain(&r, (enum spec_key)i, "has no meaning without arms");
		if (wrong(&r, (enum spec_key)i))
			continue;
		spec_value_store(row, &r.values.value[i], spec_table_field(row, spec, 0));
	}
	spec->has_arms = source->has_arms;
	spec->control = SPEC_NO_CONTROL;
	if (r.values.value[SPEC_KEY_RESTART].state == SPEC_ABSENT)
		spec->restart = source->has_arms;
	if (r.values.value[SPEC_KEY_SPARE_BLOCKS].state == SPEC_ABSENT)
		spec->spare_blocks = (spec->repetitions + 3) / 4;
}

void spec_resolve(const struct spec_source *source, const struct spec_options *options,
	struct spec *spec, struct spec_errors *errors)
{
	struct resolving r = {.options = options, .errors = errors};

	resolve_run(source, options, spec, errors);
	/* one more: the control */
	spec->arms = memory_zeroed(source->n_arms + 1, sizeof(*spec->arms));
	if (source->n_arms == 0) {
		spec->n_arms = 1;
		strcpy(spec->arms[0].name, "run");
		r.values = source->base;
		fill_defaults(&r.values, source->defaults);
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
		fill_defaults(&r.values, source->defaults);
		r.config = &spec->arms[i].config;
		resolve_config(&r);
	}
	resolve_arms(source, spec, errors);
}
