/* The comparison as a JSON object; proto/schema describes its members. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/experiment/comparison.h"
#include "proto/experiment/comparison_private.h"
#include "proto/rpc.h"

#define INT(value) ((json_int_t)(value))

static const char *arm_name(const struct comparison *c, size_t arm)
{
	return c->spec->arms[arm].name;
}

static json_t *text_or_null(const char *text)
{
	return text && *text ? json_string(text) : json_null();
}

/* ---- arms ---- */

/* Unlisted steps of several segments cannot be sorted: then there is no percentile. */
static void set_step_times(const struct comparison_arm *arm, json_t *row)
{
	json_t *median = json_null(), *p95 = json_null(), *mean = json_null();
	struct stats_summary s;

	if (!arm->times_missing && arm->n_times > 0 &&
		stats_summarise(arm->times, arm->n_times, &s) == 0) {
		median = json_integer(s.median);
		mean = rpc_real(s.mean);
		if (s.n >= STATS_P95_MIN_SAMPLES)
			p95 = json_integer(s.p95);
	}
	json_object_set_new(
		row, "steps", arm->times_missing ? json_null() : json_integer(INT(arm->n_times)));
	json_object_set_new(row, "median_ns", median);
	json_object_set_new(row, "p95_ns", p95);
	json_object_set_new(row, "mean_ns", mean);
}

static void set_means(const struct comparison_arm *arm, json_t *row)
{
	for (size_t i = 0; i < COMPARISON_MEANS; i++)
		json_object_set_new(row, comparison_means[i].key,
			arm->means[i].missing ? json_null()
					      : rpc_real(arm->means[i].sum / arm->means[i].tokens));
}

/* Of the kept and the void blocks: the largest difference of a loss to the baseline's. */
static void set_losses(const struct comparison *c, const struct comparison_arm *arm, json_t *row)
{
	double largest = 0.0;
	bool equal = true;

	for (size_t b = 0; b < c->n_blocks; b++) {
		const struct comparison_cell *cell = &c->blocks[b].cells[arm->index];

		if (cell->done == 0)
			continue;
		equal = equal && cell->bit_equal;
		largest = isnan(cell->loss_diff) ? cell->loss_diff : fmax(largest, cell->loss_diff);
	}
	json_object_set_new(row, "max_loss_diff", rpc_real(largest));
	json_object_set_new(row, "losses_identical", json_boolean(arm->segments > 0 && equal));
	json_object_set(row, "losses", arm->losses);
}

static json_t *arm_json(const struct comparison *c, size_t i)
{
	const struct comparison_arm *arm = &c->arms[i];
	const struct spec_config *config = &c->spec->arms[i].config;
	json_t *row = json_pack("{s:s, s:b, s:b, s:I, s:I, s:O?, s:O}", "arm", arm_name(c, i),
		"control", arm->is_control, "failed", arm->failed, "ranks", INT(config->gpus),
		"zero_stage", INT(config->zero_stage), "plan", arm->plan, "differs",
		arm->differences);
	json_t *work = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "segments",
		INT(arm->segments), "stalled_segments", INT(arm->stalled), "tokens",
		INT(arm->tokens), "tokens_total", INT(arm->tokens_total), "steps_attempted",
		INT(arm->attempted), "steps_applied", INT(arm->applied), "steps_skipped",
		INT(arm->skipped));

	json_object_update_new(row, work);
	json_object_set_new(row, "checkpoints", json_integer(INT(arm->checkpoints)));
	json_object_set_new(row, "steps_saving", json_integer(INT(arm->saving)));
	set_step_times(arm, row);
	set_means(arm, row);
	json_object_set_new(row, "seconds", rpc_real(arm->seconds));
	json_object_set_new(row, "tok_s", rpc_real((double)arm->tokens / arm->seconds));
	json_object_set_new(row, "energy_j", rpc_real(arm->energy_j));
	json_object_set_new(
		row, "j_per_mtok", rpc_real(arm->energy_j / ((double)arm->tokens_total * 1e-6)));
	json_object_set_new(row, "peak_device_bytes",
		arm->peak_bytes > 0.0 && arm->peak_bytes < 1e18 ? json_integer(INT(arm->peak_bytes))
								: json_null());
	json_object_set_new(row, "throttle_reasons", json_integer(INT(arm->throttle)));
	json_object_set_new(row, "switch_mean_ns",
		rpc_real(arm->n_switches ? arm->switch_ns / (double)arm->n_switches : (double)NAN));
	json_object_set_new(row, "init_mean_ns",
		rpc_real(arm->n_switches ? arm->init_ns / (double)arm->n_switches : (double)NAN));
	set_losses(c, arm, row);
	return row;
}

/* ---- comparisons ---- */

