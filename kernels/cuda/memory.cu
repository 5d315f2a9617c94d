#include <string.h>

#include "kernels/cuda/stream.cuh"

void *k_alloc(struct k_context *ctx, size_t bytes)
{
	size_t some = bytes ? bytes : 1;
	void *memory = NULL;

	cudaSetDevice(ctx->device);
	if (cudaMalloc(&memory, some) != cudaSuccess) {
		cudaGetLastError(); /* not there is an answer, not a failure */
		return NULL;
	}
	context_check(ctx, "k_alloc", cudaMemsetAsync(memory, 0, some, ctx->internal));
	stream_rest(ctx, "k_alloc", stream_done, ctx->internal);
	return memory;
}

void k_free(struct k_context *ctx, void *memory)
{
	cudaSetDevice(ctx->device);
	context_check(ctx, "k_free", cudaFree(memory));
}

void *k_alloc_host(struct k_context *ctx, size_t bytes)
{
	size_t some = bytes ? bytes : 1;
	void *memory = NULL;

	cudaSetDevice(ctx->device);
	if (cudaHostAlloc(&memory, some, cudaHostAllocDefault) != cudaSuccess) {
		cudaGetLastError();
		return NULL;
	}
	return memset(memory, 0, some);
}

void k_free_host(struct k_context *ctx, void *memory)
{
	cudaSetDevice(ctx->device);
	context_check(ctx, "k_free_host", cudaFreeHost(memory));
}

static void copy(struct k_stream *s, const char *name, void *dst, const void *src, size_t bytes,
	enum cudaMemcpyKind kind)
{
	if (bytes > 0 && stream_ready(s))
		context_check(s->ctx, name, cudaMemcpyAsync(dst, src, bytes, kind, s->cuda));
}

void k_copy_in(struct k_stream *s, void *device, const void *host, size_t bytes)
{
	copy(s, "k_copy_in", device, host, bytes, cudaMemcpyHostToDevice);
}

void k_copy_out(struct k_stream *s, void *host, const void *device, size_t bytes)
{
	copy(s, "k_copy_out", host, device, bytes, cudaMemcpyDeviceToHost);
}

void k_copy(struct k_stream *s, void *dst, const void *src, size_t bytes)
{
	copy(s, "k_copy", dst, src, bytes, cudaMemcpyDeviceToDevice);
}

void k_zero(struct k_stream *s, void *device, size_t bytes)
{
	if (bytes > 0 && stream_ready(s))
		context_check(s->ctx, "k_zero", cudaMemsetAsync(device, 0, bytes, s->cuda));
}

void k_zero_rows(
	struct k_stream *s, void *device, size_t bytes, size_t stride_bytes, int64_t rows)
{
	if (bytes == 0 || rows <= 0 || !stream_ready(s))
		return;
	context_check(s->ctx, "k_zero_rows",
		cudaMemset2DAsync(device, rows > 1 ? stride_bytes : bytes, 0, bytes, (size_t)rows,
			s->cuda));
}
