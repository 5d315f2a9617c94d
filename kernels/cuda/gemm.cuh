/*
 * gemm.cuh: matrix products by cuBLASLt, in its column-major terms, or by gemm_wgmma. The algorithm
 * for a shape is chosen once per context, by timing (gemm_trial.cuh), unless k_choices_set told one
 * by which this device and library can act.
 */
#ifndef GPT2D_KERNELS_CUDA_GEMM_CUH
#define GPT2D_KERNELS_CUDA_GEMM_CUH

#include "kernels/cuda/stream.cuh"

/* What is done beside the product. */
enum gemm_epilogue {
	GEMM_PLAIN,
	GEMM_BIAS,      /* bias (m) is added to each column */
	GEMM_GELU,      /* aux (m,n) = the product, d = its GELU, tanh form */
	GEMM_GELU_BIAS, /* both */
	GEMM_DGELU,     /* times the derivative of GELU at aux (m,n) */
	GEMM_SUM_B      /* bias (n) = sums of b over k */
};

struct gemm_call {
	bool transpose_a, transpose_b;
	int64_t m, n, k;
	const void *a, *b; /* op(a) is (m,k), op(b) is (k,n) */
	void *d;           /* (m,n) */
	bool add;          /* to what d holds */
	enum gemm_epilogue epilogue;
	void *bias, *aux;
};

/* What the chosen algorithm takes; infinite when there is none for this call. */
double gemm_seconds(struct k_stream *s, const struct gemm_call *call);

/* The context fails, under this name, when there is no algorithm. */
void gemm_run(struct k_stream *s, const char *name, const struct gemm_call *call);

/* Frees what was remembered. */
void gemm_forget(struct k_context *ctx);

#endif