/* Throughput of the arm over the baseline's, in percent, with the interval if there is one. */
json_t *comparison_estimate_json(const struct estimate *e)
{
	const double theta = e->n > 0 ? e->theta : (double)NAN;
	json_t *row = json_pack("{s:o, s:o, s:o, s:I}", "theta", rpc_real(theta),
		"throughput_percent", rpc_real(estimate_throughput_percent(theta)),
		"step_time_percent", rpc_real(estimate_time_percent(theta)), "blocks", INT(e->n));

	json_object_set_new(row, "throughput_low_percent",
		e->has_interval ? rpc_real(estimate_throughput_percent(e->lo)) : json_null());
	json_object_set_new(row, "throughput_high_percent",
		e->has_interval ? rpc_real(estimate_throughput_percent(e->hi)) : json_null());
	json_object_set_new(
		row, "half_width", e->has_interval ? rpc_real(e->half_width) : json_null());
	json_object_set_new(row, "p", e->n > 0 ? rpc_real(e->p) : json_null());
	return row;
}

static json_t *control_json(const struct comparison *c, const struct verdict_result *r)
{
	json_t *row;

	if (c->control == c->n_arms || r->control.n == 0)
		return json_null();
	row = comparison_estimate_json(&r->control);
	json_object_set_new(row, "arm", json_string(arm_name(c, c->control)));
	json_object_set_new(row, "ok", json_boolean(!r->control_suspect));
	return row;
}

static json_t *work_json(const struct comparison_arm *arm)
{
	return json_pack("{s:s, s:b, s:o}", "class", comparison_class_names[arm->class], "equal",
		arm->unequal[0] == '\0', "why", text_or_null(arm->unequal));
}

/* A step of 8 sequences and one of 16 are not comparable: the difference, or null. */
static json_t *steps_differ(const struct comparison *c, size_t i)
{
	const struct spec_config *own = &c->spec->arms[i].config;
	const struct spec_config *base = &c->spec->arms[c->baseline].config;

	if (own->batch == base->batch && own->seq_len == base->seq_len)
		return json_null();
	return json_sprintf("%lld and %lld sequences of %lld and %lld tokens",
		(long long)base->batch, (long long)own->batch, (long long)base->seq_len,
		(long long)own->seq_len);
}

static json_t *total_seconds(const struct comparison *c, size_t i)
{
	double own = 0.0, base = 0.0;

	for (size_t b = 0; b < c->n_blocks; b++) {
		if (!c->blocks[b].kept)
			continue;
		own += c->blocks[b].cells[i].seconds;
		base += c->blocks[b].cells[c->baseline].seconds;
	}
	return json_pack("{s:o, s:o}", "baseline", rpc_real(base), "arm", rpc_real(own));
}

static json_t *energy_ratio(const struct comparison *c, size_t i)
{
	const struct comparison_arm *own = &c->arms[i], *base = &c->arms[c->baseline];

	return rpc_real((own->energy_j / (double)own->tokens_total) /
		(base->energy_j / (double)base->tokens_total));
}

/* The reason in words. */
static const char *reason_text(const struct comparison *c, const struct comparison_arm *arm)
{
	const struct verdict_result *r = &arm->result;

	if (arm->failed)
		return "the arm failed";
	if (c->arms[c->baseline].failed)
		return "the baseline failed";
	if (r->reason == VERDICT_UNEQUAL_WORK)
		return arm->unequal;
	if (r->reason == VERDICT_UNSETTLED && (r->estimate.lo > 0.0 || r->estimate.hi < 0.0) &&
		r->p_holm > c->alpha)
		return "the interval excludes 0, but with so many arms one may do so by chance";
	return verdict_reason_text(r->reason);
}

static json_t *comparison_row(const struct comparison *c, size_t i)
{
	const struct comparison_arm *arm = &c->arms[i];
	const struct verdict_result *r = &arm->result;
	json_t *row = comparison_estimate_json(&r->estimate);
	json_t *verdict = json_pack("{s:s, s:b, s:s, s:s, s:s, s:o}", "arm", arm_name(c, i),
		"control", arm->is_control, "verdict", verdict_name(r->verdict), "reason",
		verdict_reason_name(r->reason), "reason_text", reason_text(c, arm), "p_holm",
		r->estimate.n > 0 ? rpc_real(r->p_holm) : json_null());
	json_t *stalls = json_pack("{s:I, s:I, s:f}", "baseline", INT(arm->input.stalled_a), "arm",
		INT(arm->input.stalled_b), "p", r->stalls_p);
	json_t *trend = json_pack("{s:b, s:f, s:f}", "found", r->has_trend, "p", r->trend.p,
		"percent_per_block", estimate_throughput_percent(r->trend.slope * 1e-9));

	json_object_update_new(row, verdict);
	json_object_set_new(row, "detectable_percent",
		r->estimate.has_interval ? rpc_real(100.0 * r->detectable) : json_null());
	json_object_set_new(row, "blocks_needed",
		r->blocks_needed ? json_integer(INT(r->blocks_needed)) : json_null());
	json_object_set_new(row, "stalls", stalls);
	json_object_set_new(row, "trend", trend);
	json_object_set_new(row, "aa_control", control_json(c, r));
	json_object_set_new(row, "work", work_json(arm));
	json_object_set_new(row, "identical_plan", json_boolean(arm->identical_plan));
	json_object_set_new(row, "steps_differ", steps_differ(c, i));
	json_object_set_new(row, "seconds", total_seconds(c, i));
	json_object_set_new(row, "energy_ratio", energy_ratio(c, i));
	return row;
}

