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
	GEMM_GELU,      /* d = GELU, tanh form, of the product; aux (m,n): gemm_wgmma_alone */
	GEMM_GELU_BIAS, /* both */
	GEMM_DGELU,     /* times the derivative of GELU that aux (m,n) says */
	GEMM_SUM_B,     /* bias (n) = sums of b over k */
	GEMM_DGELU_SUMS /* GEMM_DGELU, and what gemm_sum_parts says */
};

struct gemm_call {
	bool transpose_a, transpose_b;
	int64_t m, n, k;
	const void *a, *b; /* op(a) is (m,k), op(b) is (k,n) */
	void *d;           /* (m,n) */
	bool add;          /* to what d holds */
	enum gemm_epilogue epilogue;
	void *bias, *aux;
	float *sums; /* of GEMM_DGELU_SUMS; gemm_sum_parts */
};

/* What the chosen algorithm takes; infinite when there is none for this call. */
double gemm_seconds(struct k_stream *s, const struct gemm_call *call);

/*
 * Of GEMM_DGELU_SUMS: the chosen algorithm writes so many rows to sums (parts,m), each the sums
 * over some of n of d as it is rounded, so that together they are those over all; 0: it makes none.
 */
int64_t gemm_sum_parts(struct k_stream *s, const struct gemm_call *call);

/* The most there are, of 16 bits, for such an n on this device. */
int64_t gemm_sum_parts_max(const struct k_context *ctx, int64_t n);

/* The context fails, under this name, when there is no algorithm. */
void gemm_run(struct k_stream *s, const char *name, const struct gemm_call *call);

/* Frees what was remembered. */
void gemm_forget(struct k_context *ctx);

#endif
