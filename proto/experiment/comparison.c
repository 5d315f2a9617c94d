#include "proto/experiment/comparison.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/experiment/comparison_private.h"
#include "proto/host/memory.h"
#include "proto/rpc.h"
#include "proto/spec/spec_table.h"

const struct comparison_mean comparison_means[COMPARISON_MEANS] = {
	{"data_mean_s", NULL},
	{"forward_mean_s", NULL},
	{"backward_mean_s", NULL},
	{"optimizer_mean_s", NULL},
	{"exposed_comm_mean_s", NULL},
	{"exposed_transfer_mean_s", NULL},
	{"exposed_wait_mean_s", NULL},
	{"mfu", NULL},
	{"hfu", NULL},
	{"sm_clock_mhz", "gpu"},
	{"power_w", "gpu"},
	{"temperature_c", "gpu"},
	{"time_to_loss_s", NULL},
};

const char *const comparison_class_names[] = {
	[CLASS_NUMERICS] = "same_numerics",
	[CLASS_ORDER] = "other_order_of_sums",
	[CLASS_PRECISION] = "other_precision",
	[CLASS_TRAINING] = "other_training",
};

double comparison_number(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* Sums over all segments of a run cannot overflow; no segment has that many steps or tokens. */
static int64_t count(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);
	const json_int_t n = json_is_integer(value) ? json_integer_value(value) : 0;

	return n > 0 && n < INT64_C(1) << 46 ? (int64_t)n : 0;
}

static bool is_done(const json_t *segment)
{
	return strcmp(rpc_text(segment, "state"), "done") == 0 &&
		json_is_object(json_object_get(segment, "summary"));
}

static size_t find_arm(const struct comparison *c, const char *name)
{
	size_t i = 0;

	while (i < c->n_arms && strcmp(c->spec->arms[i].name, name) != 0)
		i++;
	return i;
}

/* ---- what differs between the arms ---- */

static void add_difference(
	const struct spec_row *row, const char *own, const char *baseline, void *arg)
{
	static const enum comparison_class classes[] = {
		[SPEC_EFFECT_TRAINING] = CLASS_TRAINING,
		[SPEC_EFFECT_PRECISION] = CLASS_PRECISION,
		[SPEC_EFFECT_ORDER] = CLASS_ORDER,
		[SPEC_EFFECT_NUMERICS] = CLASS_NUMERICS,
	};
	struct comparison_arm *arm = arg;

	if (classes[row->effect] > arm->class)
		arm->class = classes[row->effect];
	json_array_append_new(arm->differences,
		json_pack("{s:s, s:s, s:s}", "key", row->key, "value", own, "baseline", baseline));
}

static void find_differences(struct comparison *c)
{
	for (size_t i = 0; i < c->n_arms; i++) {
		struct comparison_arm *arm = &c->arms[i];

		arm->index = i;
		arm->differences = json_array();
		arm->losses = json_array();
		spec_differences(c->spec, i, c->baseline, add_difference, arm);
	}
}

/* ---- gathering ---- */

static struct comparison_block *block_of(struct comparison *c, int64_t number)
{
	struct comparison_block *block;

	for (size_t i = 0; i < c->n_blocks; i++)
		if (c->blocks[i].number == number)
			return &c->blocks[i];
	c->blocks = memory_resized(c->blocks, (c->n_blocks + 1) * sizeof(*c->blocks));
	block = &c->blocks[c->n_blocks++];
	*block = (struct comparison_block){.number = number};
	for (size_t i = 0; i < SPEC_ARMS_MAX; i++)
		block->cells[i].bit_equal = block->cells[i].data_equal = true;
	return block;
}

/* The largest |difference| of two traces; NaN if they cannot be compared. */
static double trace_difference(const json_t *a, const json_t *b)
{
	const size_t n = json_array_size(a);
	double largest = 0.0;

	if (n == 0 || json_array_size(b) != n)
		return (double)NAN;
	for (size_t i = 0; i < n; i++) {
		const json_t *x = json_array_get(a, i), *y = json_array_get(b, i);

		if (!json_is_number(x) || !json_is_number(y))
			return (double)NAN;
		largest = fmax(largest, fabs(json_number_value(x) - json_number_value(y)));
	}
	return largest;
}

