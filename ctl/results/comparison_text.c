#include "ctl/results/comparison_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/print/members.h"
#include "ctl/print/page.h"
#include "ctl/print/states.h"
#include "ctl/print/text.h"
#include "ctl/print/ranks.h"
#include "proto/spec/spec_config.h"
#include "proto/stats/verdict.h"

enum { GPU_SEGMENT_S = 2 };

/* ---- members ---- */

static const char *name_of(const json_t *row, char out[80])
{
	return format_string(row, "arm", "", out, 80);
}

static const json_t *in(const json_t *object, const char *outer, const char *key)
{
	return json_object_get(json_object_get(object, outer), key);
}

const json_t *comparison_text_arm(const json_t *rows, const json_t *arm)
{
	const json_t *row;
	size_t i;

	json_array_foreach(rows, i, row) {
		if (json_equal(json_object_get(row, "arm"), arm))
			return row;
	}
	return NULL;
}

bool comparison_text_hidden(const json_t *comparison, const json_t *row)
{
	const char *arm = json_string_value(json_object_get(row, "arm"));
	const char *base = json_string_value(json_object_get(comparison, "baseline"));
	const size_t n = base ? strlen(base) : 0;

	return json_is_true(json_object_get(row, "control")) && arm && base &&
		strncmp(arm, base, n) == 0 && strcmp(arm + n, "-aa") == 0;
}

static size_t count_shown(const json_t *comparison)
{
	const json_t *row;
	size_t i, n = 0;

	json_array_foreach(json_object_get(comparison, "comparisons"), i, row)
		n += !comparison_text_hidden(comparison, row);
	return n;
}

int comparison_text_confidence(const json_t *comparison)
{
	return (int)lround(
		100.0 * (1.0 - format_real(json_object_get(comparison, "design"), "alpha")));
}

static bool is_open(const json_t *run)
{
	char state[32];

	return states_exit(format_string(run, "state", "done", state, sizeof(state))) < 0;
}

/* ---- the head: the run, its arms, its design ---- */

/* Why a run is not done. */
static void print_failure(const struct term *t, const json_t *comparison)
{
	const json_t *run = json_object_get(comparison, "run"), *segment;
	char state[32], reason[600], own[600];
	size_t i;

	format_string(run, "state", "?", state, sizeof(state));
	format_string(run, "reason", "", reason, sizeof(reason));
	if (!states_broke_off(state))
		return;
	fprintf(t->file, "%s%s%s: %s\n", term_colour(t, states_colour(state)), state,
		term_colour(t, TERM_PLAIN),
		*reason ? text_reason(state, reason) : "no reason known");
	json_array_foreach(json_object_get(comparison, "failed"), i, segment) {
		members_print(t->file, segment, "  segment {segment} ({arm|}) {state|}");
		format_string(segment, "state", "", state, sizeof(state));
		if (*format_string(segment, "reason", "", own, sizeof(own)) &&
			strcmp(own, reason) != 0)
			fprintf(t->file, ": %s", text_reason(state, own));
		fputc('\n', t->file);
	}
	fputs("only finished segments are compared, and only whole blocks\n", t->file);
}

static void print_arms(const struct term *t, const json_t *comparison)
{
	const json_t *arm, *difference;
	char plan[200], key[160], own[80], base[80], base_name[80];
	struct page p = {.term = t};
	size_t i, k;

	format_string(comparison, "baseline", "", base_name, sizeof(base_name));
	json_array_foreach(json_object_get(comparison, "arms"), i, arm) {
		if (comparison_text_hidden(comparison, arm))
			continue;
		text_plan(json_object_get(arm, "plan"), plan, sizeof(plan));
		page_members(&p, arm, "{arm|}");
		page_part(&p, "%s", plan);
		page_members(&p, arm, "ranks {ranks|0}, stage {zero_stage|0}");
		if (json_is_true(json_object_get(arm, "failed")))
			page_part(&p, "failed");
		page_end(&p);
		json_array_foreach(json_object_get(arm, "differs"), k, difference) {
			page_indent(&p);
			page_part(&p, "%s: %s (%s: %s)",
				format_string(difference, "key", "", key, sizeof(key)),
				format_string(difference, "value", "-", own, sizeof(own)),
				base_name,
				format_string(difference, "baseline", "-", base, sizeof(base)));
			page_end(&p);
		}
	}
}

