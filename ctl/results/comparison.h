/*
 * comparison.h: the arms of an experiment side by side, from the summaries of its segments. Only
 * figures that are counted or measured; no interval and no verdict.
 *
 *   {run, baseline, segments_used, segments_left_out, failed: [{segment, arm, state, reason}],
 *    arms: [{arm, plan, segments, tokens, tokens_total, skipped, steps, median_ns, p95_ns (null
 *            under 20), low_n, mean_ns, data_mean_s, forward_mean_s, backward_mean_s,
 *            exposed_comm_mean_s, optimizer_mean_s, seconds, tok_s, init_mean_ns, switch_mean_ns,
 *            max_loss_diff, losses_identical, losses: [{segment, loss_last, val_loss}]}],
 *    blocks: [{block, ratios: [{arm, tok_s_ratio, step_time_ratio}]}],
 *    ratios: [{arm, blocks, tok_s_ratio, tok_s_ratio_min, tok_s_ratio_max, step_time_ratio}],
 *    slow_rank (slow_rank.h), equal_tokens, verdict: null, note}
 *
 * Ratios are arm / baseline; over a block and over all blocks they are of total tokens and total
 * time, never means of rates. max_loss_diff is the largest |difference| of an arm's loss traces to
 * the baseline's first; null when a trace is missing, not finite, or of another length.
 */
#ifndef GPT2D_CTL_RESULTS_COMPARISON_H
#define GPT2D_CTL_RESULTS_COMPARISON_H

#include <jansson.h>

#include "ctl/link/ctl_error.h"

enum { COMPARISON_BLOCKS_FOR_VERDICT = 8 };

/*
 * show: the reply to "show", all segments in it. baseline: an arm's name, or NULL for the first. 0
 * and *out, or CTL_USAGE (no such arm), CTL_WRONG_STATE (nothing to compare) with e.
 */
int comparison_make(const json_t *show, const char *baseline, json_t **out, struct ctl_error *e);

#endif
