#include "engine/train/memory_plan.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "engine/train/arena.h"
#include "proto/size.h"

int64_t memory_plan_logits_elems(const struct spec_config *config)
{
	int64_t elems;

	if (__builtin_mul_overflow(config->micro_batch, config->seq_len, &elems) ||
		__builtin_mul_overflow(elems, arena_vocab_padded(config->model.vocab_size), &elems))
		return -1;
	return elems;
}

/* Far beyond any memory, and so far below 2^63 that sums of such sizes do not overflow. */
bool memory_plan_beyond_reason(const struct spec_config *c)
{
	double rows = (double)c->micro_batch * (double)c->seq_len;
	double per_row = (double)(c->model.n_embd * 64 + c->model.n_head * 8) *
			(double)(c->model.n_layer + 1) +
		(double)arena_vocab_padded(c->model.vocab_size) * 8;

	return rows * per_row > 1e17 || rows * (double)c->accumulation * 16 > 1e17;
}

void memory_plan_parts(struct memory_plan *n, const struct activations_shape *shape,
	int64_t arena_elems, int64_t owned_elems, const int64_t scratch[K_SCRATCH_KINDS])
{
	n->shape = *shape;
	n->arena = arena_elems * shape->elem_bytes;
	n->master = shape->elem_bytes == shape->real_bytes ? 0 : owned_elems * shape->real_bytes;
	n->moment = owned_elems * shape->real_bytes;
	n->logits = activations_logits_bytes(shape);
	n->activations = activations_bytes(shape) - n->logits;
	n->scratch = scratch[K_SCRATCH_PRODUCTS] + scratch[K_SCRATCH_OPERATION] +
		scratch[K_SCRATCH_PARTIAL];
	n->branch = scratch[K_SCRATCH_BESIDE_PRODUCTS] + scratch[K_SCRATCH_BESIDE_OPERATION];
}

void memory_plan_limit(struct k_device_info *info, char file[CGROUP_FILE_BYTES])
{
	struct cgroup_memory group;

	file[0] = '\0';
	if (info->pci != NULL || cgroup_memory_read("", &group) < 0)
		return;
	if (info->memory_free_bytes > group.free_bytes)
		/* 0 would mean that it is not known */
		info->memory_free_bytes = group.free_bytes > 0 ? group.free_bytes : 1;
	if (info->memory_total_bytes > 0 && info->memory_total_bytes <= group.limit_bytes)
		return;
	info->memory_total_bytes = group.limit_bytes;
	strcpy(file, group.file);
}

/* Names the first setting that would fit into the limit; empty if none does. */
static const char *say_what_fits(const struct memory_plan *n, int64_t limit, char out[96])
{
	int64_t own = activations_bytes(&n->shape);
	char size[SIZE_BYTES];

	out[0] = '\0';
	for (int r = (int)n->shape.recompute + 1; r <= SPEC_RECOMPUTE_FULL && !out[0]; r++) {
		enum spec_recompute setting = (enum spec_recompute)r;
		int64_t saved = own - activations_bytes_with(&n->shape, setting);

		if (n->planned - n->ranks * saved <= limit)
			snprintf(out, 96, "; with activation_checkpointing %s %s",
				spec_recompute_name(setting),
				size_text(n->planned - n->ranks * saved, size));
	}
	return out;
}

/* Parts of the plan that are not buffers of the run; empty if there are none. */
static const char *say_beside(const struct memory_device *o, char out[128])
{
	const struct {
		const char *name;
		int64_t bytes;
	} part[] = {
		{"context", o->context_bytes},
		{"communication", o->comm_bytes},
		{"choosing algorithms", o->tuning_bytes},
	};
	char size[SIZE_BYTES];

	out[0] = '\0';
	for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); i++)
		if (part[i].bytes > 0)
			snprintf(out + strlen(out), 128 - strlen(out), "%s%s %s",
				out[0] ? ", " : "", part[i].name, size_text(part[i].bytes, size));
	return out;
}

