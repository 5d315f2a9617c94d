/* context.cuh: what the CUDA operations see of a context, and the choice of a type by its dtype. */
#ifndef GPT2D_KERNELS_CUDA_CONTEXT_CUH
#define GPT2D_KERNELS_CUDA_CONTEXT_CUH

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include "kernels/kernels.h"
}

struct gemm_plan;

/* Written by kernels, read by the host: pinned memory that both see. */
struct context_finding {
	int32_t bad_target; /* 1: the fields below are set */
	int32_t target;
	int64_t row, classes;
};

struct k_context {
	int device;
	int multiprocessors;
	int64_t shared_bytes, block_shared_bytes; /* of a multiprocessor; most of a block */
	int capability;                           /* 90 for 9.0 */
	double bytes_per_second; /* of the device's memory, by its clock and width */
	enum k_dtype dtype;
	cublasLtHandle_t blas;
	struct gemm_plan *plans;  /* gemm_plan.cuh */
	struct k_choice *choices; /* gemm_choices.cuh */
	int64_t n_choices, choices_room;
	/* what trials may use, between k_choices_begin and k_choices_end */
	void *lent;
	size_t lent_bytes;
	int64_t trials_took_bytes; /* the most that one took beside it */
	cudaStream_t internal; /* zeroing of new memory, trials of matrix products */
	void *counters;        /* graph.cuh; of them so many are given away in this capture */
	int counters_given;
	struct context_finding *finding;
	pthread_mutex_t lock;
	bool no_branches;
	enum k_attention attention;
	bool own_products;
	int64_t waited_ns; /* for the device, the last time that it took long; stream_poll */
	void *tensor_map_encode; /* of the driver, once found; bulk_map.cu */
	bool failed;             /* read and set by __atomic operations */
	char error[256];
	/* of the capture under way or the last one; failures during it are its own */
	bool capturing, capture_failed;
	char capture_error[256];
	char name[256];
	char pci[32];
	char library[64];
	char choices_for[320];
};

/* Keep this message if it is the context's first failure; or, while it captures, the capture's. */
__attribute__((format(printf, 2, 3))) void context_fail(
	struct k_context *ctx, const char *format, ...);

/* True when rc is success; else the context fails with "what: the reason". */
bool context_check(struct k_context *ctx, const char *what, cudaError_t rc);

size_t context_elem_bytes(enum k_dtype dtype);

/* What a kernel takes to start, and one that reads or writes so many elements once. */
static const double context_launch_seconds = 2e-6;
double context_pass_seconds(const struct k_context *ctx, int64_t elems);

/* The context's device becomes that of the calling thread; false once the context has failed. */
bool context_ready(struct k_context *ctx);

/* Calls f with a zero of the type that tensors have: context_dispatch(ctx, [&](auto zero) {...}) */
template <typename F> static void context_dispatch(const struct k_context *ctx, F f)
{
	if (ctx->dtype == K_BF16)
		f(__nv_bfloat16());
	else if (ctx->dtype == K_FP16)
		f(__half());
	else
		f(float());
}

#endif
