#include "ctl/results/comparison.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/print/format.h"
#include "ctl/results/slow_rank.h"
#include "ctl/print/states.h"
#include "ctl/print/text.h"
#include "proto/host/memory.h"
#include "proto/rpc.h"
#include "proto/spec/spec.h"
#include "proto/stats/stats.h"
#include "proto/suggest.h"

enum part { PART_DATA, PART_FORWARD, PART_BACKWARD, PART_EXPOSED, PART_OPTIMIZER, N_PARTS };

static const char *const part_keys[N_PARTS] = {
	[PART_DATA] = "data_mean_s",
	[PART_FORWARD] = "forward_mean_s",
	[PART_BACKWARD] = "backward_mean_s",
	[PART_EXPOSED] = "exposed_comm_mean_s",
	[PART_OPTIMIZER] = "optimizer_mean_s",
};

struct work {
	int64_t segments, tokens, tokens_total; /* measured; trained, the warm-up too */
	double seconds, steps;                  /* measured; NaN: not known */
};

struct mean {
	int64_t n;
	double sum;
};

struct arm {
	char name[SPEC_NAME_MAX + 1];
	const json_t *plan; /* borrowed */
	struct work work;
	int64_t *samples; /* step times, ns */
	size_t n;
	int64_t unlisted;      /* segments too long for their steps to be in the summary */
	const json_t *summary; /* of the last such segment; borrowed */
	double parts[N_PARTS]; /* weighted by tokens; NaN once a segment lacked one */
	int64_t skipped;       /* steps */
	struct mean init_ns, switch_ns;
	json_t *losses;       /* at the end of each segment */
	double max_loss_diff; /* NaN once a trace could not be compared */
	bool identical;       /* all traces bit-identical to the reference */
};

struct block {
	int64_t number;
	struct work work[SPEC_ARMS_MAX]; /* by arm, of what is done */
	int64_t planned[SPEC_ARMS_MAX];  /* segments of it, whatever became of them */
};

struct totals {
	struct arm arms[SPEC_ARMS_MAX];
	size_t n_arms, baseline;
	struct block *blocks;
	size_t n_blocks;
	int64_t used, left_out;
	const json_t *reference; /* losses of the baseline's first segment; borrowed */
	const char *reference_hash;
};

/* ---- gathering ---- */

static size_t find_arm(const struct totals *t, const char *name)
{
	size_t i = 0;

	while (i < t->n_arms && strcmp(t->arms[i].name, name) != 0)
		i++;
	return i;
}

static int add_arm(struct totals *t, const char *name)
{
	const size_t i = find_arm(t, name);

	if (i < t->n_arms)
		return (int)i;
	if (i == SPEC_ARMS_MAX)
		return -1;
	snprintf(t->arms[i].name, sizeof(t->arms[i].name), "%s", name);
	t->arms[i].identical = true;
	t->n_arms++;
	return (int)i;
}

static struct block *add_block(struct totals *t, int64_t number)
{
	for (size_t i = 0; i < t->n_blocks; i++) {
		if (t->blocks[i].number == number)
			return &t->blocks[i];
	}
	t->blocks = memory_resized(t->blocks, (t->n_blocks + 1) * sizeof(*t->blocks));
	t->blocks[t->n_blocks] = (struct block){.number = number};
	return &t->blocks[t->n_blocks++];
}

static void add_samples(struct arm *arm, const json_t *times)
{
	const size_t n = json_array_size(times);

	if (n == 0)
		return;
	arm->samples = memory_resized(arm->samples, (arm->n + n) * sizeof(*arm->samples));
	for (size_t i = 0; i < n; i++)
		arm->samples[arm->n++] = json_integer_value(json_array_get(times, i));
}

static void add_mean(struct mean *m, const json_t *summary, const char *key)
{
	const json_t *value = json_object_get(summary, key);

	if (!json_is_number(value))
		return;
	m->n++;
	m->sum += json_number_value(value);
}

/* All steps of a segment have as many tokens. */
static double steps_measured(const json_t *summary)
{
	const json_t *times = json_object_get(summary, "step_time_ns");

	if (json_is_array(times))
		return (double)json_array_size(times);
	return format_real(summary, "steps_attempted") * format_real(summary, "tokens_measured") /
		format_real(summary, "tokens_total");
}