static bool same_text(const json_t *a, const json_t *b, const char *key)
{
	const json_t *x = json_object_get(a, key), *y = json_object_get(b, key);

	return json_is_string(x) && json_equal(x, y);
}

static void compare_losses(
	const struct comparison *c, struct comparison_cell *cell, const json_t *summary)
{
	const double diff = trace_difference(
		json_object_get(c->reference, "losses"), json_object_get(summary, "losses"));

	if (isnan(diff) || diff > cell->loss_diff)
		cell->loss_diff = isnan(cell->loss_diff) ? cell->loss_diff : diff;
	cell->bit_equal = cell->bit_equal && same_text(c->reference, summary, "loss_hash");
	cell->data_equal = cell->data_equal && same_text(c->reference, summary, "data_hash");
}

static bool stalled(const json_t *summary)
{
	const json_t *times = json_object_get(summary, "step_time_ns");
	const size_t n = json_array_size(times);
	int64_t *values = memory_zeroed(n, sizeof(*values));
	bool is;

	for (size_t i = 0; i < n; i++)
		values[i] = (int64_t)json_integer_value(json_array_get(times, i));
	is = json_is_true(json_object_get(summary, "stalled")) || verdict_stalled(values, n);
	free(values);
	return is;
}

static void add_times(struct comparison_arm *arm, const json_t *times)
{
	const size_t n = json_array_size(times);

	if (!json_is_array(times)) {
		arm->times_missing = true;
		return;
	}
	arm->times = memory_resized(arm->times, (arm->n_times + n) * sizeof(*arm->times));
	for (size_t i = 0; i < n; i++)
		arm->times[arm->n_times++] = (int64_t)json_integer_value(json_array_get(times, i));
}

static void add_means(struct comparison_arm *arm, const json_t *summary, double tokens)
{
	for (size_t i = 0; i < COMPARISON_MEANS; i++) {
		const struct comparison_mean *row = &comparison_means[i];
		const json_t *object =
			row->object ? json_object_get(summary, row->object) : summary;
		const double value = comparison_number(object, row->key);

		arm->means[i].missing = arm->means[i].missing || isnan(value);
		arm->means[i].sum += value * tokens;
		arm->means[i].tokens += tokens;
	}
}

static void add_to_arm(struct comparison_arm *arm, const json_t *segment, const json_t *before)
{
	const json_t *summary = json_object_get(segment, "summary");
	const double switch_ns = comparison_number(summary, "switch_ns");

	arm->segments++;
	arm->tokens += count(summary, "tokens_measured");
	arm->tokens_total += count(summary, "tokens_total");
	arm->saving += count(json_object_get(summary, "checkpoints"), "steps_left_out");
	arm->checkpoints += count(json_object_get(summary, "checkpoints"), "written");
	arm->attempted += count(summary, "steps_attempted");
	arm->applied += count(summary, "steps_applied");
	arm->skipped += count(summary, "steps_skipped");
	arm->stalled += stalled(summary);
	arm->seconds += comparison_number(summary, "seconds_measured");
	arm->energy_j += comparison_number(summary, "energy_j");
	arm->peak_bytes = fmax(arm->peak_bytes, comparison_number(summary, "peak_device_bytes"));
	arm->throttle = (double)((int64_t)arm->throttle |
		count(json_object_get(summary, "gpu"), "throttle"));
	add_times(arm, json_object_get(summary, "step_time_ns"));
	add_means(arm, summary, (double)count(summary, "tokens_measured"));
	if (!arm->plan)
		arm->plan = json_object_get(summary, "plan");
	/* before a run's first segment the engines were idle for an unknown time */
	if (before && strcmp(rpc_text(before, "arm"), rpc_text(segment, "arm")) != 0 &&
		!isnan(switch_ns)) {
		arm->n_switches++;
		arm->switch_ns += switch_ns;
		arm->init_ns += comparison_number(summary, "init_ns");
	}
	json_array_append_new(arm->losses,
		json_pack("{s:O, s:O?, s:O?}", "segment", json_object_get(segment, "segment"),
			"loss_last", json_object_get(summary, "loss_last"), "val_loss",
			json_object_get(summary, "val_loss")));
}