/* Of which ranks, and which parts are not buffers. */
static const char *say_planned(const struct spec_config *c, const struct memory_device *o,
	const struct memory_plan *n, char out[256])
{
	char planned[SIZE_BYTES], total[SIZE_BYTES];
	char ranks[64] = "", beside[128];
	bool some = say_beside(o, beside)[0] != '\0';

	if (n->ranks > 1)
		snprintf(ranks, sizeof(ranks), "%" PRId64 " ranks x %s%s", n->ranks,
			size_text(n->total, total), some ? ", each with " : "");
	else if (c->gpus > 1)
		snprintf(ranks, sizeof(ranks), "by each rank%s", some ? ", with " : "");
	else if (some)
		snprintf(ranks, sizeof(ranks), "with ");
	snprintf(out, 256, ranks[0] ? "%s planned (%s%s)" : "%s planned%s%s",
		size_text(n->planned, planned), ranks, beside);
	return out;
}

/* Names a rank's largest part, as in gpt2ctl's plan; whether it depends on the batch. */
static bool say_largest(const struct memory_device *o, const struct memory_plan *n, char out[96])
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
	char size[SIZE_BYTES];

	for (size_t i = 1; i < sizeof(part) / sizeof(part[0]); i++)
		if (part[i].bytes > part[largest].bytes)
			largest = i;
	snprintf(out, 96, "; largest of a rank: %s, %s", part[largest].name,
		size_text(part[largest].bytes, size));
	return part[largest].of_batch;
}

/* The largest part and what takes less than the limit; the key that must change. */
static const char *say_cure(const struct spec_config *c, const struct memory_device *o,
	const struct memory_plan *n, int64_t limit, char out[320])
{
	const bool stage_0 = c->zero_stage == 0 && c->gpus > 1;
	const char *key = "model";
	char fits[96], largest[96], next[200] = "", rest[SIZE_BYTES];
	/* parameters and what depends on them: a smaller batch does not help */
	int64_t fixed = 2 * n->arena + n->master + 2 * n->moment;
	bool of_batch = say_largest(o, n, largest);

	say_what_fits(n, limit, fits);
	if (fixed > limit / n->ranks)
		snprintf(next, sizeof(next), "; %s a rank with any batch", size_text(fixed, rest));
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
			n->together ? stage_0 ? "fewer gpus, " : "fewer gpus or " : "",
			stage_0 ? "zero_optimization.stage 1 or " : "");
	snprintf(out, 320, "%s%s", largest, next);
	return key;
}

const char *memory_plan_refusal(const struct spec_config *c, const struct memory_device *o,
	const struct memory_plan *n, char *out, size_t out_bytes)
{
	const bool limited = o->limit[0] != '\0';
	char planned[256], available[SIZE_BYTES], more[SIZE_BYTES], cure[320];
	const char *key = say_cure(c, o, n, o->total_bytes, cure);

	snprintf(out, out_bytes, "memory: %s, %s available%s%s%s: %s more%s",
		say_planned(c, o, n, planned), size_text(o->total_bytes, available),
		limited ? " (by " : "", o->limit, limited ? ")" : "",
		size_text(n->planned - o->total_bytes, more), cure);
	return key;
}

void memory_plan_none_left(const struct spec_config *c, const struct memory_device *o,
	const struct memory_plan *n, int64_t held_bytes, const char *others, char *out,
	size_t out_bytes)
{
	const int64_t limit = held_bytes + o->free_bytes;
	char planned[256], free[SIZE_BYTES], held[SIZE_BYTES], more[SIZE_BYTES], cure[320];

	say_cure(c, o, n, limit, cure);
	snprintf(out, out_bytes, "memory: %s, %s%s%s free%s: %s more%s",
		say_planned(c, o, n, planned), held_bytes > 0 ? size_text(held_bytes, held) : "",
		held_bytes > 0 ? " held and " : "", size_text(o->free_bytes, free), others,
		size_text(n->planned - limit, more), cure);
}

void memory_plan_warning(const struct spec_config *c, const struct memory_device *o,
	const struct memory_plan *n, char *out, size_t out_bytes)
{
	char fits[96], planned[256], available[SIZE_BYTES];

	snprintf(out, out_bytes, "memory: %s, %s free now%s", say_planned(c, o, n, planned),
		size_text(o->free_bytes, available), say_what_fits(n, o->free_bytes, fits));
}