static void add_work(struct work *w, const json_t *summary)
{
	const int64_t tokens = format_int(summary, "tokens_measured", 0);

	w->segments++;
	w->tokens = format_sum(w->tokens, tokens);
	w->tokens_total = format_sum(w->tokens_total, format_int(summary, "tokens_total", tokens));
	w->seconds += format_real(summary, "seconds_measured");
	w->steps += steps_measured(summary);
}

/* The largest |difference| of two traces; NaN when they cannot be compared. */
static double trace_diff(const json_t *a, const json_t *b)
{
	const size_t n = json_array_size(a);
	double largest = 0.0;

	if (n == 0 || json_array_size(b) != n)
		return (double)NAN;
	for (size_t i = 0; i < n; i++) {
		const json_t *x = json_array_get(a, i), *y = json_array_get(b, i);
		double diff;

		if (!json_is_number(x) || !json_is_number(y))
			return (double)NAN;
		diff = fabs(json_number_value(x) - json_number_value(y));
		if (diff > largest)
			largest = diff;
	}
	return largest;
}

static void add_losses(const struct totals *t, struct arm *arm, const json_t *summary)
{
	const double diff = trace_diff(t->reference, json_object_get(summary, "losses"));
	const char *hash = json_string_value(json_object_get(summary, "loss_hash"));

	if (isnan(diff) || diff > arm->max_loss_diff)
		arm->max_loss_diff = isnan(arm->max_loss_diff) ? arm->max_loss_diff : diff;
	if (!hash || !t->reference_hash || strcmp(hash, t->reference_hash) != 0)
		arm->identical = false;
}

/* Null for what is not finite, and where there was no validation. */
static void add_last_losses(struct arm *arm, int64_t segment, const json_t *summary)
{
	if (!arm->losses)
		arm->losses = json_array();
	json_array_append_new(arm->losses,
		json_pack("{s:I, s:o, s:o}", "segment", (json_int_t)segment, "loss_last",
			rpc_real(format_real(summary, "loss_last")), "val_loss",
			rpc_real(format_real(summary, "val_loss"))));
}

static bool is_done(const json_t *segment)
{
	const char *state = json_string_value(json_object_get(segment, "state"));

	return state && strcmp(state, "done") == 0 &&
		json_is_object(json_object_get(segment, "summary"));
}

static const char *arm_name(const json_t *segment)
{
	const char *name = json_string_value(json_object_get(segment, "arm"));

	return name ? name : "?";
}

static bool follows_another_arm(const json_t *segment, const json_t *before)
{
	return before && strcmp(arm_name(segment), arm_name(before)) != 0;
}

/* before: the segment that ran before it, NULL for a run's first. */
static void add_segment(struct totals *t, const json_t *segment, const json_t *before)
{
	const json_t *summary = json_object_get(segment, "summary");
	const json_t *times = json_object_get(summary, "step_time_ns");
	const size_t i = find_arm(t, arm_name(segment));
	struct block *block;
	struct arm *arm;

	block = i < t->n_arms ? add_block(t, format_int(segment, "block", 0)) : NULL;
	if (block)
		block->planned[i]++;
	if (!block || !is_done(segment)) {
		t->left_out++;
		return;
	}
	arm = &t->arms[i];
	add_samples(arm, times);
	if (!json_is_array(times)) {
		arm->unlisted++;
		arm->summary = summary;
	}
	for (int p = 0; p < N_PARTS; p++)
		arm->parts[p] += format_real(summary, part_keys[p]) *
			(double)format_int(summary, "tokens_measured", 0);
	arm->skipped = format_sum(arm->skipped, format_int(summary, "steps_skipped", 0));
	/* before a run's first segment the engines were idle */
	if (follows_another_arm(segment, before)) {
		add_mean(&arm->init_ns, summary, "init_ns");
		add_mean(&arm->switch_ns, summary, "switch_ns");
	}
	if (!arm->plan)
		arm->plan = json_object_get(summary, "plan");
	add_work(&arm->work, summary);
	add_work(&block->work[i], summary);
	add_losses(t, arm, summary);
	add_last_losses(arm, format_int(segment, "segment", 0), summary);
	t->used++;
}