/* ---- blocks ---- */

static json_t *block_json(const struct comparison *c, const struct comparison_block *block)
{
	json_t *arms = json_array();

	for (size_t i = 0; i < c->n_arms; i++) {
		const struct comparison_cell *cell = &block->cells[i];
		const double q = cell->seconds > 0.0 && cell->done == cell->planned &&
				block->cells[c->baseline].seconds > 0.0
			? 1e-9 * (double)comparison_log_ratio(&block->cells[c->baseline], cell)
			: (double)NAN;

		json_array_append_new(arms,
			json_pack("{s:s, s:I, s:o, s:o}", "arm", arm_name(c, i), "segments",
				INT(cell->done), "seconds",
				cell->done ? rpc_real(cell->seconds) : json_null(),
				"throughput_percent",
				block->kept ? rpc_real(estimate_throughput_percent(q))
					    : json_null()));
	}
	return json_pack("{s:I, s:b, s:o, s:o}", "block", INT(block->number), "kept", block->kept,
		"void", text_or_null(block->void_reason), "arms", arms);
}

/* Segments that did not complete, with their reasons. */
static json_t *failed_json(const json_t *segments)
{
	json_t *rows = json_array();
	const json_t *segment;
	size_t i;

	json_array_foreach(segments, i, segment) {
		const char *state = json_string_value(json_object_get(segment, "state"));

		if (!state ||
			(strcmp(state, "failed") != 0 && strcmp(state, "cancelled") != 0 &&
				strcmp(state, "interrupted") != 0))
			continue;
		json_array_append_new(rows,
			json_pack("{s:O, s:O, s:s, s:O?}", "segment",
				json_object_get(segment, "segment"), "arm",
				json_object_get(segment, "arm"), "state", state, "reason",
				json_object_get(segment, "reason")));
	}
	return rows;
}

static json_t *design_json(const struct comparison *c)
{
	const struct spec *s = c->spec;
	const struct spec_config *config = &s->arms[c->baseline].config;

	return json_pack("{s:I, s:I, s:I, s:I, s:b, s:I, s:f, s:f, s:o, s:I, s:I}", "repetitions",
		INT(s->repetitions), "blocks", INT(c->n_blocks), "kept", INT(c->n_kept),
		"spare_blocks", INT(s->spare_blocks), "mirrored", s->mirrored, "seed",
		INT(s->design_seed), "margin", s->margin, "alpha", c->alpha, "half_width",
		s->stop_half_width > 0.0 ? rpc_real(s->stop_half_width) : json_null(), "steps",
		INT(config->optimizer_steps), "warmup_steps", INT(config->warmup_steps));
}

json_t *comparison_json(const struct comparison *c)
{
	const json_t *segments = json_object_get(c->show, "segments");
	json_t *arms = json_array(), *rows = json_array(), *blocks = json_array();

	for (size_t i = 0; i < c->n_arms; i++) {
		json_array_append_new(arms, arm_json(c, i));
		if (i != c->baseline)
			json_array_append_new(rows, comparison_row(c, i));
	}
	for (size_t b = 0; b < c->n_blocks; b++)
		json_array_append_new(blocks, block_json(c, &c->blocks[b]));
	return json_pack("{s:O?, s:s, s:o, s:o, s:o, s:o, s:{s:f, s:f}, s:b, s:I, s:I, s:o}", "run",
		json_object_get(c->show, "run"), "baseline", arm_name(c, c->baseline), "design",
		design_json(c), "arms", arms, "comparisons", rows, "blocks", blocks, "drift", "p",
		c->drift.p, "percent_per_block", estimate_throughput_percent(c->drift.slope * 1e-9),
		"spans_restart", c->spans_restart, "segments_used", INT(c->used),
		"segments_left_out", INT(c->left_out), "failed", failed_json(segments));
}
