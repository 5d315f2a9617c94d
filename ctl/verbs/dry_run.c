#include "ctl/verbs/dry_run.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "ctl/print/text.h"
#include "proto/stats/verdict.h"

/* ---- the lines of an arm: an array, so that the lines of arms can be compared ---- */

static void add(json_t *lines, const char *label, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void add(json_t *lines, const char *label, const char *format, ...)
{
	char text[4200];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	json_array_append_new(lines, json_sprintf("  %-22s %s", label, text));
}

static void add_model(json_t *lines, const json_t *model)
{
	char parameters[FORMAT_BYTES], vocabulary[FORMAT_BYTES];

	if (json_is_object(model))
		add(lines, "model", "%s parameters, vocabulary padded to %s",
			format_count(format_int(model, "parameters", 0), parameters),
			format_count(format_int(model, "vocab_padded", 0), vocabulary));
}

static void add_batch(json_t *lines, const json_t *batch)
{
	char sequences[FORMAT_BYTES];

	if (json_is_object(batch))
		add(lines, "batch", "%s sequences: %lld ranks x %lld, accumulation %lld",
			format_count(format_int(batch, "train_batch_size", 0), sequences),
			(long long)format_int(batch, "world", 0),
			(long long)format_int(batch, "train_micro_batch_size_per_gpu", 0),
			(long long)format_int(batch, "gradient_accumulation_steps", 0));
}

static void add_work(json_t *lines, const json_t *work)
{
	char steps[FORMAT_BYTES], micro[FORMAT_BYTES], tokens[FORMAT_BYTES];

	if (json_is_object(work))
		add(lines, "work", "%s steps, %s micro-steps, %s tokens",
			format_count(format_int(work, "optimizer_steps", 0), steps),
			format_count(format_int(work, "micro_steps", 0), micro),
			format_count(format_int(work, "tokens", 0), tokens));
}

/* passes: the key of the number of times that the file is read. */
static void add_file(json_t *lines, const char *label, const json_t *file, const char *passes)
{
	const int64_t left = format_int(file, "left_out_tokens", 0);
	char tokens[FORMAT_BYTES], needed[FORMAT_BYTES], number[FORMAT_BYTES];
	char left_out[FORMAT_BYTES + 32] = "", times[64] = "", text[4096];
	const double read = format_real(file, passes);

	if (!json_is_object(file))
		return;
	if (read >= 999.5 && read < 0x1p53)
		snprintf(times, sizeof(times), ", %s %s", passes,
			format_count((int64_t)round(read), number));
	else if (isfinite(read))
		snprintf(times, sizeof(times), ", %s %.3g", passes, read);
	if (left > 0)
		snprintf(left_out, sizeof(left_out), ", %s left out at the end",
			format_count(left, number));
	add(lines, label, "%s tokens, %s required%s%s",
		format_count(format_int(file, "tokens", 0), tokens),
		format_count(format_int(file, "needed", 0), needed), left_out, times);
	add(lines, "", "%s", format_string(file, "path", "-", text, sizeof(text)));
}

/* Each label names the total, because lines that all arms share are printed apart from it. */
static const struct {
	const char *label, *key, *second; /* second: a key to be added, or NULL */
} memory_parts[] = {
	{"memory: parameters", "parameters_bytes", NULL},
	{"memory: gradients", "gradients_bytes", NULL},
	{"memory: fp32 parameters", "master_bytes", NULL},
	{"memory: Adam's moments", "moment_m_bytes", "moment_v_bytes"},
	{"memory: activations", "activations_bytes", NULL},
	{"memory: logits", "logits_bytes", NULL},
	{"memory: batches", "batch_bytes", NULL},
	{"memory: scratch", "scratch_bytes", NULL},
	{"memory: branch scratch", "scratch_branch_bytes", NULL},
	{"memory: communication", "comm_bytes", NULL},
	{"memory: device's context", "context_bytes", NULL},
	{"memory: for tuning", "tuning_bytes", NULL},
};

/* With each activation_checkpointing. */
static void add_activations(json_t *lines, const json_t *memory)
{
	const int64_t none = format_int(memory, "activations_none_bytes", 0);
	char a[FORMAT_BYTES], b[FORMAT_BYTES], c[FORMAT_BYTES];

	if (none > 0)
		add(lines, "activations with", "none %s, selective %s, full %s",
			format_size(none, a),
			format_size(format_int(memory, "activations_selective_bytes", 0), b),
			format_size(format_int(memory, "activations_full_bytes", 0), c));
}

static void add_memory(json_t *lines, const json_t *memory)
{
	const int64_t total = format_int(memory, "total_bytes", 0);
	const int64_t planned = format_int(memory, "planned_bytes", 0);
	const int64_t available = format_int(memory, "available_bytes", 0);
	char a[FORMAT_BYTES], b[FORMAT_BYTES], c[FORMAT_BYTES];

	if (!json_is_object(memory))
		return;
	add(lines, "memory of a rank", "%s", format_size(total, a));
	for (size_t i = 0; i < sizeof(memory_parts) / sizeof(memory_parts[0]); i++) {
		int64_t bytes = format_int(memory, memory_parts[i].key, 0);

		if (memory_parts[i].second)
			bytes += format_int(memory, memory_parts[i].second, 0);
		if (bytes > 0)
			add(lines, memory_parts[i].label, "%s", format_size(bytes, a));
	}
	if (available > 0)
		add(lines, planned == total ? "of the device" : "all ranks together",
			"%s of %s, %s free now", format_size(planned, a), format_size(available, b),
			format_size(format_int(memory, "free_bytes", 0), c));
	add_activations(lines, memory);
}

static void add_traffic(json_t *lines, const json_t *traffic)
{
	char scatter[FORMAT_BYTES], gather[FORMAT_BYTES], reduce[FORMAT_BYTES];

	if (!json_is_object(traffic))
		return;
	add(lines, "sent in a step", "reduce-scatter %s, all-gather %s, all-reduce %s",
		format_size(format_int(traffic, "reduce_scatter_bytes", 0), scatter),
		format_size(format_int(traffic, "all_gather_bytes", 0), gather),
		format_size(format_int(traffic, "all_reduce_bytes", 0), reduce));
}

/* A new reference. */
static json_t *describe(const json_t *check)
{
	const json_t *data = json_object_get(check, "data");
	json_t *lines = json_array();

	add_model(lines, json_object_get(check, "model"));
	add_file(lines, "training data", json_object_get(data, "train"), "epochs");
	add_file(lines, "validation data", json_object_get(data, "val"), "passes");
	add_batch(lines, json_object_get(check, "batch"));
	add_work(lines, json_object_get(check, "work"));
	add_traffic(lines, json_object_get(check, "traffic"));
	add_memory(lines, json_object_get(check, "memory"));
	return lines;
}

static bool has_text(const json_t *texts, const json_t *text)
{
	const json_t *other;
	size_t i;

	json_array_foreach(texts, i, other) {
		if (json_equal(other, text))
			return true;
	}
	return false;
}

/* In all of several arms' arrays. */
static bool is_common(const json_t *arms, const json_t *text)
{
	const json_t *texts;
	size_t i;

	json_array_foreach(arms, i, texts) {
		if (!has_text(texts, text))
			return false;
	}
	return json_array_size(arms) > 1;
}

/* The lines that are common, or those that are not. */
static void print_lines(FILE *out, const json_t *arms, size_t arm, bool common)
{
	const json_t *line;
	size_t i;

	json_array_foreach(json_array_get(arms, arm), i, line) {
		if (is_common(arms, line) == common)
			fprintf(out, "%s\n", json_string_value(line));
	}
}

/* ---- the plan, printed for each arm ---- */

static void print_bucket(FILE *out, const char *what, const json_t *plan, const char *const keys[3])
{
	const int64_t n = format_int(plan, keys[2], 0);
	const int64_t elems = format_int(plan, keys[1], 0);
	char asked[FORMAT_BYTES], effective[FORMAT_BYTES], size[FORMAT_BYTES];

	fprintf(out, "  %-22s %lld bucket%s of %s el (%s), requested %s el\n", what, (long long)n,
		n == 1 ? "" : "s", format_count(elems, effective),
		format_size(format_product(elems, format_int(plan, "elem_bytes", 4)), size),
		format_count(format_int(plan, keys[0], 0), asked));
}

/* The requested and the effective sizes. */
static void print_plan(FILE *out, const json_t *plan)
{
	static const char *const reduce[] = {"asked_reduce_elems", "reduce_elems", "n_reduce"};
	static const char *const gather[] = {"asked_gather_elems", "gather_elems", "n_gather"};

	if (!json_is_object(plan))
		return;
	print_bucket(out, "reduce buckets", plan, reduce);
	if (format_int(plan, "n_gather", 0) > 0)
		print_bucket(out, "all-gather buckets", plan, gather);
}

/* ---- the keys that an arm changes ---- */

enum { CHANGE_DEPTH = 8 };

static void print_json(FILE *out, const json_t *value)
{
	char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
	char clean[1024];

	term_clean(text ? text : "absent", clean, sizeof(clean));
	fputs(clean, out);
	free(text);
}

/* 1 and 1.0 are equal. A change leaves the keys that it does not name as they are. */
static bool differs(const json_t *value, const json_t *before, int depth)
{
	const json_t *inner;
	const char *key;

	if (json_is_real(value) != json_is_real(before) && json_is_number(value) &&
		json_is_number(before))
		return json_number_value(value) != json_number_value(before);
	if (!json_is_object(value) || depth == CHANGE_DEPTH)
		return !json_equal(value, before);
	json_object_foreach((json_t *)value, key, inner) {
		if (differs(inner, json_object_get(before, key), depth + 1))
			return true;
	}
	return false;
}

static void print_changes(
	FILE *out, const json_t *changes, const json_t *base, const char *path, int depth)
{
	const json_t *value, *before;
	char inner[512], clean[512];
	const char *key;

	json_object_foreach((json_t *)changes, key, value) {
		snprintf(inner, sizeof(inner), "%.255s%s%.255s", path, *path ? "." : "", key);
		before = json_object_get(base, key);
		if (!differs(value, before, depth))
			continue;
		if (json_is_object(value) && depth < CHANGE_DEPTH) {
			print_changes(out, value, before, inner, depth + 1);
			continue;
		}
		term_clean(inner, clean, sizeof(clean));
		fprintf(out, "    %s ", clean);
		print_json(out, value);
		fputs(", not ", out);
		print_json(out, before);
		fputc('\n', out);
	}
}

/* A member of zero_optimization, of the arm or else of the whole spec. */
static const json_t *zero_of(const json_t *spec, const json_t *changes, const char *key)
{
	const json_t *own = json_object_get(json_object_get(changes, "zero_optimization"), key);

	return own ? own : json_object_get(json_object_get(spec, "zero_optimization"), key);
}

static const json_t *plan_of(const json_t *row)
{
	return json_object_get(json_object_get(row, "check"), "plan");
}

/* Only bucket sizes differ, and the effective plan is the first arm's. */
static bool is_identical(
	const json_t *spec, const json_t *changes, const json_t *plan, const json_t *first)
{
	static const char *const effective[] = {
		"reduce_elems", "n_reduce", "gather_elems", "n_gather", "arena_elems"};
	json_t *others = json_deep_copy(changes);
	json_t *zero = json_object_get(others, "zero_optimization");
	bool identical = json_is_object(plan);

	json_object_del(zero, "reduce_bucket_size");
	json_object_del(zero, "allgather_bucket_size");
	if (differs(others, spec, 0))
		identical = false;
	for (size_t i = 0; i < sizeof(effective) / sizeof(effective[0]); i++)
		identical = identical &&
			json_equal(json_object_get(plan, effective[i]),
				json_object_get(first, effective[i]));
	json_decref(others);
	return identical;
}

static void print_arm(const struct term *t, const json_t *reply, const json_t *lines, size_t arm)
{
	const json_t *rows = json_object_get(reply, "arms"), *row = json_array_get(rows, arm);
	const json_t *spec = json_object_get(reply, "spec"), *changes, *plan = plan_of(row);
	char name[80], first[80], hash[80];

	format_string(row, "arm", "", name, sizeof(name));
	fprintf(t->file, "\n%sarm %s%s  spec %.16s\n", term_colour(t, TERM_BOLD), name,
		term_colour(t, TERM_PLAIN),
		format_string(row, "spec_sha256", "-", hash, sizeof(hash)));
	changes = json_object_get(
		json_object_get(spec, "arms"), json_string_value(json_object_get(row, "arm")));
	if (arm > 0) {
		const bool other = changes && differs(changes, spec, 0);

		format_string(json_array_get(rows, 0), "arm", "", first, sizeof(first));
		fprintf(t->file, "  %s %s%s\n", other ? "differs from" : "the same as", first,
			other ? ":" : "");
		print_changes(t->file, changes, spec, "", 0);
		if (other && is_identical(spec, changes, plan, plan_of(json_array_get(rows, 0))))
			fprintf(t->file, "  %-22s the engine runs this arm as it runs %s\n",
				"identical plan", first);
	}
	print_plan(t->file, plan);
	print_lines(t->file, lines, arm, false);
}

/* ---- all ---- */

static void print_design(FILE *out, const json_t *design, size_t arms)
{
	const int64_t blocks = format_int(design, "repetitions", 0);

	if (blocks == 0)
		return;
	fprintf(out, "%lld blocks of %zu arms%s, at most %lld more for void ones, margin %g%%\n",
		(long long)blocks, arms,
		json_is_true(json_object_get(design, "mirrored")) ? ", mirrored" : "",
		(long long)format_int(design, "spare_blocks", 0),
		100.0 * format_real(design, "margin"));
	if (blocks < VERDICT_BLOCKS_MIN)
		fprintf(out, "fewer than %d blocks give figures, and no verdict\n",
			VERDICT_BLOCKS_MIN);
}

void dry_run_print(struct output *o, const json_t *reply, bool verbose)
{
	const json_t *rows = json_object_get(reply, "arms"), *row;
	const json_t *spec = json_object_get(reply, "spec");
	const int64_t segments = format_int(reply, "segments", 1);
	const size_t n = json_array_size(rows);
	FILE *out = o->out.file;
	json_t *lines = json_array(), *warnings = text_warnings(rows);
	char name[80], hash[80];
	size_t i;

	fprintf(out, "dry run: nothing is queued\n%s: %zu arm%s, %lld segment%s, spec %.16s\n",
		format_string(spec, "name", "-", name, sizeof(name)), n, n == 1 ? "" : "s",
		(long long)segments, segments == 1 ? "" : "s",
		format_string(reply, "spec_sha256", "-", hash, sizeof(hash)));
	if (verbose) {
		fputs("\nresolved spec:\n", out);
		json_dumpf(spec, out, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
		fputc('\n', out);
	}
	json_array_foreach(rows, i, row) {
		json_t *own = describe(json_object_get(row, "check"));
		const json_t *stage = zero_of(spec,
			json_object_get(json_object_get(spec, "arms"),
				json_string_value(json_object_get(row, "arm"))),
			"stage");

		if (json_is_integer(stage))
			add(own, "ZeRO stage", "%lld", (long long)json_integer_value(stage));
		json_array_append_new(lines, own);
	}
	if (n > 1)
		print_design(out, json_object_get(spec, "design"), n);
	if (n > 1) {
		fputs("\nall arms\n", out);
		print_lines(out, lines, 0, true);
	}
	for (i = 0; i < n; i++)
		print_arm(&o->out, reply, lines, i);
	if (json_array_size(warnings) > 0)
		fputc('\n', out);
	text_print_warnings(&o->out, warnings);
	json_decref(warnings);
	json_decref(lines);
}
