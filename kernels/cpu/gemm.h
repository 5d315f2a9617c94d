/* gemm.h: C (m,n) = alpha op(A) op(B) + beta C, row-major, by single-threaded OpenBLAS. */
#ifndef GPT2D_KERNELS_CPU_GEMM_H
#define GPT2D_KERNELS_CPU_GEMM_H

#include <cblas.h>

#include "kernels/kernels.h"

enum gemm_op { GEMM_N = CblasNoTrans, GEMM_T = CblasTrans };

struct gemm_matrix {
	const k_real *at;
	int64_t stride; /* elements from row to row in memory */
	enum gemm_op op;
};

static inline void gemm(k_real *c, int64_t c_stride, int64_t m, int64_t n, int64_t k, k_real alpha,
	struct gemm_matrix a, struct gemm_matrix b, k_real beta)
{
#ifdef K_DOUBLE
	cblas_dgemm(CblasRowMajor, (CBLAS_TRANSPOSE)a.op, (CBLAS_TRANSPOSE)b.op, (blasint)m,
		(blasint)n, (blasint)k, alpha, a.at, (blasint)a.stride, b.at, (blasint)b.stride,
		beta, c, (blasint)c_stride);
#else
	cblas_sgemm(CblasRowMajor, (CBLAS_TRANSPOSE)a.op, (CBLAS_TRANSPOSE)b.op, (blasint)m,
		(blasint)n, (blasint)k, alpha, a.at, (blasint)a.stride, b.at, (blasint)b.stride,
		beta, c, (blasint)c_stride);
#endif
}

#endif
