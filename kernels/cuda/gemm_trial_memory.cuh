/*
 * gemm_trial_memory.cuh: what a trial of a matrix product reads and writes. It lies in memory that
 * the context was lent (k_choices_begin); what finds no room there takes memory of its own.
 */
#ifndef GPT2D_KERNELS_CUDA_GEMM_TRIAL_MEMORY_CUH
#define GPT2D_KERNELS_CUDA_GEMM_TRIAL_MEMORY_CUH

#include "kernels/cuda/gemm_plan.cuh"
#include "kernels/cuda/graph.cuh"

enum { TRIAL_TIMES_MAX = 24 }; /* products of a round, each with counters of its own */
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
	size_t step[TRIAL_PARTS];  /* from one copy to the next; 0: there is one */
	int copies;
	bool own[TRIAL_PARTS];
};

/*
 * For such a call: beyond_cache with so many copies of a, d and aux that they do not fit into the
 * device's cache, else with one. False: there is no memory for that, and none was taken.
 */
bool gemm_trial_memory_take(struct k_context *ctx, const struct gemm_call *c, bool beyond_cache,
	struct trial_memory *out);
void gemm_trial_memory_give_back(struct trial_memory *m);

/* What it takes of its own, at most, beyond the cache, where so much was lent. */
size_t gemm_trial_memory_own_bytes(const struct k_context *ctx, enum k_dtype dtype,
	const struct gemm_call *c, size_t lent_bytes);

#endif
