#include "kernels/cuda/gemm_plan.cuh"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/gemm_wgmma.cuh"
#include "kernels/cuda/stream.cuh"

enum { ASKED = 16 };
static_assert(GEMM_CANDIDATES == 2 * ASKED + 1, "the library is asked twice, and ours is one more");

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(((struct k_choice *)NULL)->algorithm),
	"an algorithm of cuBLASLt is kept in its words");

static cudaDataType_t data_type(enum k_dtype dtype)
{
	if (dtype == K_BF16)
		return CUDA_R_16BF;
	return dtype == K_FP16 ? CUDA_R_16F : CUDA_R_32F;
}

template <typename T>
static void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t what, T value)
{
	cublasLtMatmulDescSetAttribute(desc, what, &value, sizeof value);
}

/* Index: enum gemm_epilogue. */
static const cublasLtEpilogue_t epilogues[] = {
	CUBLASLT_EPILOGUE_DEFAULT,
	CUBLASLT_EPILOGUE_BIAS,
	CUBLASLT_EPILOGUE_GELU_AUX,
	CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
	CUBLASLT_EPILOGUE_DGELU,
	CUBLASLT_EPILOGUE_BGRADB,
	CUBLASLT_EPILOGUE_DGELU, /* a separate pass computes the sums */
};

