#include "kernels/cuda/context.cuh"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

void context_fail(struct k_context *ctx, const char *format, ...)
{
	va_list args;

	pthread_mutex_lock(&ctx->lock);
	if (ctx->capturing) {
		if (!ctx->capture_failed) {
			va_start(args, format);
			vsnprintf(ctx->capture_error, sizeof ctx->capture_error, format, args);
			va_end(args);
			ctx->capture_failed = true;
		}
	} else if (!__atomic_load_n(&ctx->failed, __ATOMIC_ACQUIRE)) {
		va_start(args, format);
		vsnprintf(ctx->error, sizeof ctx->error, format, args);
		va_end(args);
		__atomic_store_n(&ctx->failed, true, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&ctx->lock);
}

bool context_check(struct k_context *ctx, const char *what, cudaError_t rc)
{
	if (rc == cudaSuccess)
		return true;
	context_fail(ctx, "%s: %s", what, cudaGetErrorString(rc));
	return false;
}

static void read_finding(struct k_context *ctx)
{
	struct context_finding *f = ctx->finding;

	if (__atomic_load_n(&f->bad_target, __ATOMIC_ACQUIRE) == 0)
		return;
	context_fail(ctx, "k_cross_entropy: target %d in row %lld, 0..%lld expected", f->target,
		(long long)f->row, (long long)f->classes - 1);
}

bool context_ready(struct k_context *ctx)
{
	read_finding(ctx);
	return !__atomic_load_n(&ctx->failed, __ATOMIC_ACQUIRE) &&
		context_check(ctx, "cudaSetDevice", cudaSetDevice(ctx->device));
}

void k_context_set_threads(struct k_context *ctx, int threads)
{
}

int k_context_set_dtype(struct k_context *ctx, enum k_dtype dtype)
{
	bool has = dtype == K_FP32 || dtype == K_FP16 ||
		((dtype == K_TF32 || dtype == K_BF16) && ctx->capability >= 80);

	if (!has)
		return -ENOTSUP;
	ctx->dtype = dtype;
	return 0;
}

enum k_dtype k_context_dtype(const struct k_context *ctx)
{
	return ctx->dtype;
}

size_t context_elem_bytes(enum k_dtype dtype)
{
	return dtype == K_BF16 || dtype == K_FP16 ? 2 : 4;
}

size_t k_elem_bytes(const struct k_context *ctx)
{
	return context_elem_bytes(ctx->dtype);
}

double context_pass_seconds(const struct k_context *ctx, int64_t elems)
{
	const double of_peak = 0.85;

	return (double)elems * (double)k_elem_bytes(ctx) / (of_peak * ctx->bytes_per_second) +
		context_launch_seconds;
}

const char *k_context_error(const struct k_context *ctx)
{
	read_finding((struct k_context *)ctx);
	return __atomic_load_n(&ctx->failed, __ATOMIC_ACQUIRE) ? ctx->error : NULL;
}