static void print_voids(const struct term *t, const json_t *comparison)
{
	struct page p = {.term = t};
	const json_t *block;
	size_t i;

	json_array_foreach(json_object_get(comparison, "blocks"), i, block) {
		if (json_is_string(json_object_get(block, "void")))
			page_members(&p, block, "block {block} void: {void}");
	}
	page_end(&p);
}

/* The clocks of a busy GPU swing with a period of about a second. */
static void print_short(const struct term *t, const json_t *comparison)
{
	const json_t *arm = json_array_get(json_object_get(comparison, "arms"), 0);
	const double each = format_real(arm, "seconds") / (double)format_int(arm, "segments", 0);
	char text[FORMAT_BYTES];
	struct page p = {.term = t};

	if (!isfinite(format_real(arm, "sm_clock_mhz")) || !(each < GPU_SEGMENT_S))
		return;
	page_part(&p, "a segment measures %s; on a GPU it should measure %d s or more",
		format_duration(each, text), GPU_SEGMENT_S);
	page_end(&p);
}

static void print_design(const struct term *t, const json_t *comparison)
{
	const json_t *design = json_object_get(comparison, "design");
	const double half_width = format_real(design, "half_width");
	struct page p = {.term = t};

	page_members(&p, design,
		json_is_true(json_object_get(design, "mirrored"))
			? "blocks {kept} of {repetitions} (random order, mirrored, seed {seed}), "
			  "{steps} steps a segment, first {warmup_steps} dropped"
			: "blocks {kept} of {repetitions} (random order, seed {seed}), {steps} "
			  "steps a segment, first {warmup_steps} dropped");
	if (isfinite(half_width))
		page_part(&p, "stops when an interval's half-width is %g%%", 100.0 * half_width);
	page_end(&p);
}

/* ---- figures of all arms ---- */

/* A line with a text for each shown arm that has the figure. */
struct figure {
	const char *label, *key;
	double least;       /* smaller figures are left out */
	const char *unless; /* left out if the arm has this figure; NULL: none */
	const char *text;   /* a template of members.h */
	bool all;           /* if an arm has the figure, arms without it are listed too */
};

static const struct figure times = {
	.key = "tok_s", .text = "{tok_s:si} tok/s, median {median_ns:ns|-}, p95 {p95_ns:ns|-}"};

/* After the comparisons. */
static const struct figure figures[] = {
	{.label = "GPU: ",
		.key = "sm_clock_mhz",
		.text = "SM clock {sm_clock_mhz:.0} MHz, {power_w:.0|-} W, {temperature_c:.0|-} C"
			"[, {j_per_mtok:.0} J/Mtok]"},
	{.label = "energy: ",
		.key = "j_per_mtok",
		.unless = "sm_clock_mhz",
		.text = "{j_per_mtok:.0} J/Mtok"},
	{.label = "exposed communication ",
		.key = "exposed_comm_mean_s",
		.text = "{exposed_comm_mean_s:duration}"
			"[ (waiting {exposed_wait_mean_s:duration})]"},
	{.label = "time to the target loss ",
		.key = "time_to_loss_s",
		.text = "{time_to_loss_s:duration|not reached in every segment}",
		.all = true},
	{.label = "MFU ", .key = "mfu", .text = "{mfu:share}"},
	{.label = "peak memory ", .key = "peak_device_bytes", .text = "{peak_device_bytes:size}"},
	/* which of their steps count */
	{.label = "checkpoints written ",
		.key = "checkpoints",
		.least = 1,
		.text = "{checkpoints} (steps left out: {steps_saving|0})"},
};

/* A figure of a shown arm. */
static bool any_has(const json_t *comparison, const char *key)
{
	const json_t *arm;
	size_t i;

	json_array_foreach(json_object_get(comparison, "arms"), i, arm) {
		if (!comparison_text_hidden(comparison, arm) && isfinite(format_real(arm, key)))
			return true;
	}
	return false;
}

static void print_figure(
	const struct term *t, const json_t *comparison, const struct figure *figure)
{
	const bool all = figure->all && any_has(comparison, figure->key);
	struct page p = {.term = t};
	const json_t *arm;
	char name[80], *text;
	size_t i;

	json_array_foreach(json_object_get(comparison, "arms"), i, arm) {
		if (comparison_text_hidden(comparison, arm) ||
			(figure->unless && isfinite(format_real(arm, figure->unless))) ||
			(!all && !(format_real(arm, figure->key) >= figure->least)))
			continue;
		text = members_text(arm, figure->text);
		page_part(&p, "%s%s %s", p.column == 0 && figure->label ? figure->label : "",
			name_of(arm, name), text);
		free(text);
	}
	page_end(&p);
}

