#include "ctl/results/comparison_table.h"

#include <math.h>
#include <string.h>

#include "ctl/print/page.h"
#include "ctl/results/comparison_text.h"
#include "proto/stats/verdict.h"

/* ---- tables ---- */

/* A member of a row of comparisons or, if it has none, of its arm. */
static const struct {
	const char *key;
	bool markdown;
} columns[] = {
	{"arm", true},
	{"verdict", true},
	{"reason", false},
	{"throughput_percent", true},
	{"throughput_low_percent", true},
	{"throughput_high_percent", true},
	{"step_time_percent", false},
	{"p", false},
	{"p_holm", true},
	{"blocks", true},
	{"tok_s", true},
	{"median_ns", false},
	{"p95_ns", false},
	{"exposed_comm_mean_s", false},
	{"exposed_wait_mean_s", false},
	{"mfu", true},
	{"j_per_mtok", true},
	{"peak_device_bytes", false},
	{"tokens", false},
	{"seconds", false},
	{"stalled_segments", false},
	{"steps_applied", false},
	{"steps_skipped", false},
};

static void format_cell(const json_t *value, bool brief, char *out, size_t bytes)
{
	if (json_is_string(value))
		term_clean(json_string_value(value), out, bytes);
	else if (json_is_integer(value))
		snprintf(out, bytes, "%lld", (long long)json_integer_value(value));
	else if (json_is_real(value))
		snprintf(out, bytes, brief ? "%.4g" : "%.9g", json_real_value(value));
	else
		out[0] = '\0';
}

static const json_t *cell_of(const json_t *arm, const json_t *row, const char *key)
{
	const json_t *value = json_object_get(row, key);

	return value && !json_is_object(value) ? value : json_object_get(arm, key);
}

/* A name may contain the separator of cells. */
static void put_csv(FILE *out, const char *text)
{
	if (!strpbrk(text, ",\"")) {
		fputs(text, out);
		return;
	}
	fputc('"', out);
	for (; *text; text++)
		fprintf(out, *text == '"' ? "\"\"" : "%c", *text);
	fputc('"', out);
}

static void print_line(FILE *out, const json_t *arm, const json_t *row, bool markdown)
{
	char text[160];
	bool first = true;

	for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
		if (markdown && !columns[i].markdown)
			continue;
		if (arm)
			format_cell(
				cell_of(arm, row, columns[i].key), markdown, text, sizeof(text));
		else
			snprintf(text, sizeof(text), "%s", columns[i].key);
		fputs(markdown ? "| " : first ? "" : ",", out);
		if (markdown)
			fprintf(out, "%s ", text);
		else
			put_csv(out, text);
		first = false;
	}
	fputs(markdown ? "|\n" : "\n", out);
}

static void print_lines(FILE *out, const json_t *comparison, bool markdown)
{
	const json_t *rows = json_object_get(comparison, "comparisons"), *arm;
	size_t i;

	print_line(out, NULL, NULL, markdown);
	for (i = 0; markdown && i < sizeof(columns) / sizeof(columns[0]); i++)
		fputs(columns[i].markdown ? "|---" : "", out);
	fputs(markdown ? "|\n" : "", out);
	json_array_foreach(json_object_get(comparison, "arms"), i, arm)
		print_line(
			out, arm, comparison_text_arm(rows, json_object_get(arm, "arm")), markdown);
}

void comparison_table_markdown(struct output *o, const json_t *comparison)
{
	print_lines(o->out.file, comparison, true);
}

void comparison_table_csv(struct output *o, const json_t *comparison)
{
	print_lines(o->out.file, comparison, false);
}

/* ---- a paragraph ---- */

static size_t count_void(const json_t *comparison)
{
	const json_t *block;
	size_t i, n = 0;

	json_array_foreach(json_object_get(comparison, "blocks"), i, block)
		n += json_is_string(json_object_get(block, "void"));
	return n;
}

/* Arms without figures, a design that ends by itself, and the control. */
static void print_conditions(struct page *p, const json_t *comparison)
{
	const json_t *design = json_object_get(comparison, "design");
	const double half_width = format_real(design, "half_width");
	const json_t *row, *control = NULL;
	size_t i;

	if (isfinite(half_width))
		page_part(p,
			"The experiment was to stop once the half-width of every interval of the "
			"log ratio was at most %g, checked after each block from the %dth on.",
			half_width, VERDICT_BLOCKS_MIN);
	page_end(p);
	json_array_foreach(json_object_get(comparison, "comparisons"), i, row) {
		if (json_is_object(json_object_get(row, "aa_control")))
			control = json_object_get(row, "aa_control");
	}
	if (control)
		page_members(p, control,
			"A control, the baseline run once more in each block, differed from it by "
			"{throughput_percent:signed|-}.");
	page_end(p);
	json_array_foreach(json_object_get(comparison, "arms"), i, row) {
		if (json_is_true(json_object_get(row, "failed")))
			page_members(
				p, row, "The training of {arm|} failed, so it is not compared.");
		page_end(p);
	}
}

void comparison_table_methods(struct output *o, const json_t *comparison)
{
	const json_t *design = json_object_get(comparison, "design");
	const json_t *arms = json_object_get(comparison, "arms");
	const json_t *machine = json_object_get(comparison, "machine");
	const int64_t ranks = format_int(json_array_get(arms, 0), "ranks", 0);
	struct page p = {.term = &o->out, .flush = true};
	char base[80], build[80], gpu[80];

	format_string(comparison, "baseline", "", base, sizeof(base));
	page_part(&p,
		"The configurations were compared with gpt2d%s%s on %lld rank%s%s%s. Each of %lld "
		"blocks ran all configurations in a random order (seed %lld)%s, in the same warm "
		"processes.",
		json_is_string(json_object_get(machine, "build")) ? ", build " : "",
		format_string(machine, "build", "", build, sizeof(build)), (long long)ranks,
		ranks == 1 ? "" : "s",
		json_is_string(json_object_get(machine, "gpu")) ? " of " : "",
		format_string(machine, "gpu", "", gpu, sizeof(gpu)),
		(long long)format_int(design, "kept", 0), (long long)format_int(design, "seed", 0),
		json_is_true(json_object_get(design, "mirrored")) ? ", then in the reverse order"
								  : "");
	page_end(&p);
	page_part(&p,
		"A segment trained %lld optimizer steps from the same initial state on the same "
		"tokens; the first %lld steps were not measured. Blocks that the machine disturbed "
		"(by a slowdown, a standstill, another process on a GPU, the loss of an engine or "
		"a restart) were discarded whole, whatever their times (%lld of %lld).",
		(long long)format_int(design, "steps", 0),
		(long long)format_int(design, "warmup_steps", 0), (long long)count_void(comparison),
		(long long)format_int(design, "blocks", 0));
	page_end(&p);
	print_conditions(&p, comparison);
	page_part(&p,
		"We report the Hodges-Lehmann estimate of the log ratio of total times against %s "
		"with its exact %d%% signed-rank interval, and Wilcoxon's exact two-sided p, "
		"adjusted after Holm over the comparisons. A difference counts as none when the "
		"whole interval lies within %g%%.",
		base, comparison_text_confidence(comparison),
		100.0 * format_real(design, "margin"));
	page_end(&p);
}
