/* How much work a configuration is: ranks, the batch triple, steps, and the sizes that follow. */
#include "proto/spec/spec_resolve.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/spec/spec_error.h"

/* a x b x c into *out; false beyond 64 bits. */
static bool product3(int64_t a, int64_t b, int64_t c, int64_t *out)
{
	int64_t ab;

	return !__builtin_mul_overflow(a, b, &ab) && !__builtin_mul_overflow(ab, c, out);
}

static void resolve_gpus(struct spec_resolving *r)
{
	struct spec_config *c = r->config;
	int world = r->options->world;

	if (world <= 0 || spec_resolve_wrong(r, SPEC_KEY_GPUS))
		return;
	if (c->gpus == 0)
		c->gpus = world;
	else if (c->gpus > world)
		spec_resolve_complain(r, SPEC_KEY_GPUS,
			"%" PRId64 " ranks asked, the daemon has %d", c->gpus, world);
}

/* For a message: what a factor would have to be, with four decimals unless they would hide the
 * rest. */
static void format_quotient(int64_t a, int64_t b, char out[SPEC_JSON_REAL_BYTES])
{
	double exact = (double)a / (double)b, shown = round(exact * 1e4) / 1e4;

	spec_json_format_real(fabs(shown - round(shown)) > 0 ? shown : exact, out);
}

/*
 * The numbers contradict each other: all of them are given, or one is asked for that is not whole.
 */
