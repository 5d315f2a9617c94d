/* gpt2ctl judge: the verdict of compare for repeated results of any program. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/print/page.h"
#include "ctl/results/samples.h"
#include "ctl/verbs/verb.h"
#include "proto/experiment/comparison.h"
#include "proto/host/memory.h"
#include "proto/rpc.h"
#include "proto/stats/verdict.h"

static const struct option_row options[] = {
	{"paired", 0, OPTION_FLAG, NULL, 0, 0,
		"run i of A and run i of B belong together, as runs of one interleaved block do"},
	{"unit", 0, OPTION_CHOICE, "time|rate", 0, 0,
		"what the values are: times (default; lower is faster) or rates"},
	{"pattern", 0, OPTION_STRING, "RE", 0, 0,
		"each file is the log of one run; the first group of this extended regular "
		"expression is the value of a step, and the run's value is their mean"},
	{"drop", 0, OPTION_INT, "N", 0, 1e9, "with --pattern: leave out the first N steps"},
	{"margin", 0, OPTION_REAL, "FRACTION", 1e-6, 1,
		"ratios closer to 1 than this are the same (default 0.01)"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

struct side {
	char name[64];
	struct samples samples;
};

/* ---- reading ---- */

/* Adds the file of NAME=FILE to its side; the first name is the baseline. */
static int read_word(const char *word, struct side sides[2], const struct samples_options *how,
	struct ctl_error *e)
{
	const char *equals = strchr(word, '=');
	const size_t n = equals ? (size_t)(equals - word) : 0;
	char error[600];
	size_t i = 0;

	if (n == 0 || n >= sizeof(sides[0].name))
		return ctl_error_set(
			e, CTL_USAGE, "judge: %.200s: invalid (expected NAME=FILE)", word);
	while (i < 2 && sides[i].name[0] &&
		(strlen(sides[i].name) != n || strncmp(sides[i].name, word, n) != 0))
		i++;
	if (i == 2)
		return ctl_error_set(e, CTL_USAGE,
			"judge: %.*s: a third name (expected two, found %s and %s)", (int)n, word,
			sides[0].name, sides[1].name);
	memcpy(sides[i].name, word, n);
	if (samples_read(&sides[i].samples, equals + 1, how, error, sizeof(error)) != 0)
		return ctl_error_set(e, CTL_USAGE, "%s", error);
	return 0;
}

static int read_sides(const struct options *args, struct side sides[2], struct ctl_error *e)
{
	const struct samples_options how = {.pattern = options_string(args, "pattern", NULL),
		.drop = (size_t)options_int(args, "drop", 0)};
	const bool paired = options_has(args, "paired");
	const size_t most = paired ? ESTIMATE_PAIRS_MAX : ESTIMATE_SIDE_MAX;

	if (options_has(args, "drop") && !how.pattern)
		return ctl_error_set(e, CTL_USAGE, "judge: --drop requires --pattern");
	for (size_t i = 0; i < args->n_words && e->exit == 0; i++)
		read_word(args->words[i], sides, &how, e);
	if (e->exit)
		return e->exit;
	if (sides[1].samples.n == 0 || sides[0].samples.n == 0)
		return ctl_error_set(
			e, CTL_USAGE, "judge: results of two sides are required (A=FILE B=FILE)");
	if (sides[0].samples.n > most || sides[1].samples.n > most)
		return ctl_error_set(e, CTL_USAGE, "judge: more than %zu runs of a side%s", most,
			how.pattern ? "" : "; a file of steps needs --pattern");
	if (paired && sides[0].samples.n != sides[1].samples.n)
		return ctl_error_set(e, CTL_USAGE,
			"judge: --paired needs as many runs of %s as of %s (found %zu and %zu)",
			sides[0].name, sides[1].name, sides[0].samples.n, sides[1].samples.n);
	return 0;
}

/* ---- judging ---- */

/* A rate is the reciprocal of a time. */
static int64_t log_ratio(double a, double b, bool rates)
{
	return rates ? estimate_log_ratio(b, a) : estimate_log_ratio(a, b);
}

static void decide(const struct side sides[2], const struct options *args, bool rates,
	struct verdict_result *result)
{
	const struct verdict_rules rules = {
		.alpha = VERDICT_ALPHA, .margin = options_real(args, "margin", VERDICT_MARGIN)};
	const size_t n_a = sides[0].samples.n, n_b = sides[1].samples.n;
	int64_t *a = memory_zeroed(n_a, sizeof(*a)), *b = memory_zeroed(n_b, sizeof(*b));

	for (size_t i = 0; i < n_a; i++)
		a[i] = log_ratio(sides[0].samples.values[i],
			options_has(args, "paired") ? sides[1].samples.values[i] : 1.0, rates);
	for (size_t i = 0; i < n_b; i++)
		b[i] = log_ratio(sides[1].samples.values[i], 1.0, rates);
	if (options_has(args, "paired")) {
		const struct verdict_input input = {.q = a, .n = n_a};

		verdict_decide(&rules, &input, 1, result);
	} else {
		verdict_unpaired(&rules, a, n_a, b, n_b, result);
		if (result->reason == VERDICT_TOO_FEW)
			result->estimate.has_interval = false;
	}
	free(a);
	free(b);
}

