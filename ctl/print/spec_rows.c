#include "ctl/print/spec_rows.h"

#include <stdio.h>
#include <string.h>

#include "ctl/print/format.h"
#include "ctl/print/spec_line.h"
#include "proto/spec/spec.h"

enum { KEY_BYTES = 512 };

/* Of what a daemon was sent. */
struct sent {
	const struct arguments *args;
	const struct submit_source *source;
	const json_t *arms; /* of the spec; NULL: it has none */
};

bool spec_rows_is_set(const struct arguments *args, const char *key)
{
	const size_t n = strlen(key);

	for (size_t i = 0; i < args->n_values; i++)
		if (strcmp(args->values[i].row->name, "set") == 0 &&
			strncmp(args->values[i].text, key, n) == 0 &&
			args->values[i].text[n] == '=')
			return true;
	return false;
}

static struct spec_place place_of(const struct sent *s, const char *key)
{
	return spec_line(s->source->text, s->source->n, key);
}

/* Whether the arm gives the key itself, in the file or by an option. */
static bool has_own(const struct sent *s, const char *arm, const char *key)
{
	char own[sizeof("arms..") + SPEC_NAME_MAX + KEY_BYTES];

	snprintf(own, sizeof(own), "arms.%s.%s", arm, key);
	return spec_rows_is_set(s->args, own) || place_of(s, own).line > 0;
}

/* Takes "arms.NAME.KEY" apart, where that arm has KEY from the whole spec; else NULL. */
static const char *shared_key(const struct sent *s, const char *key, const char **arm)
{
	const char *name, *rest = NULL;
	json_t *ignored;
	size_t n, most = 0;

	if (strncmp(key, "arms.", 5) != 0)
		return NULL;
	/* a name may have dots, and begin with another one */
	json_object_foreach((json_t *)s->arms, name, ignored) {
		n = strlen(name);
		if (n < most || strncmp(key + 5, name, n) != 0 || key[5 + n] != '.')
			continue;
		most = n;
		*arm = name;
		rest = key + 5 + n + 1;
	}
	return rest && !has_own(s, *arm, rest) ? rest : NULL;
}

/* A run without "gpus" asks for all that its gpt2d had; this one has fewer, for which the batch is
 * another product. */
static void advise_ranks(json_t *row)
{
	const char *why = json_string_value(json_object_get(row, "message"));

	json_object_set_new(row, "message",
		json_sprintf("%s; as many as there are: --set gpus=0, with --set train_batch_size "
			     "or gradient_accumulation_steps to fit",
			why ? why : ""));
}

