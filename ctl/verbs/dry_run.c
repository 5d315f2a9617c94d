#include "ctl/verbs/dry_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/print/members.h"
#include "ctl/print/text.h"
#include "ctl/verbs/show.h"
#include "proto/spec/spec.h"
#include "proto/spec/spec_table.h"
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

/* Whether all arms have it in their arrays. */
static bool is_common(const json_t *arms, const json_t *text)
{
	const json_t *texts;
	size_t i;

	json_array_foreach(arms, i, texts) {
		if (!text_has(texts, text))
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

struct differences {
	size_t n;
	bool buckets; /* in bucket sizes alone */
};

static void count_difference(
	const struct spec_row *row, const char *own, const char *others, void *arg)
{
	struct differences *d = arg;
	const size_t key = (size_t)(row - spec_table);

	d->n++;
	d->buckets &= key == SPEC_KEY_REDUCE_BUCKET || key == SPEC_KEY_ALLGATHER_BUCKET;
}

static const json_t *plan_of(const json_t *row)
{
	return json_object_get(json_object_get(row, "check"), "plan");
}

/* The effective plan is the first arm's. */
static bool same_plan(const json_t *plan, const json_t *first)
{
	static const char *const effective[] = {
		"reduce_elems", "n_reduce", "gather_elems", "n_gather", "arena_elems"};
	bool same = json_is_object(plan);

	for (size_t i = 0; i < sizeof(effective) / sizeof(effective[0]); i++)
		same &= json_equal(
			json_object_get(plan, effective[i]), json_object_get(first, effective[i]));
	return same;
}

/* What arm has that the spec's first arm, the one of row first, does not have. */
static void print_changes(const struct term *t, const struct spec *spec, size_t arm,
	const json_t *row, const json_t *first)
{
	struct differences d = {.buckets = true};

	spec_differences(spec, arm, 0, count_difference, &d);
	if (d.n == 0)
		members_print(t->file, first, "  the same as {arm}\n");
	show_differences(t, spec, arm);
	if (d.n > 0 && d.buckets && same_plan(plan_of(row), plan_of(first))) {
		fprintf(t->file, "  %-22s ", "identical plan");
		members_print(t->file, first, "the engine runs this arm as it runs {arm}\n");
	}
}

/* The arm of a row; 0 for the only one of a spec without arms. */
static size_t arm_of(const struct spec *spec, const json_t *row)
{
	const char *name = json_string_value(json_object_get(row, "arm"));
	size_t arm = spec->n_arms - 1;

	while (arm > 0 && name && strcmp(spec->arms[arm].name, name) != 0)
		arm--;
	return arm;
}

/* spec: NULL if this gpt2ctl cannot read it. */
static void print_arm(const struct term *t, const json_t *rows, const struct spec *spec,
	const json_t *lines, size_t i)
{
	const json_t *row = json_array_get(rows, i);

	fprintf(t->file, "\n%s", term_colour(t, TERM_BOLD));
	members_print(t->file, row, "arm {arm|}");
	fputs(term_colour(t, TERM_PLAIN), t->file);
	members_print(t->file, row, "  spec {spec_sha256:16|-}\n");
	if (i > 0 && spec)
		print_changes(t, spec, arm_of(spec, row), row, json_array_get(rows, 0));
	print_plan(t->file, plan_of(row));
	print_lines(t->file, lines, i, false);
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
	json_t *lines = json_array(), *warnings = text_warnings(spec, rows);
	struct ctl_error e = {0};
	struct spec *parsed = show_spec(reply, &e);
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

		if (parsed)
			json_array_append_new(own,
				json_sprintf("  %-22s %lld", "ZeRO stage",
					(long long)parsed->arms[arm_of(parsed, row)]
						.config.zero_stage));
		json_array_append_new(lines, own);
	}
	if (n > 1)
		print_design(out, json_object_get(spec, "design"), n);
	if (n > 1) {
		fputs("\nall arms\n", out);
		print_lines(out, lines, 0, true);
	}
	for (i = 0; i < n; i++)
		print_arm(&o->out, rows, parsed, lines, i);
	if (json_array_size(warnings) > 0)
		fputc('\n', out);
	text_print_warnings(&o->out, warnings);
	spec_free(parsed);
	ctl_error_clear(&e);
	json_decref(warnings);
	json_decref(lines);
}