static int compare_doubles(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static json_t *side_json(const struct side *side)
{
	const size_t n = side->samples.n;
	double *sorted = memory_zeroed(n, sizeof(*sorted)), sum = 0.0;
	json_t *row;

	memcpy(sorted, side->samples.values, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), compare_doubles);
	for (size_t i = 0; i < n; i++)
		sum += sorted[i];
	row = json_pack("{s:s, s:I, s:o, s:o, s:o, s:o}", "name", side->name, "runs", (json_int_t)n,
		"median", rpc_real((sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0), "mean",
		rpc_real(sum / (double)n), "min", rpc_real(sorted[0]), "max",
		rpc_real(sorted[n - 1]));
	free(sorted);
	return row;
}

/* Why there is no verdict, with the figures; else NULL. */
static json_t *refusal(const struct side sides[2], bool paired)
{
	const size_t least = paired ? VERDICT_BLOCKS_MIN : VERDICT_RUNS_MIN;

	if (sides[0].samples.n >= least && sides[1].samples.n >= least)
		return json_null();
	if (paired)
		return json_sprintf("%zu pairs are too few for a verdict (at least %zu)",
			sides[0].samples.n, least);
	return json_sprintf("%zu and %zu runs are too few for a verdict (at least %zu of each)",
		sides[0].samples.n, sides[1].samples.n, least);
}

static json_t *judge_json(const struct side sides[2], const struct options *args, bool rates)
{
	struct verdict_result r;
	json_t *row;

	decide(sides, args, rates, &r);
	row = comparison_estimate_json(&r.estimate);
	json_object_del(row, "blocks");
	json_object_update_new(row,
		json_pack("{s:[o, o], s:b, s:s, s:f, s:s, s:s, s:s, s:o}", "sides",
			side_json(&sides[0]), side_json(&sides[1]), "paired",
			options_has(args, "paired"), "unit", rates ? "rate" : "time", "margin",
			options_real(args, "margin", VERDICT_MARGIN), "verdict",
			verdict_name(r.verdict), "reason", verdict_reason_name(r.reason),
			"reason_text", verdict_reason_text(r.reason), "refusal",
			refusal(sides, options_has(args, "paired"))));
	json_object_set_new(row, "blocks_needed",
		r.blocks_needed ? json_integer((json_int_t)r.blocks_needed) : json_null());
	return row;
}

/* ---- text ---- */

static void print_side(struct page *p, const json_t *side)
{
	page_members(p, side, "{name|} {runs} runs, median {median:6g}");
	page_members(p, side, "mean {mean:6g}, from {min:6g} to {max:6g}");
	page_end(p);
}

static void print_judge(struct output *o, const json_t *reply)
{
	const json_t *sides = json_object_get(reply, "sides");
	struct page p = {.term = &o->out};
	const int64_t needed = format_int(reply, "blocks_needed", 0);
	char a[80], b[80], text[FORMAT_BYTES], verdict[32], reason[40];

	print_side(&p, json_array_get(sides, 0));
	print_side(&p, json_array_get(sides, 1));
	page_part(&p, "throughput %s/%s %s",
		format_string(json_array_get(sides, 1), "name", "", b, sizeof(b)),
		format_string(json_array_get(sides, 0), "name", "", a, sizeof(a)),
		format_signed(format_real(reply, "throughput_percent"), text));
	if (json_is_number(json_object_get(reply, "throughput_low_percent")))
		page_part(&p, "95%% %s",
			format_interval(format_real(reply, "throughput_low_percent"),
				format_real(reply, "throughput_high_percent"), text));
	page_members(&p, reply, "time {step_time_percent:signed|-}");
	page_members(&p, reply, "p {p:p|-}");
	page_end(&p);
	if (json_is_string(json_object_get(reply, "refusal"))) {
		page_members(&p, reply, "no verdict: {refusal}");
		page_end(&p);
		return;
	}
	page_members(&p, reply, "verdict: {verdict|}");
	format_string(reply, "verdict", "", verdict, sizeof(verdict));
	if (strcmp(verdict, "AMBIGUOUS") == 0 || strcmp(verdict, "SAME") == 0)
		page_members(&p, reply, "({reason_text|})");
	page_end(&p);
	if (needed > 0)
		page_part(&p, "to settle it: about %lld pairs", (long long)needed);
	else if (strcmp(format_string(reply, "reason", "", reason, sizeof(reason)), "unsettled") ==
		0)
		page_part(&p, "to settle it: more runs of both sides, in alternation");
	page_end(&p);
}

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	const bool rates = strcmp(options_string(args, "unit", "time"), "rate") == 0;
	struct side sides[2] = {0};
	json_t *reply;

	if (read_sides(args, sides, e) == 0) {
		reply = judge_json(sides, args, rates);
		output_print(&ctl->output, "judge", reply, print_judge);
		json_decref(reply);
	}
	samples_finish(&sides[0].samples);
	samples_finish(&sides[1].samples);
	return e->exit;
}

const struct verb verb_judge = {
	.name = "judge",
	.args = "A=FILE B=FILE...",
	.min_args = 2,
	.max_args = -1,
	.summary = "the verdict of compare for repeated results of any program",
	.text = "Any two names may stand for A and B; the first is the baseline, and a name may be "
		"repeated with further files. A file has one value per run: numbers with a decimal "
		"point, separated by line ends, blanks, semicolons, or commas with a blank; a "
		"column of a CSV file (FILE:COLUMN); a member of JSON (FILE:MEMBER.MEMBER); or an "
		"export of hyperfine. With --pattern a file is the log of one run. The values are "
		"compared with the exact rank-sum test, or with --paired with the signed-rank test "
		"that compare uses. A verdict needs at least 5 runs of each side, or 8 pairs.",
	.options = options,
	.run = run,
};
