#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/context.cuh"
#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/gemm_wgmma.cuh"

static cudaError_t describe(struct k_context *ctx)
{
	struct cudaDeviceProp properties;
	cudaError_t rc = cudaGetDeviceProperties(&properties, ctx->device);
	int clock_khz = 0, width_bits = 0, runtime = 0, n;

	if (rc != cudaSuccess)
		return rc;
	cudaDeviceGetAttribute(&clock_khz, cudaDevAttrMemoryClockRate, ctx->device);
	cudaDeviceGetAttribute(&width_bits, cudaDevAttrGlobalMemoryBusWidth, ctx->device);
	cudaRuntimeGetVersion(&runtime);
	ctx->multiprocessors = properties.multiProcessorCount;
	ctx->capability = 10 * properties.major + properties.minor;
	ctx->shared_bytes = (int64_t)properties.sharedMemPerMultiprocessor;
	ctx->block_shared_bytes = (int64_t)properties.sharedMemPerBlockOptin;
	ctx->bytes_per_second = 2e3 * clock_khz * width_bits / 8;
	snprintf(ctx->name, sizeof ctx->name, "%s", properties.name);
	cudaDeviceGetPCIBusId(ctx->pci, sizeof ctx->pci, ctx->device);
	snprintf(ctx->library, sizeof ctx->library, "CUDA %d.%d, cuBLASLt %zu", runtime / 1000,
		runtime % 1000 / 10, cublasLtGetVersion());
	n = snprintf(ctx->choices_for, sizeof ctx->choices_for, "%s, sm_%d, cuBLASLt %zu",
		ctx->name, ctx->capability, cublasLtGetVersion());
	if (gemm_wgmma_there(ctx))
		snprintf(ctx->choices_for + n, sizeof ctx->choices_for - (size_t)n,
			", own products %d", GEMM_WGMMA_VERSION);
	return cudaSuccess;
}

static int errno_of(cudaError_t rc)
{
	switch (rc) {
	case cudaSuccess:
		return 0;
	case cudaErrorMemoryAllocation:
		return -ENOMEM;
	case cudaErrorInvalidDevice:
	case cudaErrorNoDevice:
	case cudaErrorInsufficientDriver:
		return -ENODEV;
	default:
		return -EIO;
	}
}

/* Writes why the start failed, with the details that only CUDA knows. */
static void explain(const struct k_context_options *options, const char *what, cudaError_t rc)
{
	int driver = 0, runtime = 0, devices = 0, n;
	char *more;
	size_t left;

	if (!options->error || options->error_bytes == 0)
		return;
	n = snprintf(options->error, options->error_bytes, "%s: %s", what, cudaGetErrorString(rc));
	if (n < 0 || (size_t)n >= options->error_bytes)
		return;
	more = options->error + n;
	left = options->error_bytes - (size_t)n;
	cudaDriverGetVersion(&driver);
	cudaRuntimeGetVersion(&runtime);
	if (rc == cudaErrorInsufficientDriver && driver == 0)
		snprintf(more, left, " (no driver is found, one for CUDA %d.%d is expected)",
			runtime / 1000, runtime % 1000 / 10);
	else if (rc == cudaErrorInsufficientDriver)
		snprintf(more, left, " (the driver is for CUDA %d.%d, CUDA %d.%d is expected)",
			driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
	else if (cudaGetDeviceCount(&devices) == cudaSuccess || rc == cudaErrorNoDevice)
		snprintf(more, left, " (device %d of %d, counted from 0)", options->device,
			devices);
}

static cudaError_t start_products(struct k_context *ctx, const struct k_context_options *options)
{
	cublasStatus_t status = cublasLtCreate(&ctx->blas);

	if (status == CUBLAS_STATUS_SUCCESS)
		return cudaSuccess;
	if (options->error)
		snprintf(options->error, options->error_bytes, "cublasLtCreate: %s",
			cublasLtGetStatusString(status));
	return status == CUBLAS_STATUS_ALLOC_FAILED ? cudaErrorMemoryAllocation : cudaErrorUnknown;
}

/* *what: the call that failed; NULL: the message is already written. */
static cudaError_t start_device(
	struct k_context *ctx, const struct k_context_options *options, const char **what)
{
	cudaError_t rc;

	*what = "cudaSetDevice";
	rc = cudaSetDevice(ctx->device);
	if (rc != cudaSuccess)
		return rc;
	*what = "cudaGetDeviceProperties";
	rc = describe(ctx);
	if (rc != cudaSuccess)
		return rc;
	*what = "cudaStreamCreateWithFlags";
	rc = cudaStreamCreateWithFlags(&ctx->internal, cudaStreamNonBlocking);
	if (rc != cudaSuccess)
		return rc;
	*what = "cudaHostAlloc";
	rc = cudaHostAlloc((void **)&ctx->finding, sizeof *ctx->finding, cudaHostAllocMapped);
	if (rc != cudaSuccess)
		return rc;
	memset(ctx->finding, 0, sizeof *ctx->finding);
	*what = NULL;
	return start_products(ctx, options);
}

int k_context_create(const struct k_context_options *options, struct k_context **out)
{
	const char *what = NULL;
	struct k_context *ctx;
	cudaError_t rc;

	if (options->threads < 1 || options->threads > 1024)
		return -EINVAL;
	ctx = (struct k_context *)calloc(1, sizeof *ctx);
	if (!ctx)
		return -ENOMEM;
	pthread_mutex_init(&ctx->lock, NULL);
	ctx->device = options->device;
	ctx->dtype = K_FP32;
	ctx->no_branches = options->no_branches;
	ctx->attention = options->attention;
	ctx->own_products = options->own_products;
	rc = start_device(ctx, options, &what);
	if (rc == cudaSuccess) {
		*out = ctx;
		return 0;
	}
	if (what)
		explain(options, what, rc);
	k_context_destroy(ctx);
	return errno_of(rc);
}

void k_context_destroy(struct k_context *ctx)
{
	if (!ctx)
		return;
	cudaSetDevice(ctx->device);
	gemm_forget(ctx);
	if (ctx->blas)
		cublasLtDestroy(ctx->blas);
	if (ctx->finding)
		cudaFreeHost(ctx->finding);
	cudaFree(ctx->counters);
	if (ctx->internal)
		cudaStreamDestroy(ctx->internal);
	pthread_mutex_destroy(&ctx->lock);
	free(ctx);
}

/*
 * Measured on an H200 with CUDA 13.0 and driver 580: 531 MiB with all handles; 556 after a run,
 * with loaded kernels and a graph; 344 more with all kernels loaded at once.
 */
static int64_t context_bytes(void)
{
	const char *loading = getenv("CUDA_MODULE_LOADING");

	return (int64_t)(loading && strcmp(loading, "EAGER") == 0 ? 1024 : 640) << 20;
}

void k_context_info(const struct k_context *ctx, struct k_device_info *out)
{
	size_t free_bytes = 0, total_bytes = 0;

	cudaSetDevice(ctx->device);
	cudaMemGetInfo(&free_bytes, &total_bytes);
	out->backend = "cuda";
	out->name = ctx->name;
	out->library = ctx->library;
	out->memory_total_bytes = (int64_t)total_bytes;
	out->memory_free_bytes = (int64_t)free_bytes;
	out->context_bytes = context_bytes();
	out->graphs = true;
	out->pci = ctx->pci;
	out->visible = 0;
	cudaGetDeviceCount(&out->visible);
	out->choices = ctx->choices_for;
}