static void batch_mismatch(struct spec_resolving *r)
{
	const struct spec_config *c = r->config;
	const char *all = spec_resolve_given(r, SPEC_KEY_GPUS) ? "" : " (all that the daemon has)";
	char micro[SPEC_JSON_REAL_BYTES], accumulation[SPEC_JSON_REAL_BYTES], gpus[64] = "gpus";
	int64_t ranks = c->gpus ? c->gpus : 1;

	if (c->gpus)
		snprintf(gpus, sizeof(gpus), "gpus %" PRId64 "%s", c->gpus, all);
	if (c->micro_batch && c->accumulation) {
		spec_resolve_complain(r, SPEC_KEY_BATCH,
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
	spec_resolve_complain(r, SPEC_KEY_BATCH,
		"%" PRId64 " cannot be made: train_micro_batch_size_per_gpu %s x "
		"gradient_accumulation_steps %s x %s, and %s is no whole number",
		c->batch, micro, accumulation, gpus, c->micro_batch ? accumulation : micro);
}

/* DeepSpeed's rule: any two give the third; one of the sizes alone means accumulation 1. */
static void resolve_batch(struct spec_resolving *r)
{
	struct spec_config *c = r->config;
	const int64_t batch_max = spec_table[SPEC_KEY_BATCH].max;
	char gpus[32] = "";
	int64_t known;

	if (spec_resolve_wrong(r, SPEC_KEY_MICRO_BATCH) || spec_resolve_wrong(r, SPEC_KEY_BATCH) ||
		spec_resolve_wrong(r, SPEC_KEY_ACCUMULATION) ||
		spec_resolve_wrong(r, SPEC_KEY_GPUS))
		return;
	if (!c->micro_batch && !c->batch) {
		if (c->accumulation)
			spec_resolve_complain(r, SPEC_KEY_ACCUMULATION,
				"alone gives no batch: train_micro_batch_size_per_gpu or "
				"train_batch_size is required too");
		else
			spec_resolve_complain(r, SPEC_KEY_MICRO_BATCH,
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
		if (known > batch_max)
			spec_resolve_complain(r, SPEC_KEY_MICRO_BATCH,
				"%" PRId64 " x gradient_accumulation_steps %" PRId64
				"%s is not allowed, a train_batch_size of at most %" PRId64,
				c->micro_batch, c->accumulation, gpus, batch_max);
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

static void resolve_micro_steps(struct spec_resolving *r)
{
	struct spec_config *c = r->config;

	if (!c->accumulation)
		return;
	if (c->work_micro_steps % c->accumulation != 0)
		spec_resolve_complain(r, SPEC_KEY_MICRO_STEPS,
			"%" PRId64 " splits an accumulation window, a multiple of "
			"gradient_accumulation_steps %" PRId64 " is needed",
			c->work_micro_steps, c->accumulation);
	else
		c->optimizer_steps = c->work_micro_steps / c->accumulation;
}

static void resolve_tokens(struct spec_resolving *r)
{
	struct spec_config *c = r->config;
	int64_t step = c->batch * c->seq_len; /* 24 and 20 bits */

	if (step == 0)
		return;
	if (c->work_tokens % step != 0)
		spec_resolve_complain(r, SPEC_KEY_TOKENS,
			"%" PRId64 " is not a multiple of train_batch_size %" PRId64
			" x seq_len %" PRId64 " = %" PRId64,
			c->work_tokens, c->batch, c->seq_len, step);
	else
		c->optimizer_steps = c->work_tokens / step;
}

static void resolve_steps(struct spec_resolving *r)
{
	static const enum spec_key kinds[] = {
		SPEC_KEY_OPTIMIZER_STEPS, SPEC_KEY_MICRO_STEPS, SPEC_KEY_TOKENS, SPEC_KEY_EPOCHS};
	struct spec_config *c = r->config;
	int first = -1, n = 0;
	bool wrong = spec_resolve_wrong(r, SPEC_KEY_WORK);

	for (int i = 0; i < 4; i++) {
		wrong = wrong || spec_resolve_wrong(r, kinds[i]);
		if (!spec_resolve_given(r, kinds[i]))
			continue;
		n++;
		if (first >= 0)
			spec_resolve_complain(r, kinds[i],
				"%s is given too, exactly one is allowed",
				spec_table[kinds[first]].key);
		else
			first = i;
	}
	if (wrong || n > 1)
		return;
	if (n == 0) {
		spec_resolve_complain(r, SPEC_KEY_WORK,
			"exactly one of optimizer_steps, micro_steps, tokens and epochs is "
			"required");
		return;
	}
	if (c->work_micro_steps)
		resolve_micro_steps(r);
	else if (c->work_tokens)
		resolve_tokens(r);
	if (c->optimizer_steps && c->warmup_steps >= c->optimizer_steps)
		spec_resolve_complain(r, SPEC_KEY_WARMUP_STEPS,
			"%" PRId64 " is not allowed, fewer than the %" PRId64
			" optimizer steps of the run",
			c->warmup_steps, c->optimizer_steps);
}

/*
 * Bytes that the engine will multiply out. A layer keeps fewer than 64 values per token and width,
 * a value has at most 8 bytes.
 */
static void check_sizes(struct spec_resolving *r)
{
	const struct spec_config *c = r->config;
	int64_t rows = c->micro_batch * c->seq_len, bytes, tokens;

	if (!product3(rows, c->model.vocab_size, 8, &bytes))
		spec_resolve_complain(r, SPEC_KEY_MICRO_BATCH,
			"the logits, %" PRId64 " x seq_len %" PRId64 " x vocab_size %" PRId64
			" x 8 bytes, are beyond 64 bits",
			c->micro_batch, c->seq_len, c->model.vocab_size);
	if (!product3(rows, c->model.n_embd * c->model.n_layer, INT64_C(64) * 8, &bytes))
		spec_resolve_complain(r, SPEC_KEY_MICRO_BATCH,
			"the activations, %" PRId64 " x seq_len %" PRId64 " x n_embd %" PRId64
			" x n_layer %" PRId64 " values, are beyond 64 bits of bytes",
			c->micro_batch, c->seq_len, c->model.n_embd, c->model.n_layer);
	if (!product3(c->optimizer_steps, c->batch, c->seq_len, &tokens))
		spec_resolve_complain(r, SPEC_KEY_OPTIMIZER_STEPS,
			"%" PRId64 " x train_batch_size %" PRId64 " x seq_len %" PRId64
			" tokens are beyond 64 bits",
			c->optimizer_steps, c->batch, c->seq_len);
}

void spec_resolve_work(struct spec_resolving *r)
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

static void compare_arms(
	const struct spec_arm *a, const struct spec_arm *b, int line, struct spec_errors *errors)
{
	const struct spec_config *x = &a->config, *y = &b->config;
	int64_t work_x = spec_work_tokens(x), work_y = spec_work_tokens(y);
	char key[SPEC_NAME_MAX + 8];

	snprintf(key, sizeof(key), "arms.%s", b->name);
	if ((x->work_epochs > 0) != (y->work_epochs > 0))
		spec_error_add(errors, line, key,
			"one of the arms %s and %s is measured in epochs, both must be", a->name,
			b->name);
	else if (x->work_epochs != y->work_epochs)
		spec_error_add(errors, line, key,
			"trains %" PRId64 " epochs, arm %s trains %" PRId64
			"; arms must do the same work",
			y->work_epochs, a->name, x->work_epochs);
	else if (x->work_epochs && !same_epoch(x, y))
		spec_error_add(errors, line, key,
			"epochs are the same work only where the arms agree on data, "
			"train_batch_size and seq_len, and arm %s differs",
			a->name);
	else if (x->work_micro_steps && y->work_micro_steps && x->accumulation != y->accumulation)
		spec_error_add(errors, line, key,
			"micro_steps are the same work only where the arms agree on "
			"gradient_accumulation_steps: %" PRId64 " here, %" PRId64 " in arm %s",
			y->accumulation, x->accumulation, a->name);
	else if (work_x && work_y && work_x != work_y)
		spec_error_add(errors, line, key,
			"trains %" PRId64 " tokens, arm %s trains %" PRId64
			"; arms must do the same work",
			work_y, a->name, work_x);
}

void spec_resolve_arms(
	const struct spec_source *source, const struct spec *spec, struct spec_errors *errors)
{
	if (errors->n > 0)
		return; /* numbers that are wrong by themselves cannot be compared */
	for (size_t i = 1; i < spec->n_arms; i++)
		compare_arms(&spec->arms[0], &spec->arms[i], source->arms[i].line, errors);
}
