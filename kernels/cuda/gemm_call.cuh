/* gemm_call.cuh: one matrix product, in cuBLASLt's column-major terms. */
#ifndef GPT2D_KERNELS_CUDA_GEMM_CALL_CUH
#define GPT2D_KERNELS_CUDA_GEMM_CALL_CUH

#include <stdbool.h>
#include <stdint.h>

/* Fused operations. */
enum gemm_epilogue {
	GEMM_PLAIN,
	GEMM_BIAS,      /* bias (m) is added to each column */
	GEMM_GELU,      /* d = GELU, tanh form, of the product; aux (m,n): gemm_wgmma_alone */
	GEMM_GELU_BIAS, /* both */
	GEMM_DGELU,     /* times the derivative of GELU, from aux (m,n) */
	GEMM_SUM_B,     /* bias (n) = sums of b over k */
	GEMM_DGELU_SUMS /* GEMM_DGELU, and the sums of gemm_sum_parts */
};

struct gemm_call {
	bool transpose_a, transpose_b;
	int64_t m, n, k;
	const void *a, *b; /* op(a) is (m,k), op(b) is (k,n) */
	void *d;           /* (m,n) */
	bool add;          /* to d's content */
	enum gemm_epilogue epilogue;
	void *bias, *aux;
	float *sums; /* of GEMM_DGELU_SUMS; gemm_sum_parts */
};

#endif