static void set_pointers(const struct gemm_plan *p, const void *bias, const void *aux)
{
	if (bias)
		set(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
	if (aux)
		set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
}

bool gemm_plan_describe(struct gemm_plan *p, const struct gemm_call *c)
{
	enum k_dtype dtype = (enum k_dtype)p->choice.product.dtype;
	cudaDataType_t type = data_type(dtype);
	cublasComputeType_t compute =
		dtype == K_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
	int64_t a_rows = c->transpose_a ? c->k : c->m, a_cols = c->transpose_a ? c->m : c->k;
	int64_t b_rows = c->transpose_b ? c->n : c->k, b_cols = c->transpose_b ? c->k : c->n;

	if (cublasLtMatmulDescCreate(&p->desc, compute, CUDA_R_32F) != CUBLAS_STATUS_SUCCESS ||
		cublasLtMatrixLayoutCreate(&p->a, type, (uint64_t)a_rows, (uint64_t)a_cols,
			a_rows) != CUBLAS_STATUS_SUCCESS ||
		cublasLtMatrixLayoutCreate(&p->b, type, (uint64_t)b_rows, (uint64_t)b_cols,
			b_rows) != CUBLAS_STATUS_SUCCESS ||
		cublasLtMatrixLayoutCreate(&p->d, type, (uint64_t)c->m, (uint64_t)c->n, c->m) !=
			CUBLAS_STATUS_SUCCESS)
		return false;
	set(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, c->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
	set(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, c->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
	set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogues[c->epilogue]);
	if (c->aux)
		set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, c->m);
	set_pointers(p, c->bias, c->aux);
	return true;
}

/* The algorithm that means gemm_wgmma: none of cuBLASLt's begins so. */
static const uint64_t own_algorithm[K_ALGORITHM_WORDS] = {UINT64_MAX, GEMM_WGMMA_VERSION};

bool gemm_plan_own(const uint64_t algorithm[K_ALGORITHM_WORDS])
{
	return memcmp(algorithm, own_algorithm, sizeof own_algorithm) == 0;
}

bool gemm_plan_makes_sums(
	const struct gemm_plan *p, const uint64_t algorithm[K_ALGORITHM_WORDS])
{
	return p->choice.product.epilogue == GEMM_DGELU_SUMS && gemm_plan_own(algorithm);
}

/* Adds the heuristic's results for this workspace size to found[0..n), without duplicates. */
static int add_candidates(struct k_context *ctx, const struct gemm_plan *p, size_t workspace,
	struct gemm_candidate found[GEMM_CANDIDATES], int n)
{
	uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
	const uint32_t *align = p->choice.product.align;
	cublasLtMatmulHeuristicResult_t named[ASKED];
	cublasLtMatmulPreference_t prefer;
	int n_named = 0;

	if (cublasLtMatmulPreferenceCreate(&prefer) != CUBLAS_STATUS_SUCCESS)
		return n;
	cublasLtMatmulPreferenceSetAttribute(
		prefer, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
	cublasLtMatmulPreferenceSetAttribute(
		prefer, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
	cublasLtMatmulPreferenceSetAttribute(
		prefer, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align[0], sizeof align[0]);
	cublasLtMatmulPreferenceSetAttribute(
		prefer, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align[1], sizeof align[1]);
	cublasLtMatmulPreferenceSetAttribute(
		prefer, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align[2], sizeof align[2]);
	cublasLtMatmulPreferenceSetAttribute(
		prefer, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align[2], sizeof align[2]);
	if (cublasLtMatmulAlgoGetHeuristic(ctx->blas, p->desc, p->a, p->b, p->d, p->d, prefer,
		    ASKED, named, &n_named) != CUBLAS_STATUS_SUCCESS)
		n_named = 0;
	cublasLtMatmulPreferenceDestroy(prefer);
	for (int i = 0; i < n_named && n < GEMM_CANDIDATES; i++) {
		bool known = false;

		for (int j = 0; j < n; j++)
			known = known ||
				memcmp(found[j].algorithm, &named[i].algo, sizeof named[i].algo) ==
					0;
		if (known)
			continue;
		memcpy(found[n].algorithm, &named[i].algo, sizeof named[i].algo);
		found[n++].workspace_bytes = named[i].workspaceSize;
	}
	return n;
}

/*
 * The heuristic returns eight at a time. Algorithms without workspace may be missing among them,
 * and in a graph they are cheaper: the others need a node that zeroes a part of their workspace.
 */
int gemm_plan_candidates(struct k_context *ctx, const struct gemm_plan *p,
	struct gemm_candidate found[GEMM_CANDIDATES])
{
	const struct k_product *product = &p->choice.product;
	bool kind = gemm_wgmma_kind(product), alone = kind && gemm_wgmma_alone(ctx, product);
	bool fits = (!kind || alone) && gemm_wgmma_fits(ctx, product);
	int n = 0;

	if (!alone) {
		n = add_candidates(ctx, p, STREAM_WORKSPACE_BYTES, found, n);
		n = add_candidates(ctx, p, 0, found, n);
	} else if (!fits) {
		context_fail(ctx, "matrix product: not by own kernels for %lld x %lld x %lld",
			(long long)product->m, (long long)product->n, (long long)product->k);
	}
	if (fits) {
		memcpy(found[n].algorithm, own_algorithm, sizeof own_algorithm);
		found[n++].workspace_bytes = 0;
	}
	return n;
}

static cublasLtMatmulAlgo_t library_algorithm(const uint64_t algorithm[K_ALGORITHM_WORDS])
{
	cublasLtMatmulAlgo_t algo;

	memcpy(&algo, algorithm, sizeof algo);
	return algo;
}

const char *gemm_plan_multiply(struct k_context *ctx, const struct gemm_plan *p,
	const struct gemm_candidate *by, const struct gemm_call *c, void *workspace,
	cudaStream_t stream)
{
	cublasLtMatmulAlgo_t algo = library_algorithm(by->algorithm);
	float alpha = 1, beta = c->add ? 1 : 0;
	cublasStatus_t rc;

	if (gemm_plan_own(by->algorithm))
		return gemm_wgmma_launch(ctx, c, stream);
	set_pointers(p, c->bias, c->aux);
	rc = cublasLtMatmul(ctx->blas, p->desc, &alpha, c->a, p->a, c->b, p->b, &beta, c->d, p->d,
		c->d, p->d, &algo, workspace, by->workspace_bytes, stream);
	return rc == CUBLAS_STATUS_SUCCESS ? NULL : cublasLtGetStatusString(rc);
}

bool gemm_plan_holds(struct k_context *ctx, struct gemm_plan *p)
{
	cublasLtMatmulAlgo_t algo = library_algorithm(p->choice.algorithm);
	cublasLtMatmulHeuristicResult_t needs;
	bool alone;

	if (p->choice.picoseconds < 0)
		return true;
	alone = gemm_wgmma_kind(&p->choice.product) && gemm_wgmma_alone(ctx, &p->choice.product);
	if (alone != gemm_plan_own(p->choice.algorithm))
		return false;
	if (alone)
		return gemm_wgmma_fits(ctx, &p->choice.product);
	if (cublasLtMatmulAlgoCheck(ctx->blas, p->desc, p->a, p->b, p->d, p->d, &algo, &needs) !=
			CUBLAS_STATUS_SUCCESS ||
		needs.workspaceSize > STREAM_WORKSPACE_BYTES)
		return false;
	p->workspace_bytes = needs.workspaceSize;
	return true;
}

struct gemm_plan *gemm_plan_find(const struct k_context *ctx, const struct k_product *product)
{
	for (struct gemm_plan *p = ctx->plans; p; p = p->next) {
		if (memcmp(&p->choice.product, product, sizeof *product) == 0)
			return p;
	}
	return NULL;
}

struct gemm_plan *gemm_plan_create(struct k_context *ctx, const struct k_product *product)
{
	struct gemm_plan *p = (struct gemm_plan *)calloc(1, sizeof *p);

	if (!p)
		return NULL;
	p->choice.product = *product;
	p->choice.picoseconds = -1;
	p->next = ctx->plans;
	ctx->plans = p;
	return p;
}

static void free_plan(struct gemm_plan *p)
{
	if (p->desc)
		cublasLtMatmulDescDestroy(p->desc);
	if (p->a)
		cublasLtMatrixLayoutDestroy(p->a);
	if (p->b)
		cublasLtMatrixLayoutDestroy(p->b);
	if (p->d)
		cublasLtMatrixLayoutDestroy(p->d);
	free(p);
}

void gemm_plan_drop(struct k_context *ctx, const struct k_product *product)
{
	for (struct gemm_plan **at = &ctx->plans; *at; at = &(*at)->next) {
		struct gemm_plan *p = *at;

		if (memcmp(&p->choice.product, product, sizeof *product) != 0)
			continue;
		*at = p->next;
		free_plan(p);
		return;
	}
}

void gemm_plan_drop_all(struct k_context *ctx)
{
	while (ctx->plans) {
		struct gemm_plan *p = ctx->plans;

		ctx->plans = p->next;
		free_plan(p);
	}
}