/* Arms in the order of the spec where the daemon sent checks, else as the segments name them. */
static void find_arms(struct totals *t, const json_t *show)
{
	const json_t *row;
	size_t i;

	json_array_foreach(json_object_get(show, "checks"), i, row)
		add_arm(t, arm_name(row));
	json_array_foreach(json_object_get(show, "segments"), i, row)
		add_arm(t, arm_name(row));
}

static void find_reference(struct totals *t, const json_t *segments)
{
	const json_t *segment, *summary;
	size_t i;

	json_array_foreach(segments, i, segment) {
		if (!is_done(segment) || strcmp(arm_name(segment), t->arms[t->baseline].name) != 0)
			continue;
		summary = json_object_get(segment, "summary");
		t->reference = json_object_get(summary, "losses");
		t->reference_hash = json_string_value(json_object_get(summary, "loss_hash"));
		return;
	}
}

/* The run's arms, and the nearest. */
static int no_such_arm(const struct totals *t, const char *name, struct ctl_error *e)
{
	char list[512] = "", clean[SPEC_NAME_MAX + 1];
	const char *names[SPEC_ARMS_MAX], *near;
	size_t used = 0;

	for (size_t i = 0; i < t->n_arms && used < sizeof(list); i++) {
		term_clean(t->arms[i].name, clean, sizeof(clean));
		used += (size_t)snprintf(
			list + used, sizeof(list) - used, "%s%s", i ? ", " : "", clean);
	}
	for (size_t i = 0; i < t->n_arms; i++)
		names[i] = t->arms[i].name;
	near = suggest_nearest(name, names, t->n_arms);
	term_clean(near ? near : "", clean, sizeof(clean));
	return ctl_error_set(e, CTL_USAGE, "--baseline: %.80s: unknown arm (expected %s%s)%s%s%s",
		name, list, used < sizeof(list) ? "" : "...", near ? "; did you mean " : "", clean,
		near ? "?" : "");
}

/* For a run that has ended: why, and where to read on. */
static int nothing_done(const json_t *show, struct ctl_error *e)
{
	const json_t *run = json_object_get(show, "run");
	const size_t n = json_array_size(json_object_get(show, "segments"));
	const long long id = (long long)format_int(run, "id", 0);
	char state[32], reason[600];

	format_string(run, "state", "?", state, sizeof(state));
	format_string(run, "reason", "", reason, sizeof(reason));
	if (!states_broke_off(state))
		return ctl_error_set(e, CTL_WRONG_STATE,
			"nothing to compare yet: no segment of %zu is done (run %lld is %s)", n, id,
			state);
	return ctl_error_set(e, CTL_WRONG_STATE,
		"nothing to compare: run %lld is %s%s%s, and no segment of %zu is done\n"
		"see its messages: gpt2ctl logs %lld; run it again: gpt2ctl rerun %lld",
		id, state, *reason ? ": " : "", text_reason(state, reason), n, id, id);
}

/* Segments that failed, with their reasons. */
static json_t *failed_json(const json_t *segments)
{
	json_t *rows = json_array();
	const json_t *segment;
	char state[32];
	size_t i;

	json_array_foreach(segments, i, segment) {
		format_string(segment, "state", "", state, sizeof(state));
		if (!states_broke_off(state))
			continue;
		json_array_append_new(rows,
			json_pack("{s:I, s:s, s:s, s:O?}", "segment",
				(json_int_t)format_int(segment, "segment", (int64_t)i + 1), "arm",
				arm_name(segment), "state", state, "reason",
				json_object_get(segment, "reason")));
	}
	return rows;
}

static int gather(struct totals *t, const json_t *show, const char *baseline, struct ctl_error *e)
{
	const json_t *segments = json_object_get(show, "segments"), *segment;
	size_t i;

	find_arms(t, show);
	if (baseline) {
		t->baseline = find_arm(t, baseline);
		if (t->baseline == t->n_arms)
			return no_such_arm(t, baseline, e);
	}
	find_reference(t, segments);
	json_array_foreach(segments, i, segment)
		add_segment(t, segment, i > 0 ? json_array_get(segments, i - 1) : NULL);
	return t->used == 0 ? nothing_done(show, e) : 0;
}

/* ---- the object ---- */

