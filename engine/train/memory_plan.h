/*
 * memory_plan.h: what a rank's training takes of its device, and the words for a plan that needs
 * more memory than there is. Parts have the names that gpt2ctl prints in its plan.
 */
#ifndef GPT2D_ENGINE_TRAIN_MEMORY_PLAN_H
#define GPT2D_ENGINE_TRAIN_MEMORY_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/train/activations.h"
#include "kernels/kernels.h"
#include "proto/host/cgroup.h"

/* A rank's device, and what a training takes there beside its buffers. */
struct memory_device {
	const char *backend;           /* k_device_info.backend */
	int64_t total_bytes;           /* 0: not known; on the CPU all ranks share it */
	char limit[CGROUP_FILE_BYTES]; /* the control group's file that sets total_bytes, or "" */
	int64_t free_bytes;    /* now, idle engines' memory not counted as free; 0: not known */
	int64_t comm_bytes;    /* what collectives take beyond the arenas, per rank */
	int64_t context_bytes; /* k_device_info.context_bytes, per rank */
	int64_t scratch[K_SCRATCH_KINDS]; /* of k_scratch_plan, per rank */
	int64_t tuning_bytes;             /* of k_choices_bytes, per rank */
};

/* What a rank plans, in bytes. */
struct memory_plan {
	struct activations_shape shape;
	int64_t arena, master, moment, activations, logits, batch, scratch, branch, total;
	bool together;   /* others of the run's ranks take theirs of the same memory */
	int64_t ranks;   /* that are counted */
	int64_t planned; /* by those */
};

/* Sizes with which sums of bytes would not stay exact; such a configuration is refused. */
bool memory_plan_beyond_reason(const struct spec_config *config);

/* Elements of a micro-batch's logits, micro_batch * seq_len * padded vocabulary; -1 beyond 2^63. */
int64_t memory_plan_logits_elems(const struct spec_config *config);

/*
 * shape, and from arena to branch but batch: what a check plans and a run takes. owned_elems:
 * elements of the arena that the rank's optimizer has; scratch of k_scratch_plan.
 */
void memory_plan_parts(struct memory_plan *out, const struct activations_shape *shape,
	int64_t arena_elems, int64_t owned_elems, const int64_t scratch[K_SCRATCH_KINDS]);

/*
 * Lowers the two numbers in info to what a control group leaves, where ranks share the machine's
 * memory (the CPU). file: the group's file that sets memory_total_bytes, "" when none does.
 */
void memory_plan_limit(struct k_device_info *info, char file[CGROUP_FILE_BYTES]);

/*
 * Of a plan beyond the device's total_bytes: how much, of which ranks, the largest part, what takes
 * less. The key of what has to change: "model" where no batch would fit or the largest part does
 * not grow with the batch, unless activation_checkpointing is enough.
 */
const char *memory_plan_refusal(const struct spec_config *config,
	const struct memory_device *device, const struct memory_plan *plan, char *out,
	size_t out_bytes);

/*
 * At a run's start, of one rank (the plan's ranks are 1): it holds held_bytes of the plan and finds
 * free_bytes beside them, which is too little. others: who else has memory there, or "".
 */
void memory_plan_none_left(const struct spec_config *config, const struct memory_device *device,
	const struct memory_plan *plan, int64_t held_bytes, const char *others, char *out,
	size_t out_bytes);

/* Of a plan beyond free_bytes only. */
void memory_plan_warning(const struct spec_config *config, const struct memory_device *device,
	const struct memory_plan *plan, char *out, size_t out_bytes);

#endif
