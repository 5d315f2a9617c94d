#include "proto/spec/spec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/artifact.h"
#include "proto/host/memory.h"
#include "proto/spec/spec_resolve.h"

int spec_parse(const char *text, size_t n, const struct spec_options *options, struct spec **out,
	struct spec_errors *errors)
{
	struct spec_source *source;
	struct spec *spec;

	errors->n = 0;
	errors->dropped = 0;
	if (spec_read(text, n, options, &source, errors) == -EBADMSG) {
		spec_source_destroy(source);
		return -EINVAL;
	}
	spec = memory_zeroed(1, sizeof(*spec));
	spec_resolve(source, options, spec, errors);
	spec_source_destroy(source);
	if (errors->n > 0) {
		spec_free(spec);
		return -EINVAL;
	}
	*out = spec;
	return 0;
}

struct spec *spec_copy(const struct spec *spec)
{
	struct spec *copy = memory_zeroed(1, sizeof(*copy));
	const size_t bytes = spec->n_arms * sizeof(*spec->arms);

	*copy = *spec;
	copy->arms = memory_resized(NULL, bytes);
	memcpy(copy->arms, spec->arms, bytes);
	return copy;
}

void spec_free(struct spec *spec)
{
	if (spec == NULL)
		return;
	free(spec->arms);
	free(spec);
}

size_t spec_segments(const struct spec *spec)
{
	if (!spec->has_arms)
		return 1;
	return design_count(spec->n_arms, spec->repetitions, spec->mirrored);
}

void spec_order(const struct spec *spec, struct design_segment *out)
{
	if (spec->has_arms)
		design_order(
			spec->n_arms, spec->repetitions, spec->mirrored, spec->design_seed, out);
	else
		out[0] = (struct design_segment){0};
}

/* ---- canonical form ---- */

struct printing {
	const struct spec *spec;
	const struct spec_config *config;
	const struct spec_config *base; /* an arm: print only the differences; NULL: all */
	bool experiment;                /* print arms and design */
	FILE *out;
	int depth;
	bool first; /* of the open object */
};

static void newline(const struct printing *p)
{
	putc('\n', p->out);
	for (int i = 0; i < p->depth; i++)
		fputs("  ", p->out);
}

static void print_key(struct printing *p, const char *key)
{
	if (!p->first)
		putc(',', p->out);
	newline(p);
	spec_value_print_string(key, p->out);
	fputs(": ", p->out);
	p->first = false;
}

static void open_object(struct printing *p)
{
	putc('{', p->out);
	p->depth++;
	p->first = true;
}

static void close_object(struct printing *p)
{
	p->depth--;
	if (!p->first)
		newline(p);
	putc('}', p->out);
	p->first = false;
}

/* The resolved value of the key on which another key depends. */
static int only_value(const struct spec_config *c, enum spec_key key)
{
	if (key == SPEC_KEY_ZERO_STAGE)
		return (int)c->zero_stage;
	return key == SPEC_KEY_DATA_KIND ? (int)c->data_kind : (int)c->schedule;
}

/* optimizer_steps is written only if it gives the work, because exactly one such key is allowed. */
static bool other_work(const struct spec_config *c)
{
	return c->work_micro_steps || c->work_tokens || c->work_epochs;
}

static const void *field_of(
	const struct spec_row *row, const struct spec *spec, const struct spec_config *c)
{
	const char *base = row->scope == SPEC_SCOPE_RUN ? (const char *)spec : (const char *)c;

	return base + row->field;
}

static bool derived_flag(const struct spec_config *c, enum spec_key key)
{
	return (key == SPEC_KEY_FP16_ENABLED && c->precision == SPEC_FP16) ||
		(key == SPEC_KEY_BF16_ENABLED && c->precision == SPEC_BF16) ||
		(key == SPEC_KEY_TF32 && c->precision == SPEC_TF32);
}

