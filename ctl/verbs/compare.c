/* gpt2ctl compare: the arms of a run side by side. */
#include "ctl/results/comparison.h"

#include <math.h>
#include <string.h>

#include "ctl/print/states.h"
#include "ctl/print/text.h"
#include "ctl/results/slow_rank.h"
#include "ctl/verbs/show.h"
#include "ctl/verbs/verb.h"

static const struct option_row options[] = {
	{"baseline", 'b', OPTION_STRING, "ARM", 0, 0,
		"the arm that the others are compared with (default: the first)"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

/* Columns of a bar, and of the figures between an arm's name and its bar. */
enum { BAR_MIN = 8, BAR_MAX = 24, FIGURES_COLUMNS = 50 };

static double ns(const json_t *row, const char *key)
{
	return format_real(row, key) * 1e-9;
}

static void print_plans(const struct term *t, const json_t *arms)
{
	const json_t *arm, *plan;
	char name[80], text[200];
	struct table table;
	size_t i;

	table_init(&table);
	table_column(&table, "", false);
	table_column(&table, "", false);
	json_array_foreach(arms, i, arm) {
		plan = json_object_get(arm, "plan");
		text_plan(plan, text, sizeof(text));
		table_cell(&table, "%s", format_string(arm, "arm", "", name, sizeof(name)));
		table_cell(&table, "%s", text);
	}
	table_print(&table, t, "  ");
	table_finish(&table);
}

static double fastest(const json_t *arms)
{
	const json_t *arm;
	double best = 0.0;
	size_t i;

	json_array_foreach(arms, i, arm) {
		const double rate = format_real(arm, "tok_s");

		if (rate > best)
			best = rate;
	}
	return best;
}

/* So many that no bar is cut at the end of the line; 0: there is no room. */
static size_t bar_cells(const struct term *t, const json_t *arms)
{
	size_t widest = strlen("ARM"), width = (size_t)term_width(t), cells;
	const json_t *arm;
	char name[80];
	size_t i;

	json_array_foreach(arms, i, arm) {
		const size_t columns =
			term_columns(format_string(arm, "arm", "", name, sizeof(name)));

		if (columns > widest)
			widest = columns;
	}
	cells = width > widest + FIGURES_COLUMNS ? width - widest - FIGURES_COLUMNS : 0;
	if (cells > BAR_MAX)
		cells = BAR_MAX;
	return cells >= BAR_MIN ? cells : 0;
}

static void print_arms(const struct term *t, const json_t *arms)
{
	const double best = fastest(arms);
	const size_t cells = bar_cells(t, arms);
	const json_t *arm;
	char name[80], bar[128], steps[32];
	struct table table;
	size_t i;

	table_init(&table);
	table_column(&table, "ARM", false);
	table_column(&table, "STEPS", true);
	table_column(&table, "MEDIAN", true);
	table_column(&table, "P95", true);
	table_column(&table, "EXPOSED COMM", true);
	table_column(&table, "TOK/S", true);
	table_column(&table, "", false);
	json_array_foreach(arms, i, arm) {
		const double rate = format_real(arm, "tok_s");

		term_bar(t, best > 0.0 && isfinite(rate) ? rate / best : 0.0, cells, bar,
			sizeof(bar));
		table_cell(&table, "%s", format_string(arm, "arm", "", name, sizeof(name)));
		table_cell(&table, "%s", format_string(arm, "steps", "-", steps, sizeof(steps)));
		text_cell(&table, ns(arm, "median_ns"), format_duration);
		if (json_is_true(json_object_get(arm, "low_n")))
			table_cell(&table, "n<20");
		else
			text_cell(&table, ns(arm, "p95_ns"), format_duration);
		text_cell(&table, format_real(arm, "exposed_comm_mean_s"), format_duration);
		text_cell(&table, rate, format_si);
		while (*bar && bar[strlen(bar) - 1] == ' ')
			bar[strlen(bar) - 1] = '\0';
		table_cell(&table, "%s", bar);
	}
	table_print(&table, t, "");
	table_finish(&table);
}

static void print_parts(const struct term *t, const json_t *arms)
{
	static const char *const keys[] = {"data_mean_s", "forward_mean_s", "backward_mean_s",
		"exposed_comm_mean_s", "optimizer_mean_s"};
	static const char *const heads[] = {
		"DATA", "FORWARD", "BACKWARD", "EXPOSED COMM", "OPTIMIZER"};
	const json_t *arm;
	struct table table;
	char name[80];
	size_t i;

	table_init(&table);
	table_column(&table, "MEAN PER STEP", false);
	for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
		table_column(&table, heads[k], true);
	json_array_foreach(arms, i, arm) {
		table_cell(&table, "%s", format_string(arm, "arm", "", name, sizeof(name)));
		for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
			text_cell(&table, format_real(arm, keys[k]), format_duration);
	}
	table_print(&table, t, "");
	table_finish(&table);
}

/* The cost of a change of arm. */
static void print_switches(const struct term *t, const json_t *arms)
{
	struct table table;
	const json_t *arm;
	char name[80];
	size_t i;

	table_init(&table);
	table_column(&table, "SWITCH TO", false);
	table_column(&table, "MEAN", true);
	table_column(&table, "OF WHICH INIT", true);
	json_array_foreach(arms, i, arm) {
		if (!isfinite(ns(arm, "switch_mean_ns")))
			continue;
		table_cell(&table, "%s", format_string(arm, "arm", "", name, sizeof(name)));
		text_cell(&table, ns(arm, "switch_mean_ns"), format_duration);
		text_cell(&table, ns(arm, "init_mean_ns"), format_duration);
	}
	if (table.n_cells > 0) {
		fputc('\n', t->file);
		table_print(&table, t, "");
	}
	table_finish(&table);
}

static void print_blocks(const struct term *t, const char *baseline, const json_t *blocks)
{
	const json_t *block, *ratio;
	char name[80], change[FORMAT_BYTES], time[FORMAT_BYTES];
	struct table table;
	size_t i, k;

	table_init(&table);
	table_column(&table, "BLOCK", true);
	table_column(&table, "RATIO", false);
	table_column(&table, "TOK/S", true);
	table_column(&table, "STEP TIME", true);
	json_array_foreach(blocks, i, block) {
		json_array_foreach(json_object_get(block, "ratios"), k, ratio) {
			table_cell(&table, "%lld", (long long)format_int(block, "block", 0));
			table_cell(&table, "%s / %s",
				format_string(ratio, "arm", "", name, sizeof(name)), baseline);
			table_cell(&table, "%s",
				format_change(format_real(ratio, "tok_s_ratio"), change));
			table_cell(&table, "%s",
				format_change(format_real(ratio, "step_time_ratio"), time));
		}
	}
	if (table.n_cells > 0) {
		fputc('\n', t->file);
		table_print(&table, t, "");
	}
	table_finish(&table);
}

static void print_ratios(const struct term *t, const char *baseline, const json_t *ratios)
{
	char name[80], change[FORMAT_BYTES], low[FORMAT_BYTES], high[FORMAT_BYTES],
		time[FORMAT_BYTES];
	const json_t *ratio;
	size_t i;

	json_array_foreach(ratios, i, ratio) {
		const int64_t n = format_int(ratio, "blocks", 0);

		format_string(ratio, "arm", "", name, sizeof(name));
		if (n == 0) {
			fprintf(t->file, "%s / %s: no block has both\n", name, baseline);
			continue;
		}
		fprintf(t->file,
			"%s / %s  throughput %s%s%s  step time %s\n"
			"  throughput in %lld block%s: from %s to %s\n",
			name, baseline, term_colour(t, TERM_BOLD),
			format_change(format_real(ratio, "tok_s_ratio"), change),
			term_colour(t, TERM_PLAIN),
			format_change(format_real(ratio, "step_time_ratio"), time), (long long)n,
			n == 1 ? "" : "s",
			format_change(format_real(ratio, "tok_s_ratio_min"), low),
			format_change(format_real(ratio, "tok_s_ratio_max"), high));
	}
}

/* The range over an arm's segments; "-" if one has no loss. */
static void loss_cell(struct table *t, const json_t *losses, const char *key)
{
	double low = (double)INFINITY, high = -(double)INFINITY;
	char from[FORMAT_BYTES], to[FORMAT_BYTES];
	const json_t *row;
	size_t i;

	json_array_foreach(losses, i, row) {
		const double loss = format_real(row, key);

		low = isnan(loss) ? (double)NAN : fmin(low, loss);
		high = fmax(high, loss);
		if (isnan(low))
			break;
	}
	format_loss(low, from);
	format_loss(high, to);
	if (!isfinite(low) || strcmp(from, to) == 0)
		table_cell(t, "%s", from);
	else
		table_cell(t, "%s to %s", from, to);
}

static bool any_loss(const json_t *arms, const char *key)
{
	const json_t *arm, *row;
	size_t i, k;

	json_array_foreach(arms, i, arm) {
		json_array_foreach(json_object_get(arm, "losses"), k, row) {
			if (isfinite(format_real(row, key)))
				return true;
		}
	}
	return false;
}

static void print_last_losses(const struct term *t, const json_t *arms)
{
	const bool training = any_loss(arms, "loss_last"), validation = any_loss(arms, "val_loss");
	struct table table;
	const json_t *arm;
	char name[80];
	size_t i;

	if (!training && !validation)
		return;
	table_init(&table);
	table_column(&table, "LOSS AT THE END", false);
	table_column(&table, "TRAINING", true);
	if (validation)
		table_column(&table, "VALIDATION", true);
	json_array_foreach(arms, i, arm) {
		table_cell(&table, "%s", format_string(arm, "arm", "", name, sizeof(name)));
		loss_cell(&table, json_object_get(arm, "losses"), "loss_last");
		if (validation)
			loss_cell(&table, json_object_get(arm, "losses"), "val_loss");
	}
	fputc('\n', t->file);
	table_print(&table, t, "");
	table_finish(&table);
}

static void print_losses(const struct term *t, const char *baseline, const json_t *arms)
{
	const json_t *arm;
	size_t i, identical = 0;
	char name[80];

	json_array_foreach(arms, i, arm)
		identical += json_is_true(json_object_get(arm, "losses_identical"));
	if (identical == json_array_size(arms)) {
		fprintf(t->file, "losses: all bit-identical to the first segment of %s\n",
			baseline);
		return;
	}
	fputs("losses: ", t->file);
	json_array_foreach(arms, i, arm) {
		const double diff = format_real(arm, "max_loss_diff");

		fprintf(t->file, "%s%s ", i ? ", " : "",
			format_string(arm, "arm", "", name, sizeof(name)));
		if (json_is_true(json_object_get(arm, "losses_identical")))
			fputs("bit-identical", t->file);
		else if (isfinite(diff))
			fprintf(t->file, "max |dloss| %.2g", diff);
		else
			fputs("not comparable", t->file);
	}
	fprintf(t->file, " (to the first segment of %s)\n", baseline);
}

static void print_skipped(const struct term *t, const json_t *arms)
{
	const json_t *arm;
	int64_t total = 0;
	char name[80];
	size_t i;

	json_array_foreach(arms, i, arm)
		total = format_sum(total, format_int(arm, "skipped", 0));
	if (total == 0)
		return;
	fputs("skipped steps: ", t->file);
	json_array_foreach(arms, i, arm) {
		fprintf(t->file, "%s%s %lld", i ? ", " : "",
			format_string(arm, "arm", "", name, sizeof(name)),
			(long long)format_int(arm, "skipped", 0));
	}
	fputc('\n', t->file);
}

/* Equal for all segments that are done; 0: they differ. */
static int64_t tokens_per_segment(const json_t *arms)
{
	int64_t each = 0;
	const json_t *arm;
	size_t i;

	json_array_foreach(arms, i, arm) {
		const int64_t n = format_int(arm, "segments", 0);
		const int64_t total = format_int(arm, "tokens_total", 0);

		if (n <= 0)
			continue;
		if (total % n != 0 || (each > 0 && total / n != each))
			return 0;
		each = total / n;
	}
	return each;
}

static void print_tokens_so_far(const struct term *t, const json_t *arms, int64_t each)
{
	char count[FORMAT_BYTES], name[80];
	const json_t *arm;
	size_t i;

	fprintf(t->file,
		"tokens: equal, %s per segment; segments done:", format_count(each, count));
	json_array_foreach(arms, i, arm)
		fprintf(t->file, "%s %s %lld", i ? "," : "",
			format_string(arm, "arm", "", name, sizeof(name)),
			(long long)format_int(arm, "segments", 0));
	fputc('\n', t->file);
}

static void print_tokens(const struct term *t, const json_t *comparison, const json_t *arms)
{
	const bool missing = format_int(comparison, "segments_left_out", 0) > 0;
	const int64_t each = missing ? tokens_per_segment(arms) : 0;
	char count[FORMAT_BYTES], name[80];
	const json_t *arm;
	size_t i;

	if (json_is_true(json_object_get(comparison, "equal_tokens"))) {
		fprintf(t->file, "tokens: equal, %s per arm\n",
			format_count(
				format_int(json_array_get(arms, 0), "tokens_total", 0), count));
		return;
	}
	if (each > 0) {
		print_tokens_so_far(t, arms, each);
		return;
	}
	fprintf(t->file, "%stokens: NOT equal:%s", term_colour(t, TERM_RED),
		term_colour(t, TERM_PLAIN));
	json_array_foreach(arms, i, arm)
		fprintf(t->file, "%s %s %s", i ? "," : "",
			format_string(arm, "arm", "", name, sizeof(name)),
			format_count(format_int(arm, "tokens_total", 0), count));
	fputc('\n', t->file);
}

/* Why a run is not done. */
static void print_failure(const struct term *t, const json_t *comparison)
{
	const json_t *run = json_object_get(comparison, "run"), *segment;
	char state[32], reason[600], arm[80];
	size_t i;

	format_string(run, "state", "?", state, sizeof(state));
	format_string(run, "reason", "", reason, sizeof(reason));
	if (!states_broke_off(state))
		return;
	fprintf(t->file, "%s%s%s: %s\n", term_colour(t, states_colour(state)), state,
		term_colour(t, TERM_PLAIN),
		*reason ? text_reason(state, reason) : "no reason known");
	json_array_foreach(json_object_get(comparison, "failed"), i, segment)
		fprintf(t->file, "  segment %lld (%s) %s\n",
			(long long)format_int(segment, "segment", 0),
			format_string(segment, "arm", "", arm, sizeof(arm)),
			format_string(segment, "state", "", state, sizeof(state)));
	fputs("only finished segments are compared; ratios use whole blocks only\n", t->file);
}

static void print_comparison(struct output *o, const json_t *comparison)
{
	const json_t *run = json_object_get(comparison, "run");
	const json_t *arms = json_object_get(comparison, "arms");
	const int64_t used = format_int(comparison, "segments_used", 0);
	const int64_t left_out = format_int(comparison, "segments_left_out", 0);
	const struct term *t = &o->out;
	char name[80], state[32], baseline[80], note[300];

	format_string(comparison, "baseline", "", baseline, sizeof(baseline));
	fprintf(t->file, "run %lld %s (%s), %lld segment%s", (long long)format_int(run, "id", 0),
		format_string(run, "name", "", name, sizeof(name)),
		format_string(run, "state", "?", state, sizeof(state)), (long long)used,
		used == 1 ? "" : "s");
	if (left_out > 0)
		fprintf(t->file, "; %lld more are not done", (long long)left_out);
	fputc('\n', t->file);
	print_failure(t, comparison);
	print_plans(t, arms);
	fputc('\n', t->file);
	print_arms(t, arms);
	fputc('\n', t->file);
	print_parts(t, arms);
	print_last_losses(t, arms);
	print_blocks(t, baseline, json_object_get(comparison, "blocks"));
	fputc('\n', t->file);
	print_ratios(t, baseline, json_object_get(comparison, "ratios"));
	if (json_array_size(arms) > 1)
		print_tokens(t, comparison, arms);
	print_losses(t, baseline, arms);
	print_skipped(t, arms);
	slow_rank_print(t, json_object_get(comparison, "slow_rank"));
	print_switches(t, arms);
	if (json_array_size(arms) > 1)
		fprintf(t->file, "\n%s\n",
			format_string(comparison, "note", "", note, sizeof(note)));
}

static int run(struct ctl *ctl, const struct options *args)
{
	struct ctl_error e = {0};
	json_t *show, *comparison;
	int exit;

	if (show_fetch(ctl, args->words[0], &show, &e) != 0)
		return verb_fail(ctl, &e);
	exit = comparison_make(show, options_string(args, "baseline", NULL), &comparison, &e);
	json_decref(show);
	if (exit)
		return verb_fail(ctl, &e);
	output_print(&ctl->output, "compare", comparison, print_comparison);
	json_decref(comparison);
	return CTL_OK;
}

const struct verb verb_compare = {
	.name = "compare",
	.args = "ID",
	.min_args = 1,
	.max_args = 1,
	.summary = "the arms of an experiment side by side",
	.text = "Per arm: effective bucket plan, median and p95 step time (nearest rank; no p95 "
		"under 20 steps), tokens per second (total tokens over total time), exposed "
		"communication, the losses at the end, and how far losses agree. Per block: the "
		"ratio to the baseline. If the run has not ended, compare uses the segments that "
		"are done. Two runs cannot be compared, because they ran at different times, "
		"perhaps beside other processes. Write a spec with both as its arms instead; "
		"gpt2d-spec(5) says what an arm may change.",
	.options = options,
	.run = run,
};
