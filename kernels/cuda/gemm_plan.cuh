/*
 * gemm_plan.cuh: the plan of a matrix product, and its execution by an algorithm of cuBLASLt or by
 * gemm_wgmma. A context has one plan per product, in a list that it owns.
 */
#ifndef GPT2D_KERNELS_CUDA_GEMM_PLAN_CUH
#define GPT2D_KERNELS_CUDA_GEMM_PLAN_CUH

#include "kernels/cuda/context.cuh"
#include "kernels/cuda/gemm_call.cuh"

/* Bytes. Products differ by their pointers' alignment up to this one. */
enum { GEMM_ALIGNMENT_MAX = 256 };

/* A choice, and cuBLASLt's descriptors for it. */
struct gemm_plan {
	struct gemm_plan *next;
	struct k_choice choice;
	size_t workspace_bytes; /* that the algorithm needs */
	cublasLtMatmulDesc_t desc;
	cublasLtMatrixLayout_t a, b, d;
};

enum { GEMM_CANDIDATES = 33 }; /* the most per product */

struct gemm_candidate {
	uint64_t algorithm[K_ALGORITHM_WORDS]; /* as in k_choice */
	size_t workspace_bytes;
};

/* The product's plan; NULL: none yet. */
struct gemm_plan *gemm_plan_find(const struct k_context *ctx, const struct k_product *product);

/* Adds a plan without an algorithm (choice.picoseconds is -1); NULL: no memory. */
struct gemm_plan *gemm_plan_create(struct k_context *ctx, const struct k_product *product);

/* Describes the call, one of the plan's, to cuBLASLt; false: cuBLASLt rejected it. */
bool gemm_plan_describe(struct gemm_plan *p, const struct gemm_call *c);

/*
 * Ends the product's plan, if there is one. The next use of the product creates another, by the
 * choice that is then in force.
 */
void gemm_plan_drop(struct k_context *ctx, const struct k_product *product);
void gemm_plan_drop_all(struct k_context *ctx);

/*
 * The number of algorithms for a described plan: the heuristic's, in its order, and, where it fits,
 * our own. All of them add split parts in fp32 or do not split. 0: none; if only our own is allowed
 * and it does not fit, the context has failed.
 */
int gemm_plan_candidates(struct k_context *ctx, const struct gemm_plan *p,
	struct gemm_candidate found[GEMM_CANDIDATES]);

/* Whether the algorithm is our own, gemm_wgmma. */
bool gemm_plan_own(const uint64_t algorithm[K_ALGORITHM_WORDS]);

/* Whether it writes a call's sums, if the plan's product has sums. */
bool gemm_plan_makes_sums(
	const struct gemm_plan *p, const uint64_t algorithm[K_ALGORITHM_WORDS]);

/*
 * Whether this device and library support the plan's choice, made elsewhere; sets the plan's
 * workspace_bytes.
 */
bool gemm_plan_holds(struct k_context *ctx, struct gemm_plan *p);

/*
 * Runs the call, one of the plan's, by this algorithm: NULL, or the reason of failure. The
 * algorithm uses workspace_bytes of workspace until the stream has run it.
 */
const char *gemm_plan_multiply(struct k_context *ctx, const struct gemm_plan *p,
	const struct gemm_candidate *by, const struct gemm_call *c, void *workspace,
	cudaStream_t stream);

#endif