/* Keys that have no separate field. */
static void print_derived(struct printing *p, const struct spec_row *row)
{
	if (row - spec_table == SPEC_KEY_MODEL_PRESET)
		spec_value_print_string(p->config->model.preset, p->out);
	else if (row->type == SPEC_TYPE_BOOL)
		fputs(derived_flag(p->config, (enum spec_key)(row - spec_table)) ? "true" : "false",
			p->out);
	else
		fputs(row->fallback, p->out);
}

static bool row_present(
	const struct spec_row *row, const struct spec *spec, const struct spec_config *c)
{
	if (row->only_mask && !(row->only_mask & 1U << only_value(c, row->only_key)))
		return false;
	if (row - spec_table == SPEC_KEY_OPTIMIZER_STEPS && other_work(c))
		return false;
	return !row->omit_empty || !spec_value_empty(row, field_of(row, spec, c));
}

static bool row_same(const struct spec_row *row, const struct spec *spec,
	const struct spec_config *a, const struct spec_config *b)
{
	enum spec_key key = (enum spec_key)(row - spec_table);

	if (row_present(row, spec, a) != row_present(row, spec, b))
		return false;
	if (!row_present(row, spec, a))
		return true;
	if (row->field != SPEC_NO_FIELD)
		return spec_value_same(row, field_of(row, spec, a), field_of(row, spec, b));
	if (key == SPEC_KEY_MODEL_PRESET)
		return !strcmp(a->model.preset, b->model.preset);
	return derived_flag(a, key) == derived_flag(b, key);
}

/* A leading key clears its group, so an arm that changes one key of a group has all of its keys. */
static bool group_differs(const struct printing *p, enum spec_group group)
{
	for (size_t i = 0; i < SPEC_KEY_COUNT; i++)
		if (spec_table[i].group == group && spec_table[i].type != SPEC_TYPE_OBJECT &&
			!row_same(&spec_table[i], p->spec, p->config, p->base))
			return true;
	return false;
}

static bool of_batch(const struct spec_row *row)
{
	size_t key = (size_t)(row - spec_table);

	return key == SPEC_KEY_MICRO_BATCH || key == SPEC_KEY_ACCUMULATION || key == SPEC_KEY_BATCH;
}

/*
 * While the number of ranks is not known, arms may have different ones of the three batch numbers.
 * Then each arm has its own, because an arm cannot remove a key of the base.
 */
static bool batch_per_arm(const struct printing *p)
{
	for (size_t i = 0; p->experiment && i < SPEC_KEY_COUNT; i++)
		for (size_t arm = 1; of_batch(&spec_table[i]) && arm < p->spec->n_arms; arm++)
			if (row_present(&spec_table[i], p->spec, &p->spec->arms[0].config) !=
				row_present(&spec_table[i], p->spec, &p->spec->arms[arm].config))
				return true;
	return false;
}

static bool wanted(const struct printing *p, const struct spec_row *row)
{
	if (row->scope == SPEC_SCOPE_CONFIG && row->type != SPEC_TYPE_OBJECT &&
		!row_present(row, p->spec, p->config))
		return false;
	if (of_batch(row) && batch_per_arm(p))
		return p->base != NULL;
	if (!p->base)
		return true;
	if (row->scope == SPEC_SCOPE_RUN)
		return false;
	return row->group ? group_differs(p, row->group)
			  : !row_same(row, p->spec, p->config, p->base);
}

/* The row after an object's last row: its rows directly follow its own. */
static size_t end_of(size_t object)
{
	const size_t n = strlen(spec_table[object].key);
	size_t i = object + 1;

	while (i < SPEC_KEY_COUNT && strncmp(spec_table[i].key, spec_table[object].key, n) == 0 &&
		spec_table[i].key[n] == '.')
		i++;
	return i;
}

static bool any_inside(const struct printing *p, size_t object)
{
	for (size_t i = object + 1; i < end_of(object); i++)
		if (spec_table[i].type != SPEC_TYPE_OBJECT && wanted(p, &spec_table[i]))
			return true;
	return false;
}