static void print_validation(const struct term *t, const json_t *comparison)
{
	struct page p = {.term = t};
	const json_t *arm;
	char name[80], loss[FORMAT_BYTES];
	size_t i;

	json_array_foreach(json_object_get(comparison, "arms"), i, arm) {
		const json_t *losses = json_object_get(arm, "losses");
		const double last = format_real(
			json_array_get(losses, json_array_size(losses) - 1), "val_loss");

		if (!comparison_text_hidden(comparison, arm) && isfinite(last))
			page_part(&p, "%s%s %s", p.column == 0 ? "validation loss " : "",
				name_of(arm, name), format_loss(last, loss));
	}
	page_end(&p);
}

/* The value of a member of the machine, or the different values of its nodes. Empty: unknown. */
static const char *list_values(const json_t *machine, const char *key, char *out, size_t bytes)
{
	const json_t *nodes = json_object_get(machine, "nodes"), *node;
	json_t *seen = json_object();
	char text[128];
	size_t i, used = 0;

	format_string(machine, key, "", out, bytes);
	json_array_foreach(nodes, i, node) {
		format_string(node, key, "", text, sizeof(text));
		if (*text && !json_object_get(seen, text) && used < bytes)
			used += (size_t)snprintf(
				out + used, bytes - used, "%s%s", used > 0 ? ", " : "", text);
		json_object_set_new(seen, text, json_true());
	}
	json_decref(seen);
	return out;
}

static void print_scope(const struct term *t, const json_t *comparison)
{
	static const char *const keys[] = {
		"host", "gpu", "build", "driver", "cuda", "collectives", "blas"};
	static const char *const labels[] = {"", "", "build ", "driver ", "CUDA ", "", ""};
	const json_t *machine = json_object_get(comparison, "machine");
	const json_t *arm = json_array_get(json_object_get(comparison, "arms"), 0);
	const int64_t ranks = format_int(arm, "ranks", 0);
	const size_t nodes = json_array_size(json_object_get(machine, "nodes"));
	struct page p = {.term = t};
	char text[512], on[40] = "";

	if (nodes > 1)
		snprintf(on, sizeof(on), " on %zu nodes", nodes);
	page_part(&p, "scope: this daemon, %lld rank%s%s", (long long)ranks, ranks == 1 ? "" : "s",
		on);
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (*list_values(machine, keys[i], text, sizeof(text)))
			page_part(&p, "%s%s", labels[i], text);
	}
	page_end(&p);
	if (json_is_true(json_object_get(comparison, "spans_restart"))) {
		page_part(&p,
			"gpt2d restarted during the experiment: the engines are not the same "
			"throughout");
		page_end(&p);
	}
}

/* ---- an arm against the baseline ---- */

static void print_headline(const struct term *t, const json_t *comparison, const json_t *row)
{
	char name[80], base[80], interval[FORMAT_BYTES], percent[FORMAT_BYTES];
	struct page p = {.term = t};

	format_string(comparison, "baseline", "", base, sizeof(base));
	fputs(term_colour(t, TERM_BOLD), t->file);
	page_part(&p, "throughput %s/%s %s", name_of(row, name), base,
		format_signed(format_real(row, "throughput_percent"), percent));
	fputs(term_colour(t, TERM_PLAIN), t->file);
	if (json_is_number(json_object_get(row, "throughput_low_percent")))
		page_part(&p, "%d%% %s", comparison_text_confidence(comparison),
			format_interval(format_real(row, "throughput_low_percent"),
				format_real(row, "throughput_high_percent"), interval));
	page_members(&p, row,
		json_is_string(json_object_get(row, "steps_differ"))
			? "steps differ: {steps_differ}"
			: "step time {step_time_percent:signed|-}");
	page_members(&p, row, "p {p:p|-}");
	if (count_shown(comparison) > 1)
		page_members(&p, row, "adjusted {p_holm:p|-}");
	page_end(&p);
}