static double rate(const struct work *w)
{
	return w->seconds > 0.0 ? (double)w->tokens / w->seconds : (double)NAN;
}

static json_t *mean_json(const struct mean *m)
{
	return m->n > 0 ? rpc_real(m->sum / (double)m->n) : json_null();
}

/* Steps of several segments that are not listed cannot be put in one order: no percentile then. */
static int step_times(const struct arm *arm, json_t *row)
{
	const bool listed = arm->unlisted == 0 && arm->n > 0;
	const bool single = arm->unlisted == 1 && arm->work.segments == 1;
	json_t *median = json_null(), *p95 = json_null(), *mean = json_null();
	struct stats_summary s;

	if (listed) {
		if (stats_summarise(arm->samples, arm->n, &s) != 0)
			return -1;
		median = json_integer(s.median);
		mean = rpc_real(s.mean);
		if (s.n >= STATS_P95_MIN_SAMPLES)
			p95 = json_integer(s.p95);
	} else if (single) {
		median = json_deep_copy(json_object_get(arm->summary, "step_median_ns"));
		p95 = json_deep_copy(json_object_get(arm->summary, "step_p95_ns"));
	}
	json_object_set_new(row, "steps", listed ? json_integer((json_int_t)arm->n) : json_null());
	json_object_set_new(row, "median_ns", median ? median : json_null());
	json_object_set_new(row, "p95_ns", p95 ? p95 : json_null());
	json_object_set_new(row, "low_n", json_boolean(listed && arm->n < STATS_P95_MIN_SAMPLES));
	json_object_set_new(row, "mean_ns", mean);
	return 0;
}

static json_t *arm_json(const struct arm *arm)
{
	const bool any = arm->work.segments > 0;
	json_t *row = json_pack("{s:s, s:O?, s:I, s:I, s:I, s:I}", "arm", arm->name, "plan",
		arm->plan, "segments", (json_int_t)arm->work.segments, "tokens",
		(json_int_t)arm->work.tokens, "tokens_total", (json_int_t)arm->work.tokens_total,
		"skipped", (json_int_t)arm->skipped);

	if (!row || step_times(arm, row) != 0) {
		json_decref(row);
		return NULL;
	}
	for (int p = 0; p < N_PARTS; p++)
		json_object_set_new(
			row, part_keys[p], rpc_real(arm->parts[p] / (double)arm->work.tokens));
	json_object_set_new(row, "seconds", rpc_real(arm->work.seconds));
	json_object_set_new(row, "tok_s", rpc_real(rate(&arm->work)));
	json_object_set_new(row, "init_mean_ns", mean_json(&arm->init_ns));
	json_object_set_new(row, "switch_mean_ns", mean_json(&arm->switch_ns));
	json_object_set_new(row, "max_loss_diff", any ? rpc_real(arm->max_loss_diff) : json_null());
	json_object_set_new(row, "losses_identical", json_boolean(any && arm->identical));
	json_object_set_new(row, "losses", arm->losses ? json_incref(arm->losses) : json_array());
	return row;
}

/* Mean time of a step, arm / baseline, whatever is in a step of each. */
static double time_ratio(const struct work *arm, const struct work *base)
{
	return (arm->seconds / arm->steps) / (base->seconds / base->steps);
}

/* All that the design has of an arm there is done: of a mirrored one both of its segments. */
static bool arm_whole(const struct block *b, size_t arm)
{
	const struct work *w = &b->work[arm];

	return w->segments > 0 && w->segments == b->planned[arm] && rate(w) > 0.0;
}

/* A block counts for an arm when both it and the baseline are whole there. */
static bool block_whole(const struct totals *t, const struct block *b, size_t arm)
{
	return arm_whole(b, t->baseline) && arm_whole(b, arm) &&
		b->planned[t->baseline] == b->planned[arm];
}

static bool is_begun(const struct block *b)
{
	for (size_t a = 0; a < SPEC_ARMS_MAX; a++)
		if (b->work[a].segments > 0)
			return true;
	return false;
}

/* In which all arms are. */
static size_t count_whole(const struct totals *t)
{
	size_t n = 0;

	for (size_t i = 0; i < t->n_blocks; i++) {
		size_t a = 0;

		while (a < t->n_arms && arm_whole(&t->blocks[i], a))
			a++;
		n += a == t->n_arms;
	}
	return n;
}

