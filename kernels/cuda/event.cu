#include <errno.h>
#include <stdlib.h>

#include "kernels/cuda/stream.cuh"

/*
 * Two events: inside a capture, one makes the dependency between streams and the other becomes a
 * graph node that code outside can time and wait for; one event cannot do both.
 */
struct k_event {
	struct k_context *ctx;
	cudaEvent_t order, time;
	unsigned long long capture; /* that had the last record; 0: none */
};

int k_event_create(struct k_context *ctx, struct k_event **out)
{
	struct k_event *e = (struct k_event *)calloc(1, sizeof *e);
	cudaError_t rc;

	if (!e)
		return -ENOMEM;
	e->ctx = ctx;
	cudaSetDevice(ctx->device);
	rc = cudaEventCreateWithFlags(&e->order, cudaEventDisableTiming);
	if (rc == cudaSuccess)
		rc = cudaEventCreate(&e->time);
	if (!context_check(ctx, "k_event_create", rc)) {
		k_event_destroy(e);
		return -EIO;
	}
	*out = e;
	return 0;
}

void k_event_destroy(struct k_event *e)
{
	if (!e)
		return;
	cudaSetDevice(e->ctx->device);
	if (e->order)
		cudaEventDestroy(e->order);
	if (e->time)
		cudaEventDestroy(e->time);
	free(e);
}

void k_event_record(struct k_event *e, struct k_stream *s)
{
	cudaError_t rc;

	cudaSetDevice(s->ctx->device);
	e->capture = stream_capture(s);
	rc = cudaEventRecordWithFlags(
		e->time, s->cuda, e->capture ? cudaEventRecordExternal : cudaEventRecordDefault);
	if (rc == cudaSuccess)
		rc = cudaEventRecord(e->order, s->cuda);
	context_check(s->ctx, "k_event_record", rc);
}

void k_stream_wait(struct k_stream *s, struct k_event *e)
{
	unsigned long long capture;
	cudaError_t rc;

	cudaSetDevice(s->ctx->device);
	capture = stream_capture(s);
	if (capture != 0 && capture != e->capture)
		rc = cudaStreamWaitEvent(s->cuda, e->time, cudaEventWaitExternal);
	else
		rc = cudaStreamWaitEvent(s->cuda, e->order, cudaEventWaitDefault);
	context_check(s->ctx, "k_stream_wait", rc);
}

static cudaError_t event_done(void *what)
{
	return cudaEventQuery(((struct k_event *)what)->time);
}

int k_event_sync(struct k_event *e, int64_t timeout_ns)
{
	return stream_poll(e->ctx, "k_event_sync", event_done, e, timeout_ns);
}

int64_t k_event_elapsed_ns(const struct k_event *from, const struct k_event *to)
{
	float ms = 0;

	cudaSetDevice(from->ctx->device);
	context_check(
		from->ctx, "k_event_elapsed_ns", cudaEventElapsedTime(&ms, from->time, to->time));
	return (int64_t)((double)ms * 1e6);
}