/* No other size of a batch is set. */
static bool only_gpus_set(const struct arguments *args)
{
	static const char *const keys[] = {"train_batch_size", "gradient_accumulation_steps",
		"train_micro_batch_size_per_gpu"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (spec_rows_is_set(args, keys[i]))
			return false;
	return spec_rows_is_set(args, "gpus");
}

bool spec_rows_advise_gpus(const struct arguments *args, const struct submit_source *source,
	const char *key, char *out, size_t out_bytes)
{
	json_t *spec;
	int64_t per_gpu, gpus, batch;

	if (source->rerun_of == 0 || strcmp(key, "train_batch_size") != 0 || !only_gpus_set(args))
		return false;
	spec = json_loads(source->text, 0, NULL);
	batch = format_int(spec, "train_batch_size", 0);
	gpus = format_int(spec, "gpus", 0);
	per_gpu = gpus > 0 ? batch / gpus : 0;
	json_decref(spec);
	if (per_gpu > 0)
		snprintf(out, out_bytes,
			"the run had it for gpus %lld: with --set gpus set train_batch_size too, "
			"to %lld x gpus where each rank is to do what it did, to %lld where more "
			"or fewer accumulation steps are to make up for the ranks",
			(long long)gpus, (long long)per_gpu, (long long)batch);
	else
		snprintf(out, out_bytes, "with --set gpus, set train_batch_size too");
	return true;
}

/* A run that is queued again has no file. */
static void place(const struct sent *s, json_t *row, const char *key)
{
	char advice[SPEC_ROWS_ADVICE];
	struct spec_place at = {0};

	if (spec_rows_advise_gpus(s->args, s->source, key, advice, sizeof(advice)))
		json_object_set_new(row, "message",
			json_sprintf("%s; %s", json_string_value(json_object_get(row, "message")),
				advice));
	if (key[0] && spec_rows_is_set(s->args, key)) {
		json_object_set_new(row, "key", json_sprintf("--set %s", key));
	} else if (key[0] && s->source->rerun_of == 0) {
		at = place_of(s, key);
	} else if (strcmp(key, "gpus") == 0) {
		advise_ranks(row);
	}
	json_object_set_new(row, "line", json_integer(at.line));
	json_object_set_new(row, "column", json_integer(at.column));
}

static bool is_same(const json_t *a, const json_t *b)
{
	return json_equal(json_object_get(a, "key"), json_object_get(b, "key")) &&
		json_equal(json_object_get(a, "message"), json_object_get(b, "message"));
}

/* The row of the same key and message that has arms, or a new one at the end. */
static json_t *shared_row(json_t *rows, json_t *row, const char *key)
{
	json_t *other;
	size_t i;

	json_object_set_new(row, "key", json_string(key));
	json_array_foreach(rows, i, other)
		if (json_object_get(other, "arms") && is_same(other, row))
			return other;
	json_object_set_new(row, "arms", json_array());
	json_array_append(rows, row);
	return row;
}

/* Takes a row's arms out: into its message, unless they are all that share the key. */
static void say_arms(const struct sent *s, json_t *row, const char *key)
{
	json_t *arms = json_incref(json_object_get(row, "arms")), *ignored, *arm;
	const char *message = json_string_value(json_object_get(row, "message")), *name;
	size_t sharing = 0, n = json_array_size(arms), i;

	json_object_del(row, "arms");
	json_object_foreach((json_t *)s->arms, name, ignored)
		sharing += !has_own(s, name, key);
	json_array_foreach(arms, i, arm) {
		if (n >= sharing)
			break;
		json_object_set_new(row, "message",
			json_sprintf("%s%s%s%s", message ? message : "",
				i > 0           ? ", "
					: n > 1 ? " (arms "
						: " (arm ",
				json_string_value(arm), i + 1 == n ? ")" : ""));
		message = json_string_value(json_object_get(row, "message"));
	}
	json_decref(arms);
}

json_t *spec_rows_place(const struct arguments *args, const struct submit_source *source,
	const json_t *spec, const json_t *rows)
{
	const struct sent s = {args, source, json_object_get(spec, "arms")};
	json_t *placed = json_array(), *sorted, *row, *copy;
	const char *key, *arm, *shared;
	char text[KEY_BYTES];
	size_t i;

	json_array_foreach((json_t *)rows, i, row) {
		copy = json_copy(row);
		key = json_string_value(json_object_get(row, "key"));
		shared = key ? shared_key(&s, key, &arm) : NULL;
		if (shared)
			json_array_append_new(
				json_object_get(shared_row(placed, copy, shared), "arms"),
				json_string(arm));
		else
			json_array_append(placed, copy);
		json_decref(copy);
	}
	json_array_foreach(placed, i, row) {
		format_string(row, "key", "", text, sizeof(text));
		if (json_object_get(row, "arms"))
			say_arms(&s, row, text);
		place(&s, row, text);
	}
	sorted = spec_rows_sorted(placed);
	json_decref(placed);
	return sorted;
}

/* By line; none is behind all. */
static bool comes_before(const json_t *a, const json_t *b)
{
	const int64_t first = format_int(a, "line", 0), second = format_int(b, "line", 0);

	return first > 0 && (second == 0 || first < second);
}

json_t *spec_rows_sorted(const json_t *rows)
{
	json_t *sorted = json_array(), *row;
	size_t i, at;

	json_array_foreach((json_t *)rows, i, row) {
		for (at = json_array_size(sorted); at > 0; at--)
			if (!comes_before(row, json_array_get(sorted, at - 1)))
				break;
		json_array_insert(sorted, at, row);
	}
	return sorted;
}
