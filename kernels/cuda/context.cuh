/* context.cuh: the CUDA operations' view of a context, and dispatch on its dtype. */
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

/* Pinned memory that kernels write and the host reads. */
struct context_finding {
	int32_t bad_target; /* 1: the fields below are set */
	int32_t target;
	int64_t row, classes;
};

struct k_context {
	int device;
	int multiprocessors;
	int64_t shared_bytes, block_shared_bytes; /* per multiprocessor; at most per block */
	int capability;                           /* 90 for 9.0 */
	double bytes_per_second; /* of the device's memory, by its clock and width */
	enum k_dtype dtype;
	cublasLtHandle_t blas;
	struct gemm_plan *plans;  /* gemm_plan.cuh */
	struct k_choice *choices; /* gemm_choices.cuh */
	int64_t n_choices, choices_room;
	/* trials may use it between k_choices_begin and k_choices_end */
	void *lent;
	size_t lent_bytes;
	int64_t trials_took_bytes; /* the most that one took besides */
	cudaStream_t internal; /* zeroing of new memory, trials of matrix products */
	void *counters;        /* graph.cuh; so many are in use in this capture */
	int counters_given;
	struct context_finding *finding;
	pthread_mutex_t lock;
	bool no_branches;
	enum k_attention attention;
	bool own_products;
	int64_t waited_ns; /* duration of the last long wait for the device; stream_poll */
	void *tensor_map_encode; /* of the driver, once found; bulk_map.cu */
	bool failed;             /* read and set by __atomic operations */
	char error[256];
	/* of the current or last capture; its failures are its own */
	bool capturing, capture_failed;
	char capture_error[256];
	char name[256];
	char pci[32];
	char library[64];
	char choices_for[320];
};

/* Keeps the message of the first failure: of the capture during one, else the context's. */
__attribute__((format(printf, 2, 3))) void context_fail(
	struct k_context *ctx, const char *format, ...);

/* True when rc is success; else the context fails with "what: the reason". */
bool context_check(struct k_context *ctx, const char *what, cudaError_t rc);

size_t context_elem_bytes(enum k_dtype dtype);

/* The time to start a kernel, and to read or write so many elements once. */
static const double context_launch_seconds = 2e-6;
double context_pass_seconds(const struct k_context *ctx, int64_t elems);

/* Selects the context's device in the calling thread; false: the context has failed. */
bool context_ready(struct k_context *ctx);

/* Calls f with a zero of the tensors' type: context_dispatch(ctx, [&](auto zero) {...}) */
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