static void add_segment(struct comparison *c, const json_t *segment)
{
	const json_t *summary = json_object_get(segment, "summary");
	struct comparison_block *block = block_of(c, count(segment, "block"));
	const size_t i = find_arm(c, rpc_text(segment, "arm"));
	struct comparison_cell *cell;

	if (i == c->n_arms)
		return;
	block->begun |= strcmp(rpc_text(segment, "state"), "waiting") != 0;
	cell = &block->cells[i];
	cell->planned++;
	if (block->void_reason[0] == '\0')
		snprintf(block->void_reason, sizeof(block->void_reason), "%s",
			rpc_text(segment, "void"));
	if (strncmp(rpc_text(segment, "void"), "daemon_restart", 14) == 0)
		c->spans_restart = true;
	if (!is_done(segment)) {
		c->left_out++;
		return;
	}
	if (strcmp(rpc_text(segment, "started_at"),
		    rpc_text(json_object_get(c->show, "run"), "started_at")) < 0)
		c->spans_restart = true; /* it was trained before the run's latest start */
	cell->done++;
	cell->stalled += stalled(summary);
	cell->tokens += count(summary, "tokens_measured");
	cell->tokens_total += count(summary, "tokens_total");
	cell->saving += count(json_object_get(summary, "checkpoints"), "steps_left_out");
	cell->attempted += count(summary, "steps_attempted");
	cell->applied += count(summary, "steps_applied");
	cell->seconds += comparison_number(summary, "seconds_measured");
	compare_losses(c, cell, summary);
	c->used++;
}

static void find_reference(struct comparison *c, const json_t *segments)
{
	const json_t *segment;
	size_t i;

	json_array_foreach(segments, i, segment) {
		if (is_done(segment) && find_arm(c, rpc_text(segment, "arm")) == c->baseline) {
			c->reference = json_object_get(segment, "summary");
			return;
		}
	}
}

/* An arm with a failed segment has failed; the other arms' blocks are kept without it. */
static void find_failed(struct comparison *c, const json_t *segments)
{
	const json_t *segment;
	size_t i;

	json_array_foreach(segments, i, segment) {
		const size_t arm = find_arm(c, rpc_text(segment, "arm"));

		const bool left_out =
			strstr(rpc_text(segment, "reason"), COMPARISON_ARM_FAILED) != NULL;
		const bool failed = strcmp(rpc_text(segment, "state"), "failed") == 0 &&
			rpc_text(segment, "void")[0] == '\0';

		if (arm < c->n_arms && (failed || left_out))
			c->arms[arm].failed = true;
	}
}

/* ---- blocks ---- */

static int compare_blocks(const void *a, const void *b)
{
	const struct comparison_block *x = a, *y = b;

	return (x->number > y->number) - (x->number < y->number);
}

static bool cell_whole(const struct comparison_cell *cell)
{
	return cell->planned > 0 && cell->done == cell->planned && cell->seconds > 0.0;
}

static void keep_blocks(struct comparison *c)
{
	size_t begun = 0;

	qsort(c->blocks, c->n_blocks, sizeof(*c->blocks), compare_blocks);
	for (size_t b = 0; b < c->n_blocks; b++)
		if (c->blocks[b].begun)
			c->blocks[begun++] = c->blocks[b];
	c->n_blocks = begun;
	for (size_t b = 0; b < c->n_blocks; b++) {
		struct comparison_block *block = &c->blocks[b];

		block->kept = block->void_reason[0] == '\0';
		for (size_t i = 0; i < c->n_arms; i++)
			block->kept =
				block->kept && (c->arms[i].failed || cell_whole(&block->cells[i]));
		c->n_kept += block->kept;
	}
}

/*
 * An arm's figures come from the blocks of its verdict, because a standstill or half a block must
 * not change them. Before a block is kept they come from all done segments.
 */
