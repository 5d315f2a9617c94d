#include "kernels/cuda/stream.cuh"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

static const int64_t spin_ns = 200000, nap_ns = 20000;

bool stream_ready(struct k_stream *s)
{
	return context_ready(s->ctx);
}

void stream_check(struct k_stream *s, const char *name)
{
	context_check(s->ctx, name, cudaGetLastError());
}

void *stream_scratch_try(struct k_stream *s, size_t bytes)
{
	size_t wanted = bytes > 2 * s->scratch_bytes ? bytes : 2 * s->scratch_bytes;
	void *memory;

	if (bytes <= s->scratch_bytes)
		return s->scratch[s->scratches - 1];
	if (s->scratches == STREAM_BLOCKS_MAX)
		return NULL;
	if (cudaMalloc(&memory, wanted) != cudaSuccess) {
		cudaGetLastError(); /* it is told by the result */
		return NULL;
	}
	s->scratch[s->scratches++] = memory;
	s->scratch_bytes = wanted;
	return memory;
}

void *stream_scratch(struct k_stream *s, size_t bytes)
{
	void *memory = stream_scratch_try(s, bytes);

	if (!memory)
		context_check(s->ctx, "memory for intermediate results", cudaErrorMemoryAllocation);
	return memory;
}

void *stream_workspace(struct k_stream *s)
{
	if (!s->workspace)
		context_check(s->ctx, "memory for matrix products",
			cudaMalloc(&s->workspace, STREAM_WORKSPACE_BYTES));
	return s->workspace;
}

unsigned long long stream_capture(struct k_stream *s)
{
	cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
	unsigned long long id = 0;

	if (cudaStreamGetCaptureInfo(s->cuda, &status, &id) != cudaSuccess ||
		status != cudaStreamCaptureStatusActive)
		return 0;
	return id;
}

static bool make_branch(struct k_stream *s)
{
	if (s->branch)
		return true;
	return context_check(s->ctx, "stream_fork",
		       cudaEventCreateWithFlags(&s->parting, cudaEventDisableTiming)) &&
		context_check(s->ctx, "stream_fork",
			cudaEventCreateWithFlags(&s->meeting, cudaEventDisableTiming)) &&
		k_stream_create(s->ctx, K_STREAM_COMPUTE, "branch", &s->branch) == 0;
}

static void follow(struct k_stream *s, struct k_stream *first, cudaEvent_t event, const char *name)
{
	if (context_check(s->ctx, name, cudaEventRecord(event, first->cuda)))
		context_check(s->ctx, name, cudaStreamWaitEvent(s->cuda, event, 0));
}

struct k_stream *stream_fork(struct k_stream *s)
{
	if (s->ctx->no_branches || !stream_capture(s) || !make_branch(s))
		return s;
	follow(s->branch, s, s->parting, "stream_fork");
	return s->branch;
}

void stream_join(struct k_stream *s, struct k_stream *branch)
{
	if (branch != s)
		follow(s, branch, s->meeting, "stream_join");
}

int k_stream_create(
	struct k_context *ctx, enum k_stream_kind kind, const char *name, struct k_stream **out)
{
	struct k_stream *s = (struct k_stream *)calloc(1, sizeof *s);
	int least = 0, greatest = 0;

	if (!s)
		return -ENOMEM;
	s->ctx = ctx;
	cudaSetDevice(ctx->device);
	cudaDeviceGetStreamPriorityRange(&least, &greatest);
	if (!context_check(ctx, "k_stream_create",
		    cudaStreamCreateWithPriority(&s->cuda, cudaStreamNonBlocking,
			    kind == K_STREAM_COMM ? greatest : least))) {
		free(s);
		return -EIO;
	}
	*out = s;
	return 0;
}

void k_stream_destroy(struct k_stream *s)
{
	if (!s)
		return;
	cudaSetDevice(s->ctx->device);
	cudaStreamSynchronize(s->cuda);
	cudaStreamDestroy(s->cuda);
	for (int i = 0; i < s->scratches; i++)
		cudaFree(s->scratch[i]);
	cudaFree(s->workspace);
	if (s->parting)
		cudaEventDestroy(s->parting);
	if (s->meeting)
		cudaEventDestroy(s->meeting);
	k_stream_destroy(s->branch);
	free(s);
}

void *k_stream_native(struct k_stream *s)
{
	cudaSetDevice(s->ctx->device);
	return s->cuda;
}

/* A stream that takes nothing more has run all it ever will: fn is then called here. */
void k_stream_host(struct k_stream *s, void (*fn)(void *arg), void *arg)
{
	cudaError_t rc;

	cudaSetDevice(s->ctx->device);
	rc = cudaLaunchHostFunc(s->cuda, fn, arg);
	if (!context_check(s->ctx, "k_stream_host", rc))
		fn(arg);
}

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int stream_poll(struct k_context *ctx, const char *name, cudaError_t (*done)(void *what),
	void *what, int64_t timeout_ns)
{
	const struct timespec nap = {0, nap_ns};
	int64_t start = now_ns();
	cudaError_t rc;

	cudaSetDevice(ctx->device);
	while ((rc = done(what)) == cudaErrorNotReady) {
		int64_t waited = now_ns() - start;

		if (waited >= timeout_ns)
			return -ETIMEDOUT;
		if (waited > spin_ns)
			nanosleep(&nap, NULL);
	}
	context_check(ctx, name, rc);
	return k_context_error(ctx) ? -EIO : 0;
}

static cudaError_t stream_done(void *what)
{
	return cudaStreamQuery(((struct k_stream *)what)->cuda);
}

int k_stream_sync(struct k_stream *s, int64_t timeout_ns)
{
	return stream_poll(s->ctx, "k_stream_sync", stream_done, s, timeout_ns);
}
