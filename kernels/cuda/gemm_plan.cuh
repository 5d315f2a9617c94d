/*
 * gemm_plan.cuh: what a matrix product is run by, and the product itself, by an algorithm of
 * cuBLASLt or by gemm_wgmma. A context has one plan per product, in a list that it owns.
 */
#ifndef GPT2D_KERNELS_CUDA_GEMM_PLAN_CUH
#define GPT2D_KERNELS_CUDA_GEMM_PLAN_CUH

#include "kernels/cuda/context.cuh"
#include "kernels/cuda/gemm_call.cuh"

/* Bytes, of what pointers are told apart by: any further alignment makes no other product. */
enum { GEMM_ALIGNMENT_MAX = 256 };

/* A choice, and what cuBLASLt needs to act by it. */
struct gemm_plan {
	struct gemm_plan *next;
	struct k_choice choice;
	size_t workspace_bytes; /* that the algorithm takes */
	cublasLtMatmulDesc_t desc;
	cublasLtMatrixLayout_t a, b, d;
};

enum { GEMM_CANDIDATES = 33 }; /* the most that a product has */

struct gemm_candidate {
	uint64_t algorithm[K_ALGORITHM_WORDS]; /* as in k_choice */
	size_t workspace_bytes;
};

/* The product's plan; NULL: there is none yet. */
struct gemm_plan *gemm_plan_find(const struct k_context *ctx, const struct k_product *product);

/* One more, which has no algorithm yet (choice.picoseconds is -1); NULL: no memory. */
struct gemm_plan *gemm_plan_create(struct k_context *ctx, const struct k_product *product);

/* Tells cuBLASLt of the call, which is one of the plan's; false: it did not take it. */
bool gemm_plan_describe(struct gemm_plan *p, const struct gemm_call *c);

/*
 * The product's plan, if there is one, ends: it is made anew, by the choice that is then in force,
 * when the product is next asked for.
 */
void gemm_plan_drop(struct k_context *ctx, const struct k_product *product);
void gemm_plan_drop_all(struct k_context *ctx);

/*
 * How many algorithms there are for a described plan: those that the library's heuristic names, its
 * first first, and, where it fits, our own. Only such as add their parts in fp32 or not at all. 0:
 * none; the context has failed where it was to be our own and that does not fit.
 */
int gemm_plan_candidates(struct k_context *ctx, const struct gemm_plan *p,
	struct gemm_candidate found[GEMM_CANDIDATES]);

/* Whether the algorithm is our own, gemm_wgmma. */
bool gemm_plan_own(const uint64_t algorithm[K_ALGORITHM_WORDS]);

/* Whether it writes a call's sums, where the plan's product has such. */
bool gemm_plan_makes_sums(
	const struct gemm_plan *p, const uint64_t algorithm[K_ALGORITHM_WORDS]);

/*
 * Whether this device and library can act by the plan's choice, which was made elsewhere; sets the
 * plan's workspace_bytes.
 */
bool gemm_plan_holds(struct k_context *ctx, struct gemm_plan *p);

/*
 * The call, which is one of the plan's, by this algorithm: NULL, or why not. Of workspace the
 * algorithm takes its workspace_bytes until the stream is through with it.
 */
const char *gemm_plan_multiply(struct k_context *ctx, const struct gemm_plan *p,
	const struct gemm_candidate *by, const struct gemm_call *c, void *workspace,
	cudaStream_t stream);

#endif