static void add_to_arms(struct comparison *c, const json_t *segments)
{
	const json_t *segment, *before = NULL;
	size_t i;

	json_array_foreach(segments, i, segment) {
		const size_t arm = find_arm(c, rpc_text(segment, "arm"));

		if (arm < c->n_arms && is_done(segment) &&
			(c->n_kept == 0 || block_of(c, count(segment, "block"))->kept))
			add_to_arm(&c->arms[arm], segment, before);
		before = segment;
	}
}

/* For all blocks: the machine may have slowed down or sped up without a visible cause. */
static void find_drift(struct comparison *c)
{
	int64_t *totals = memory_zeroed(c->n_kept, sizeof(*totals));
	size_t n = 0;

	for (size_t b = 0; b < c->n_blocks; b++) {
		double sum = 0.0;

		if (!c->blocks[b].kept)
			continue;
		for (size_t i = 0; i < c->n_arms; i++)
			sum += c->arms[i].failed ? 0.0 : c->blocks[b].cells[i].seconds;
		totals[n++] = estimate_log_ratio(sum, 1.0);
	}
	c->drift.p = 1.0;
	if (n > 0)
		estimate_trend(totals, n, &c->drift);
	free(totals);
}

/* ---- arm against baseline ---- */

static bool same_plan(const struct comparison *c, const struct comparison_arm *arm)
{
	const struct comparison_arm *base = &c->arms[c->baseline];
	const json_t *difference;
	size_t i;

	if (!arm->plan || !json_equal(arm->plan, base->plan))
		return false;
	json_array_foreach(arm->differences, i, difference) {
		if (!strstr(rpc_text(difference, "key"), "bucket_size"))
			return false;
	}
	return true;
}

static void find_control(struct comparison *c)
{
	c->control = c->n_arms;
	for (size_t i = 0; i < c->n_arms; i++)
		c->arms[i].identical_plan = i != c->baseline && same_plan(c, &c->arms[i]);
	if (c->baseline == 0 && c->spec->control != SPEC_NO_CONTROL)
		c->control = c->spec->control;
	for (size_t i = 0; c->control == c->n_arms && i < c->n_arms; i++)
		if (c->arms[i].identical_plan && !c->arms[i].failed)
			c->control = i;
	if (c->control < c->n_arms)
		c->arms[c->control].is_control = true;
}

/* Why a kept block's work is not equal; false: it is. */
static bool block_unequal(const struct comparison_arm *arm, const struct comparison_cell *own,
	const struct comparison_cell *base, char *why, size_t bytes)
{
	/* steps beside a checkpoint are done but not measured */
	const bool saving = own->saving > 0 || base->saving > 0;

	if (own->tokens_total != base->tokens_total || (own->tokens != base->tokens && !saving))
		snprintf(why, bytes, "%lld and %lld tokens", (long long)own->tokens_total,
			(long long)base->tokens_total);
	else if (own->applied != base->applied && arm->class < CLASS_PRECISION)
		snprintf(why, bytes, "%lld and %lld applied updates", (long long)own->applied,
			(long long)base->applied);
	else if (!own->data_equal)
		snprintf(why, bytes, "the token sequences differ");
	else if (arm->class == CLASS_NUMERICS && !own->bit_equal)
		snprintf(why, bytes, "losses differ by up to %.2g (must be bit-equal)",
			own->loss_diff);
	else if (arm->class == CLASS_ORDER && !own->bit_equal && isnan(own->loss_diff))
		snprintf(why, bytes, "losses differ, and not all are finite");
	else if (arm->class == CLASS_ORDER && own->loss_diff > COMPARISON_TOLERANCE)
		snprintf(why, bytes, "losses differ by up to %.2g (at most %g)", own->loss_diff,
			COMPARISON_TOLERANCE);
	else
		return false;
	return true;
}

static void check_work(struct comparison *c, struct comparison_arm *arm)
{
	char why[120];

	if (arm->class == CLASS_TRAINING) {
		snprintf(arm->unequal, sizeof(arm->unequal),
			"the arms train differently, so their speeds are not compared");
		return;
	}
	for (size_t b = 0; !arm->failed && b < c->n_blocks && arm->unequal[0] == '\0'; b++) {
		const struct comparison_block *block = &c->blocks[b];

		if (block->kept &&
			block_unequal(arm, &block->cells[arm->index], &block->cells[c->baseline],
				why, sizeof(why)))
			snprintf(arm->unequal, sizeof(arm->unequal), "block %lld: %s",
				(long long)block->number, why);
	}
}

