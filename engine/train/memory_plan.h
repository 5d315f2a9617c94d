/*
 * memory_plan.h: the memory of a rank's training, and the messages for a plan that does not fit.
 * Parts have the names in gpt2ctl's plan.
 */
#ifndef GPT2D_ENGINE_TRAIN_MEMORY_PLAN_H
#define GPT2D_ENGINE_TRAIN_MEMORY_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/train/activations.h"
#include "kernels/kernels.h"
#include "proto/host/cgroup.h"

/* A rank's device, and the training's memory there besides its buffers. */
struct memory_device {
	const char *backend;           /* k_device_info.backend */
	int64_t total_bytes;           /* 0: not known; on the CPU all ranks share it */
	char limit[CGROUP_FILE_BYTES]; /* the control group's file that sets total_bytes, or "" */
	int64_t free_bytes;    /* now, idle engines' memory not counted as free; 0: not known */
	int64_t comm_bytes;    /* of collectives besides the arenas, per rank */
	int64_t context_bytes; /* k_device_info.context_bytes, per rank */
	int64_t scratch[K_SCRATCH_KINDS]; /* of k_scratch_plan, per rank */
	int64_t tuning_bytes;             /* of k_choices_bytes, per rank */
};

/* Planned memory of a rank, in bytes. */
struct memory_plan {
	struct activations_shape shape;
	int64_t arena, master, moment, activations, logits, batch, scratch, branch, total;
	bool together;   /* other ranks of the run share this memory */
	int64_t ranks;   /* number of these ranks */
	int64_t planned; /* taken by these ranks */
};

/* Checks for sizes with which sums of bytes would overflow; such a configuration is refused. */
bool memory_plan_beyond_reason(const struct spec_config *config);

/* Elements of a micro-batch's logits, micro_batch * seq_len * padded vocabulary; -1 beyond 2^63. */
int64_t memory_plan_logits_elems(const struct spec_config *config);

/*
 * Fills shape, and from arena to branch except batch: for a check and for a run. owned_elems:
 * elements of the arena that the rank's optimizer has; scratch of k_scratch_plan.
 */
void memory_plan_parts(struct memory_plan *out, const struct activations_shape *shape,
	int64_t arena_elems, int64_t owned_elems, const int64_t scratch[K_SCRATCH_KINDS]);

/*
 * Lowers the two numbers in info to the limits of a control group, if ranks share the machine's
 * memory (the CPU). file: the group's file that sets memory_total_bytes, "" if none does.
 */
void memory_plan_limit(struct k_device_info *info, char file[CGROUP_FILE_BYTES]);

/*
 * For a plan beyond the device's total_bytes: a message with how much, of which ranks, the largest
 * part, and what takes less. Returns the key that must change: "model" if no batch would fit or the
 * largest part does not grow with the batch, unless activation_checkpointing is enough.
 */
const char *memory_plan_refusal(const struct spec_config *config,
	const struct memory_device *device, const struct memory_plan *plan, char *out,
	size_t out_bytes);

/*
 * For one rank at a run's start (the plan's ranks are 1): it holds held_bytes of the plan and finds
 * free_bytes besides them, which is too little. others: other users of that memory, or "".
 */
void memory_plan_none_left(const struct spec_config *config, const struct memory_device *device,
	const struct memory_plan *plan, int64_t held_bytes, const char *others, char *out,
	size_t out_bytes);

/* For a plan beyond free_bytes only. */
void memory_plan_warning(const struct spec_config *config, const struct memory_device *device,
	const struct memory_plan *plan, char *out, size_t out_bytes);

#endif
