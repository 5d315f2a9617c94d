#include "engine/check_memory.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* As gpt2ctl prints a size: three digits. */
static const char *say_size(int64_t bytes, char out[16])
{
	static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
	double value = (double)bytes;
	size_t u = 0;

	for (; value >= 999.5 && u + 1 < sizeof(units) / sizeof(units[0]); u++)
		value /= 1000.0;
	snprintf(out, 16, "%.*f %s",
		u == 0 || value >= 99.95 ? 0
			: value >= 9.995 ? 1
					 : 2,
		value, units[u]);
	return out;
}

/* Names the first setting with which the limit would hold; empty when none is. */
static const char *say_what_fits(const struct check_needed *n, int64_t limit, char out[96])
{
	int64_t own = activations_bytes(&n->shape);
	char size[16];

	out[0] = '\0';
	for (int r = (int)n->shape.recompute + 1; r <= SPEC_RECOMPUTE_FULL && !out[0]; r++) {
		enum spec_recompute setting = (enum spec_recompute)r;
		int64_t saved = own - activations_bytes_with(&n->shape, setting);

		if (n->planned - n->ranks * saved <= limit)
			snprintf(out, 96, "; with activation_checkpointing %s %s",
				activations_recompute_name(setting),
				say_size(n->planned - n->ranks * saved, size));
	}
	return out;
}

/* Of which ranks, and what no buffer of the run is, where there is more than communication. */
static const char *say_planned(
	const struct check_options *o, const struct check_needed *n, char out[256])
{
	char planned[16], total[16], beside[3][16], ranks[64] = "", parts[128] = "";
	bool each = n->ranks > 1, some = o->context_bytes + o->tuning_bytes > 0;

	if (each)
		snprintf(ranks, sizeof(ranks), "%" PRId64 " ranks x %s%s", n->ranks,
			say_size(n->total, total), some ? ", each with " : "");
	else if (o->config->gpus > 1)
		snprintf(ranks, sizeof(ranks), "by each rank%s", some ? ", with " : "");
	if (some)
		snprintf(parts, sizeof(parts),
			"context %s, communication %s, choosing algorithms %s",
			say_size(o->context_bytes, beside[0]), say_size(o->comm_bytes, beside[1]),
			say_size(o->tuning_bytes, beside[2]));
	snprintf(out, 256, ranks[0] || some ? "%s planned (%s%s)" : "%s planned%s%s",
		say_size(n->planned, planned), ranks, parts);
	return out;
}

/* Names a rank's largest part, as gpt2ctl's plan does; whether it goes with the batch. */
static bool say_largest(const struct check_options *o, const struct check_needed *n, char out[96])
{
	const struct {
		const char *name;
		int64_t bytes;
		bool of_batch;
	} part[] = {
		{"parameters", n->arena, false},
		{"gradients", n->arena, false},
		{"fp32 parameters", n->master, false},
		{"Adam's moments", 2 * n->moment, false},
		{"activations", n->activations, true},
		{"logits", n->logits, true},
		{"batches", n->batch, true},
		{"scratch", n->scratch, true},
		{"branch scratch", n->branch, true},
		{"communication", o->comm_bytes, false},
		{"device's context", o->context_bytes, false},
		{"for tuning", o->tuning_bytes, false},
	};
	size_t largest = 0;
	char size[16];

	for (size_t i = 1; i < sizeof(part) / sizeof(part[0]); i++)
		if (part[i].bytes > part[largest].bytes)
			largest = i;
	snprintf(out, 96, "; largest of a rank: %s, %s", part[largest].name,
		say_size(part[largest].bytes, size));
	return part[largest].of_batch;
}

const char *check_memory_refusal(
	const struct check_options *o, const struct check_needed *n, char *out, size_t out_bytes)
{
	const struct spec_config *c = o->config;
	const bool limited = o->memory_limit != NULL, stage_0 = c->zero_stage == 0 && c->gpus > 1;
	const char *key = "model";
	char fits[96], planned[256], largest[96], available[16], more[16], rest[16], next[200];
	/* parameters and what goes with them: no batch makes that smaller */
	int64_t fixed = 2 * n->arena + n->master + 2 * n->moment;
	bool of_batch = say_largest(o, n, largest);

	say_what_fits(n, o->memory_total_bytes, fits);
	next[0] = '\0';
	if (fixed > o->memory_total_bytes / n->ranks)
		snprintf(next, sizeof(next), "; %s a rank with any batch", say_size(fixed, rest));
	else if ((of_batch || fits[0]) && c->micro_batch > 1)
		key = "train_micro_batch_size_per_gpu";
	else if ((of_batch || fits[0]) && c->seq_len > 1)
		key = "seq_len";
	if (fits[0])
		snprintf(next, sizeof(next), "%s", fits);
	else if (strcmp(key, "model") != 0)
		snprintf(next, sizeof(next), "; a smaller %s takes less", key);
	else
		snprintf(next + strlen(next), sizeof(next) - strlen(next),
			"; %s%sa smaller model takes less",
			n->ranks > 1 ? stage_0 ? "fewer gpus, " : "fewer gpus or " : "",
			stage_0 ? "zero_optimization.stage 1 or " : "");
	snprintf(out, out_bytes, "memory: %s, %s available%s%s%s: %s more%s%s",
		say_planned(o, n, planned), say_size(o->memory_total_bytes, available),
		limited ? " (by " : "", limited ? o->memory_limit : "", limited ? ")" : "",
		say_size(n->planned - o->memory_total_bytes, more), largest, next);
	return key;
}

void check_memory_warning(
	const struct check_options *o, const struct check_needed *n, char *out, size_t out_bytes)
{
	char fits[96], planned[256], available[16];

	snprintf(out, out_bytes, "memory: %s, %s free now%s", say_planned(o, n, planned),
		say_size(o->memory_free_bytes, available),
		say_what_fits(n, o->memory_free_bytes, fits));
}