int64_t comparison_log_ratio(const struct comparison_cell *base, const struct comparison_cell *own)
{
	const bool same = base->tokens == own->tokens || base->tokens == 0 || own->tokens == 0;

	return same ? estimate_log_ratio(base->seconds, own->seconds)
		    : estimate_log_ratio(base->seconds / (double)base->tokens,
			      own->seconds / (double)own->tokens);
}

static void take_ratios(struct comparison *c, struct comparison_arm *arm)
{
	struct verdict_input *in = &arm->input;

	arm->q = memory_zeroed(c->n_kept, sizeof(*arm->q));
	*in = (struct verdict_input){.q = arm->q};
	for (size_t b = 0; b < c->n_blocks; b++) {
		const struct comparison_block *block = &c->blocks[b];
		const struct comparison_cell *base = &block->cells[c->baseline];
		const struct comparison_cell *own = &block->cells[arm->index];

		if (!block->kept || arm->failed || !cell_whole(base))
			continue;
		arm->q[in->n++] = comparison_log_ratio(base, own);
		in->stalled_a += base->stalled;
		in->stalled_b += own->stalled;
	}
	in->unequal_work = arm->unequal[0] != '\0';
}

static void decide(struct comparison *c)
{
	const struct verdict_rules rules = {.alpha = c->alpha, .margin = c->spec->margin};
	struct verdict_input inputs[SPEC_ARMS_MAX] = {0};
	struct verdict_result results[SPEC_ARMS_MAX];
	size_t arms[SPEC_ARMS_MAX], n = 0;

	for (size_t i = 0; i < c->n_arms; i++) {
		check_work(c, &c->arms[i]);
		take_ratios(c, &c->arms[i]);
	}
	for (size_t i = 0; i < c->n_arms; i++) {
		struct verdict_input *in = &c->arms[i].input;

		if (i == c->baseline || i == c->control)
			continue;
		if (c->control < c->n_arms && in->n == c->arms[c->control].input.n)
			in->control_q = c->arms[c->control].q;
		inputs[n] = *in;
		arms[n++] = i;
	}
	verdict_decide(&rules, inputs, n, results);
	for (size_t i = 0; i < n; i++)
		c->arms[arms[i]].result = results[i];
	if (c->control < c->n_arms) {
		struct verdict_input in = c->arms[c->control].input;

		verdict_decide(&rules, &in, 1, &c->arms[c->control].result);
	}
}

/* ---- all of it ---- */

static void finish(struct comparison *c)
{
	for (size_t i = 0; i < c->n_arms; i++) {
		free(c->arms[i].times);
		free(c->arms[i].q);
		json_decref(c->arms[i].losses);
		json_decref(c->arms[i].differences);
	}
	free(c->blocks);
	free(c);
}

int comparison_make(const struct spec *spec, const json_t *show, const char *baseline, json_t **out)
{
	struct comparison *c = memory_zeroed(1, sizeof(*c));
	const json_t *segments = json_object_get(show, "segments"), *segment;
	size_t i;
	int rc = 0;

	c->spec = spec;
	c->show = show;
	c->n_arms = spec->n_arms;
	c->alpha = spec->stop_half_width > 0.0 ? VERDICT_ALPHA_STOPPING : VERDICT_ALPHA;
	c->baseline = baseline ? find_arm(c, baseline) : 0;
	if (c->baseline == c->n_arms) {
		finish(c);
		return -ENOENT;
	}
	find_differences(c);
	find_reference(c, segments);
	json_array_foreach(segments, i, segment)
		add_segment(c, segment);
	if (c->used == 0) {
		rc = -ENODATA;
	} else {
		find_failed(c, segments);
		keep_blocks(c);
		add_to_arms(c, segments);
		find_drift(c);
		find_control(c);
		decide(c);
		*out = comparison_json(c);
	}
	finish(c);
	return rc;
}
