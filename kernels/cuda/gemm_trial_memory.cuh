/*
 * gemm_trial_memory.cuh: operands and results of a trial of a matrix product. They use the memory
 * lent to the context (k_choices_begin); parts that do not fit there are allocated.
 */
#ifndef GPT2D_KERNELS_CUDA_GEMM_TRIAL_MEMORY_CUH
#define GPT2D_KERNELS_CUDA_GEMM_TRIAL_MEMORY_CUH

#include "kernels/cuda/gemm_plan.cuh"
#include "kernels/cuda/graph.cuh"

enum { TRIAL_TIMES_MAX = 24 }; /* products per round, each with its own counters */
enum { TRIAL_COUNTERS_BYTES = TRIAL_TIMES_MAX * GRAPH_COUNTER_BYTES };

enum trial_part {
	TRIAL_A,
	TRIAL_B,
	TRIAL_D,
	TRIAL_AUX,
	TRIAL_BIAS,
	TRIAL_SUMS,
	TRIAL_WORKSPACE, /* STREAM_WORKSPACE_BYTES and the counters */
	TRIAL_PARTS,
};

struct trial_memory {
	void *part[TRIAL_PARTS];   /* NULL: the product has none */
	size_t bytes[TRIAL_PARTS]; /* of all copies */
	size_t step[TRIAL_PARTS];  /* between two copies; 0: there is one */
	int copies;
	bool own[TRIAL_PARTS];
};

/*
 * Memory for such a call. beyond_cache: so many copies of a, d and aux that they exceed the
 * device's cache; else one. False: not enough memory, and none was taken.
 */
bool gemm_trial_memory_take(struct k_context *ctx, const struct gemm_call *c, bool beyond_cache,
	struct trial_memory *out);
void gemm_trial_memory_give_back(struct trial_memory *m);

/* The most it allocates itself, beyond_cache, with so much memory lent. */
size_t gemm_trial_memory_own_bytes(const struct k_context *ctx, enum k_dtype dtype,
	const struct gemm_call *c, size_t lent_bytes);

#endif
