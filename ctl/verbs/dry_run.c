#include "ctl/verbs/dry_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ctl/print/members.h"
#include "ctl/print/text.h"
#include "proto/stats/verdict.h"

/* ---- the lines of an arm: an array, so that the lines of arms can be compared ---- */

/* format: of the members of object; nothing if that is null. */
static void add(json_t *lines, const char *label, const json_t *object, const char *format)
{
	char *text;

	if (!json_is_object(object))
		return;
	text = members_text(object, format);
	json_array_append_new(lines, json_sprintf("  %-22s %s", label, text));
	free(text);
}

/* passes: the key of the number of times that the file is read. */
static void add_file(json_t *lines, const char *label, const json_t *file, const char *passes)
{
	const double read = format_real(file, passes);
	char times[64] = "", format[160], number[FORMAT_BYTES];

	if (read >= 999.5 && read < 0x1p53)
		snprintf(times, sizeof(times), ", %s %s", passes,
			format_count((int64_t)round(read), number));
	else if (isfinite(read))
		snprintf(times, sizeof(times), ", %s %.3g", passes, read);
	snprintf(format, sizeof(format), "{tokens:count} tokens, {needed:count} required%s%s",
		format_int(file, "left_out_tokens", 0) > 0
			? ", {left_out_tokens:count} left out at the end"
			: "",
		times);
	add(lines, label, file, format);
	add(lines, "", file, "{path|-}");
}

/* Each label names the total, because lines that all arms share are printed separately. */
static const struct {
	const char *label, *key;
} memory_parts[] = {
	{"memory: parameters", "parameters_bytes"},
	{"memory: gradients", "gradients_bytes"},
	{"memory: fp32 parameters", "master_bytes"},
	{"memory: Adam's moments", "moments_bytes"},
	{"memory: activations", "activations_bytes"},
	{"memory: logits", "logits_bytes"},
	{"memory: batches", "batch_bytes"},
	{"memory: scratch", "scratch_bytes"},
	{"memory: branch scratch", "scratch_branch_bytes"},
	{"memory: communication", "comm_bytes"},
	{"memory: device's context", "context_bytes"},
	{"memory: for tuning", "tuning_bytes"},
};

static void add_memory(json_t *lines, const json_t *check)
{
	json_t *memory = json_copy(json_object_get(check, "memory"));
	const bool one =
		format_int(memory, "planned_bytes", 0) == format_int(memory, "total_bytes", 0);
	char format[64];

	json_object_set_new(memory, "moments_bytes",
		json_integer(format_int(memory, "moment_m_bytes", 0) +
			format_int(memory, "moment_v_bytes", 0)));
	add(lines, "memory of a rank", memory, "{total_bytes:size}");
	for (size_t i = 0; i < sizeof(memory_parts) / sizeof(memory_parts[0]); i++) {
		snprintf(format, sizeof(format), "{%s:size}", memory_parts[i].key);
		if (format_int(memory, memory_parts[i].key, 0) > 0)
			add(lines, memory_parts[i].label, memory, format);
	}
	if (format_int(memory, "available_bytes", 0) > 0)
		add(lines, one ? "of the device" : "all ranks together", memory,
			"{planned_bytes:size} of {available_bytes:size}, {free_bytes:size} free "
			"now");
	/* with each value of activation_checkpointing */
	if (format_int(memory, "activations_none_bytes", 0) > 0)
		add(lines, "activations with", memory,
			"none {activations_none_bytes:size}, selective "
			"{activations_selective_bytes:size}, full {activations_full_bytes:size}");
	json_decref(memory);
}

/* A new reference. */
static json_t *describe(const json_t *check)
{
	const json_t *data = json_object_get(check, "data");
	json_t *lines = json_array();

	add(lines, "model", json_object_get(check, "model"),
		"{parameters:count} parameters, vocabulary padded to {vocab_padded:count}");
	add_file(lines, "training data", json_object_get(data, "train"), "epochs");
	add_file(lines, "validation data", json_object_get(data, "val"), "passes");
	add(lines, "batch", json_object_get(check, "batch"),
		"{train_batch_size:count} sequences: {world} ranks x "
		"{train_micro_batch_size_per_gpu}, accumulation {gradient_accumulation_steps}");
	add(lines, "work", json_object_get(check, "work"),
		"{optimizer_steps:count} steps, {micro_steps:count} micro-steps, {tokens:count} "
		"tokens");
	add(lines, "sent in a step", json_object_get(check, "traffic"),
		"reduce-scatter {reduce_scatter_bytes:size}, all-gather {all_gather_bytes:size}, "
		"all-reduce {all_reduce_bytes:size}");
	add_memory(lines, check);
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

/* Whether all arms have it in their arrays. */
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

/* Prints the common lines, or the others. */
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

/* 1 and 1.0 are equal. Keys that a change does not name stay. */
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

/* Only bucket sizes differ, and the effective plan equals the first arm's. */
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
	char name[80], first[80];

	format_string(row, "arm", "", name, sizeof(name));
	fprintf(t->file, "\n%sarm %s%s", term_colour(t, TERM_BOLD), name,
		term_colour(t, TERM_PLAIN));
	members_print(t->file, row, "  spec {spec_sha256:16|-}\n");
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
	const size_t n = json_array_size(rows);
	FILE *out = o->out.file;
	json_t *lines = json_array(), *warnings = text_warnings(rows);
	size_t i;

	fputs("dry run: nothing is queued\n", out);
	members_print(out, spec, "{name|-}: ");
	fprintf(out, "%zu arm%s, ", n, n == 1 ? "" : "s");
	members_print(out, reply, "{segments} segment{segments:s}, spec {spec_sha256:16|-}\n");
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
			json_array_append_new(own,
				json_sprintf("  %-22s %lld", "ZeRO stage",
					(long long)json_integer_value(stage)));
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