static json_t *blocks_json(const struct totals *t)
{
	json_t *rows = json_array();

	for (size_t i = 0; i < t->n_blocks; i++) {
		const struct block *b = &t->blocks[i];
		json_t *ratios;

		if (!is_begun(b))
			continue;
		ratios = json_array();
		for (size_t a = 0; a < t->n_arms; a++) {
			if (a == t->baseline || !block_whole(t, b, a))
				continue;
			json_array_append_new(ratios,
				json_pack("{s:s, s:o, s:o}", "arm", t->arms[a].name, "tok_s_ratio",
					rpc_real(rate(&b->work[a]) / rate(&b->work[t->baseline])),
					"step_time_ratio",
					rpc_real(time_ratio(&b->work[a], &b->work[t->baseline]))));
		}
		json_array_append_new(rows,
			json_pack("{s:I, s:o}", "block", (json_int_t)b->number, "ratios", ratios));
	}
	return rows;
}

static json_t *ratio_json(const struct totals *t, size_t a)
{
	struct work base = {0}, other = {0};
	double low = (double)INFINITY, high = 0.0;
	int64_t n = 0;

	for (size_t i = 0; i < t->n_blocks; i++) {
		const struct work *x = &t->blocks[i].work[t->baseline], *y = &t->blocks[i].work[a];
		double ratio;

		if (!block_whole(t, &t->blocks[i], a))
			continue;
		ratio = rate(y) / rate(x);
		low = fmin(low, ratio);
		high = fmax(high, ratio);
		base.tokens += x->tokens;
		base.seconds += x->seconds;
		base.steps += x->steps;
		other.tokens += y->tokens;
		other.seconds += y->seconds;
		other.steps += y->steps;
		n++;
	}
	return json_pack("{s:s, s:I, s:o, s:o, s:o, s:o}", "arm", t->arms[a].name, "blocks",
		(json_int_t)n, "tok_s_ratio", rpc_real(rate(&other) / rate(&base)),
		"tok_s_ratio_min", n ? rpc_real(low) : json_null(), "tok_s_ratio_max",
		n ? rpc_real(high) : json_null(), "step_time_ratio",
		rpc_real(time_ratio(&other, &base)));
}

static bool equal_tokens(const struct totals *t)
{
	for (size_t a = 1; a < t->n_arms; a++) {
		if (t->arms[a].work.tokens_total != t->arms[0].work.tokens_total)
			return false;
	}
	return true;
}

static json_t *build(const struct totals *t, const json_t *show)
{
	const json_t *segments = json_object_get(show, "segments");
	json_t *arms = json_array(), *ratios = json_array();
	const size_t whole = count_whole(t);
	char note[256];

	for (size_t a = 0; a < t->n_arms; a++) {
		json_array_append_new(arms, arm_json(&t->arms[a]));
		if (a != t->baseline)
			json_array_append_new(ratios, ratio_json(t, a));
	}
	snprintf(note, sizeof(note),
		"no verdict: intervals are not computed yet (%zu block%s; a verdict needs %d)",
		whole, whole == 1 ? "" : "s", COMPARISON_BLOCKS_FOR_VERDICT);
	return json_pack("{s:O?, s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:b, s:n, s:s}", "run",
		json_object_get(show, "run"), "baseline", t->arms[t->baseline].name,
		"segments_used", (json_int_t)t->used, "segments_left_out", (json_int_t)t->left_out,
		"failed", failed_json(segments), "arms", arms, "blocks", blocks_json(t), "ratios",
		ratios, "slow_rank", slow_rank_find(segments), "equal_tokens", equal_tokens(t),
		"verdict", "note", note);
}

int comparison_make(const json_t *show, const char *baseline, json_t **out, struct ctl_error *e)
{
	struct totals *t = memory_zeroed(1, sizeof(*t));
	int exit;

	exit = gather(t, show, baseline, e);
	if (!exit)
		*out = build(t, show);
	for (size_t a = 0; a < t->n_arms; a++) {
		free(t->arms[a].samples);
		json_decref(t->arms[a].losses);
	}
	free(t->blocks);
	free(t);
	return exit;
}