static void print_checks(const struct term *t, const json_t *comparison, const json_t *row)
{
	const json_t *control = json_object_get(row, "aa_control");
	const json_t *drift = json_object_get(comparison, "drift");
	const double detectable = format_real(row, "detectable_percent");
	const bool enough = format_int(row, "blocks", 0) >= VERDICT_INTERVAL_BLOCKS;
	char percent[FORMAT_BYTES];
	struct page p = {.term = t};

	page_members(&p, row, "total time {seconds.baseline:duration|-}, {seconds.arm:duration|-}");
	page_members(&p, row, "stalled segments {stalls.baseline|0}, {stalls.arm|0}");
	if (isfinite(detectable))
		page_part(&p, detectable < 10.0 ? "detectable %.2f%%" : "detectable %.0f%%",
			detectable);
	if (json_is_object(control))
		page_part(&p, "A/A %s%s",
			format_signed(format_real(control, "throughput_percent"), percent),
			!json_is_true(json_object_get(control, "ok")) ? " suspect"
				: enough                              ? " ok"
								      : "");
	if (!enough) /* no trend could be found */
		page_part(&p, "too few blocks for checks");
	else if (json_is_true(in(row, "trend", "found")))
		page_part(&p, "trend %+.2g%% a block",
			format_real(json_object_get(row, "trend"), "percent_per_block"));
	else
		page_part(&p, "trend none");
	if (format_real(drift, "p") <= 0.01)
		page_part(&p, "drift of all arms %+.2g%% a block",
			format_real(drift, "percent_per_block"));
	page_end(&p);
}

static void print_work(const struct term *t, const json_t *comparison, const json_t *row)
{
	const json_t *arms = json_object_get(comparison, "arms");
	const json_t *own = comparison_text_arm(arms, json_object_get(row, "arm"));
	const json_t *base = comparison_text_arm(arms, json_object_get(comparison, "baseline"));
	const int64_t skipped =
		format_int(own, "steps_skipped", 0) + format_int(base, "steps_skipped", 0);
	struct page p = {.term = t};

	if (!json_is_true(in(row, "work", "equal"))) {
		fputs(term_colour(t, TERM_YELLOW), t->file);
		page_members(&p, row, "unequal work: {work.why|}");
		fputs(term_colour(t, TERM_PLAIN), t->file);
		page_end(&p);
		return;
	}
	if (json_is_true(json_object_get(own, "losses_identical")) &&
		json_is_true(json_object_get(base, "losses_identical")))
		page_part(&p, "equal work: same tokens, losses bit-identical");
	else
		page_part(&p, "equal work: same tokens, losses within %.2g",
			format_real(own, "max_loss_diff"));
	page_part(&p, "applied updates %lld, %lld", (long long)format_int(base, "steps_applied", 0),
		(long long)format_int(own, "steps_applied", 0));
	if (skipped > 0)
		page_part(&p, "skipped steps %lld, %lld",
			(long long)format_int(base, "steps_skipped", 0),
			(long long)format_int(own, "steps_skipped", 0));
	page_end(&p);
}

/* The differences of a step and of its exposed communication, and the ratio of energies. */
static void print_causes(const struct term *t, const json_t *comparison, const json_t *row)
{
	const json_t *arms = json_object_get(comparison, "arms");
	const json_t *own = comparison_text_arm(arms, json_object_get(row, "arm"));
	const json_t *base = comparison_text_arm(arms, json_object_get(comparison, "baseline"));
	const double step = (format_real(base, "mean_ns") - format_real(own, "mean_ns")) * 1e-9;
	const double exposed =
		format_real(base, "exposed_comm_mean_s") - format_real(own, "exposed_comm_mean_s");
	const double energy = format_real(row, "energy_ratio");
	char of_step[FORMAT_BYTES], of_comm[FORMAT_BYTES], percent[FORMAT_BYTES];
	struct page p = {.term = t};

	if (isfinite(step) && isfinite(exposed) && exposed != 0.0 &&
		!json_is_string(json_object_get(row, "steps_differ")))
		page_part(&p, "a step takes %s %s, its exposed communication %s %s",
			format_duration(fabs(step), of_step), step > 0.0 ? "less" : "more",
			format_duration(fabs(exposed), of_comm), exposed > 0.0 ? "less" : "more");
	if (isfinite(energy))
		page_part(
			&p, "energy per token %s", format_signed(100.0 * (energy - 1.0), percent));
	page_end(&p);
}

/* ---- verdicts ---- */

static enum term_colour verdict_colour(const char *verdict)
{
	static const struct {
		const char *name;
		enum term_colour colour;
	} colours[] = {{"FASTER", TERM_GREEN}, {"SLOWER", TERM_RED}, {"SAME", TERM_CYAN}};

	for (size_t i = 0; i < sizeof(colours) / sizeof(colours[0]); i++)
		if (strcmp(colours[i].name, verdict) == 0)
			return colours[i].colour;
	return TERM_YELLOW;
}