static void print_arms(struct printing *p);

/* The rows [i, end) of one object. */
static void print_members(struct printing *p, size_t i, size_t end)
{
	for (size_t next; i < end; i = next) {
		const struct spec_row *row = &spec_table[i];
		bool design = i == SPEC_KEY_DESIGN || row->type == SPEC_TYPE_ARMS;

		next = row->type == SPEC_TYPE_OBJECT ? end_of(i) : i + 1;
		if (row->type == SPEC_TYPE_SWEEP || (design && (p->base || !p->experiment)))
			continue;
		if (row->type == SPEC_TYPE_OBJECT ? !any_inside(p, i) : !wanted(p, row))
			continue;
		print_key(p, spec_table_last(row));
		if (row->type == SPEC_TYPE_OBJECT) {
			open_object(p);
			print_members(p, i + 1, next);
			close_object(p);
		} else if (row->type == SPEC_TYPE_ARMS) {
			print_arms(p);
		} else if (row->field == SPEC_NO_FIELD) {
			print_derived(p, row);
		} else {
			spec_value_print(row, field_of(row, p->spec, p->config), p->out);
		}
	}
}

/* The base has the first arm's values; each arm has its changes. */
static void print_arms(struct printing *p)
{
	struct printing arm = *p;

	open_object(&arm);
	for (size_t i = 0; i < p->spec->n_arms; i++) {
		arm.base = &p->spec->arms[0].config;
		arm.config = &p->spec->arms[i].config;
		print_key(&arm, p->spec->arms[i].name);
		open_object(&arm);
		print_members(&arm, 0, SPEC_KEY_COUNT);
		close_object(&arm);
	}
	close_object(&arm);
}

static char *print_spec(const struct spec *spec, const struct spec_config *config, bool experiment)
{
	char *text = NULL;
	size_t n = 0;
	struct printing p = {.spec = spec,
		.config = config,
		.experiment = experiment,
		.out = memory_stream(&text, &n)};

	open_object(&p);
	print_members(&p, 0, SPEC_KEY_COUNT);
	close_object(&p);
	putc('\n', p.out);
	memory_stream_end(p.out);
	return text;
}

char *spec_canonical(const struct spec *spec)
{
	return print_spec(spec, &spec->arms[0].config, spec->has_arms);
}

char *spec_canonical_arm(const struct spec *spec, size_t arm)
{
	return print_spec(spec, &spec->arms[arm].config, false);
}

void spec_hash(const char *canonical, char out[SPEC_HASH_HEX + 1])
{
	out[0] = '\0';
	artifact_sha256(canonical, strlen(canonical), out);
}

/* ---- differences ---- */

/* A key's value as JSON, which the caller frees. */
static char *print_value(
	const struct spec_row *row, const struct spec *spec, const struct spec_config *config)
{
	char *text = NULL;
	size_t n = 0;
	struct printing p = {.spec = spec, .config = config, .out = memory_stream(&text, &n)};

	if (!row_present(row, spec, config))
		fputs("null", p.out);
	else if (row->field == SPEC_NO_FIELD)
		print_derived(&p, row);
	else
		spec_value_print(row, field_of(row, spec, config), p.out);
	memory_stream_end(p.out);
	return text;
}

void spec_differences(const struct spec *spec, size_t arm, size_t other,
	void (*found)(const struct spec_row *row, const char *own, const char *others, void *arg),
	void *arg)
{
	const struct spec_config *a = &spec->arms[arm].config, *b = &spec->arms[other].config;

	for (size_t i = 0; i < SPEC_KEY_COUNT; i++) {
		const struct spec_row *row = &spec_table[i];
		char *own, *others;

		if (row->scope != SPEC_SCOPE_CONFIG || row->type == SPEC_TYPE_OBJECT ||
			row_same(row, spec, a, b))
			continue;
		own = print_value(row, spec, a);
		others = print_value(row, spec, b);
		found(row, own, others, arg);
		free(own);
		free(others);
	}
}