/* How to get a verdict, by the reason why there is none. */
static const char *find_remedy(const char *reason)
{
	static const char *const rows[][2] = {
		{"failed", "read in the messages of the run why the arm failed"},
		{"design", "run more blocks: a verdict needs at least 8"},
		{"unequal_work", "make the arms do the same work; what differs is above"},
		{"control", "find what disturbs the machine, then run the experiment again"},
		{"no_variance", "check the times: real measurements differ from block to block"},
		{"trend", "let the machine reach a steady state, then run the experiment again"},
		{"stalls", "find the cause of the stalls, or run more blocks"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (strcmp(rows[i][0], reason) == 0)
			return rows[i][1];
	return NULL;
}

/* The arm of the row, or the baseline. */
static bool has_failed(const json_t *comparison, const json_t *row)
{
	const json_t *arms = json_object_get(comparison, "arms");
	const json_t *own = comparison_text_arm(arms, json_object_get(row, "arm"));
	const json_t *base = comparison_text_arm(arms, json_object_get(comparison, "baseline"));

	return json_is_true(json_object_get(own, "failed")) ||
		json_is_true(json_object_get(base, "failed"));
}

/* The training of one block, warm-up included. */
static double block_seconds(const json_t *comparison)
{
	const json_t *arms = json_object_get(comparison, "arms"), *arm;
	const json_t *design = json_object_get(comparison, "design");
	const double steps = format_real(design, "steps");
	double sum = 0.0;
	size_t i;

	json_array_foreach(arms, i, arm)
		sum += json_is_true(json_object_get(arm, "failed")) ? 0.0
								    : format_real(arm, "seconds");
	return sum * steps / (steps - format_real(design, "warmup_steps")) /
		format_real(design, "kept");
}

/* The command that runs enough blocks; a run that failed, or has void blocks, planned enough. */
static void print_rerun(struct page *p, const json_t *comparison, int64_t needed)
{
	const int64_t id = format_int(json_object_get(comparison, "run"), "id", 0);
	const int64_t planned = format_int(json_object_get(comparison, "design"), "repetitions", 0);

	if (needed == 0 && planned >= VERDICT_BLOCKS_MIN)
		page_part(p, "gpt2ctl rerun %lld", (long long)id);
	else if (needed <= SPEC_REPETITIONS_MAX)
		page_part(p, "gpt2ctl rerun %lld --set design.repetitions=%lld", (long long)id,
			(long long)(needed > 0 ? needed : 12));
	else
		page_part(p,
			"that is more than a run can have (%d): lengthen the segments "
			"(work.optimizer_steps), quieten the machine, or accept a wider margin "
			"(design.margin)",
			SPEC_REPETITIONS_MAX);
}

static void print_remedy(
	struct page *p, const json_t *comparison, const json_t *row, const char *reason)
{
	const json_t *run = json_object_get(comparison, "run");
	const bool failed = has_failed(comparison, row);
	const char *remedy = find_remedy(failed ? "failed" : reason);
	const int64_t needed = format_int(row, "blocks_needed", 0);
	const int64_t id = format_int(run, "id", 0);
	const bool wait = is_open(run) && !failed && strcmp(reason, "unequal_work") != 0;
	char class[40], time[FORMAT_BYTES];
	const bool training = !failed &&
		strcmp(format_string(
			       json_object_get(row, "work"), "class", "", class, sizeof(class)),
			"other_training") == 0;

	if (wait)
		page_part(p, "to settle it: wait for the other blocks of the run");
	else if (needed > 0)
		page_part(p, "to settle it: about %lld blocks, %s of training", (long long)needed,
			format_duration(block_seconds(comparison) * (double)needed, time));
	else if (training && any_has(comparison, "time_to_loss_s"))
		page_part(p, "to settle it: compare the times to the target loss, see above");
	else if (training)
		page_part(p,
			"to settle it: set work.target_loss to a loss that every segment "
			"reaches, and compare the times to it");
	else if (remedy)
		page_part(p, "to settle it: %s", remedy);
	page_end(p);
	if (wait)
		page_part(p, "gpt2ctl follow %lld", (long long)id);
	else if (failed)
		page_part(p, "gpt2ctl logs %lld", (long long)id);
	else if (needed > 0 || strcmp(reason, "design") == 0)
		print_rerun(p, comparison, needed);
	page_end(p);
}

static void print_verdict(const struct term *t, const json_t *comparison, const json_t *row)
{
	char verdict[32], reason[40], text[240], class[40];
	struct page p = {.term = t};
	bool real;

	format_string(row, "verdict", "AMBIGUOUS", verdict, sizeof(verdict));
	format_string(row, "reason", "", reason, sizeof(reason));
	format_string(row, "reason_text", "", text, sizeof(text));
	format_string(json_object_get(row, "work"), "class", "", class, sizeof(class));
	if (json_is_true(json_object_get(row, "identical_plan"))) {
		page_part(&p,
			"identical plan: the engine runs both alike, so this is an A/A comparison");
		page_end(&p);
	}
	fprintf(t->file, "verdict: %s%s%s", term_colour(t, verdict_colour(verdict)), verdict,
		term_colour(t, TERM_PLAIN));
	p.column = strlen("verdict: ") + strlen(verdict);
	real = strcmp(reason, "within_margin") == 0 &&
		format_real(row, "throughput_low_percent") *
				format_real(row, "throughput_high_percent") >
			0.0;
	if (real)
		page_part(&p, "(the difference is real and below the margin of %g%%)",
			100.0 * format_real(json_object_get(comparison, "design"), "margin"));
	else if (strcmp(verdict, "AMBIGUOUS") == 0 || strcmp(verdict, "SAME") == 0)
		page_part(&p, "(%s)", text);
	if (strcmp(class, "other_precision") == 0)
		page_part(&p, "(the precision differs)");
	page_end(&p);
	if (strcmp(verdict, "AMBIGUOUS") == 0)
		print_remedy(&p, comparison, row, reason);
}

static void print_verdicts(const struct term *t, const json_t *comparison)
{
	char interval[FORMAT_BYTES], columns[80];
	struct table table;
	const json_t *row;
	size_t i;

	snprintf(columns, sizeof(columns), "ARM\t>THROUGHPUT\t%d%%\t>P (HOLM)\tVERDICT",
		comparison_text_confidence(comparison));
	table_init(&table);
	table_columns(&table, columns);
	json_array_foreach(json_object_get(comparison, "comparisons"), i, row) {
		if (comparison_text_hidden(comparison, row))
			continue;
		members_cells(&table, row, "{arm|}\t{throughput_percent:signed|-}");
		table_cell(&table, "%s",
			format_interval(format_real(row, "throughput_low_percent"),
				format_real(row, "throughput_high_percent"), interval));
		members_cells(&table, row, "{p_holm:p|-}\t{verdict|}");
	}
	table_print(&table, t, "");
	table_finish(&table);
	fputc('\n', t->file);
}

static void print_row(const struct term *t, const json_t *comparison, const json_t *row)
{
	char name[80];

	if (format_int(row, "blocks", 0) == 0) {
		fprintf(t->file, "%s: no whole block%s\n", name_of(row, name),
			is_open(json_object_get(comparison, "run")) ? " yet" : "");
		return;
	}
	print_headline(t, comparison, row);
	print_checks(t, comparison, row);
	print_work(t, comparison, row);
	print_causes(t, comparison, row);
}

void comparison_text_print(struct output *o, const json_t *comparison)
{
	const struct term *t = &o->out;
	const size_t shown = count_shown(comparison);
	const json_t *row;
	size_t i;

	members_print(t->file, comparison,
		"run {run.id} {run.name|} ({run.state}), {segments_used} "
		"segment{segments_used:s}\n");
	print_failure(t, comparison);
	if (shown > 1)
		print_verdicts(t, comparison);
	print_arms(t, comparison);
	if (shown > 0)
		print_design(t, comparison);
	print_voids(t, comparison);
	if (shown > 0)
		print_short(t, comparison);
	print_figure(t, comparison, &times);
	json_array_foreach(json_object_get(comparison, "comparisons"), i, row) {
		if (shown > 1 && !comparison_text_hidden(comparison, row))
			fputc('\n', t->file);
		if (!comparison_text_hidden(comparison, row))
			print_row(t, comparison, row);
		if (shown > 1 && !comparison_text_hidden(comparison, row))
			print_verdict(t, comparison, row);
	}
	if (shown > 1)
		fputc('\n', t->file);
	for (i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
		print_figure(t, comparison, &figures[i]);
	print_validation(t, comparison);
	ranks_print_slow(t, json_object_get(comparison, "slow_rank"));
	print_scope(t, comparison);
	json_array_foreach(json_object_get(comparison, "comparisons"), i, row) {
		if (shown == 1 && !comparison_text_hidden(comparison, row))
			print_verdict(t, comparison, row);
	}
	if (json_array_size(json_object_get(comparison, "comparisons")) == 0)
		fputs("no verdict: the run has one arm, and nothing to compare it with\n", t->file);
}
