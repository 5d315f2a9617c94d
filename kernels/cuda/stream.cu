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

void *stream_scratch(struct k_stream *s, size_t bytes)
{
	size_t wanted = bytes > 2 * s->scratch_bytes ? bytes : 2 * s->scratch_bytes;
	cudaError_t rc = cudaErrorMemoryAllocation;
	void *memory;

	if (bytes <= s->scratch_bytes)
		return s->scratch[s->scratches - 1];
	if (s->scratches < STREAM_BLOCKS_MAX)
		rc = cudaMalloc(&memory, wanted);
	if (rc != cudaSuccess) {
		cudaGetLastError(); /* the context keeps it */
		context_fail(s->ctx, "memory for intermediate results: %zu bytes: %s", wanted,
			cudaGetErrorString(rc));
		return NULL;
	}
	s->scratch[s->scratches++] = memory;
	s->scratch_bytes = wanted;
	s->grown++;
	return memory;
}

static bool make_event(struct k_stream *s, cudaEvent_t *event)
{
	return *event ||
		context_check(s->ctx, "k_stream_fork",
			cudaEventCreateWithFlags(event, cudaEventDisableTiming));
}

static bool grow_part(struct k_stream *s, struct stream_part *part, size_t bytes)
{
	void *memory;

	if (part->memory && s->outgrowns == STREAM_BLOCKS_MAX) {
		context_fail(s->ctx, "memory for partial results: it has grown too often");
		return false;
	}
	if (!context_check(s->ctx, "memory for partial results", cudaMalloc(&memory, 2 * bytes)))
		return false;
	if (part->memory)
		s->outgrown[s->outgrowns++] = part->memory;
	part->memory = memory;
	part->bytes = 2 * bytes;
	s->grown++;
	return true;
}

struct stream_part *stream_part(struct k_stream *s, size_t bytes)
{
	struct stream_part *part = &s->parts[s->next_part];

	s->next_part = (s->next_part + 1) % STREAM_PARTS;
	if (part->capture && part->capture == stream_capture(s) &&
		!context_check(s->ctx, "stream_part", cudaStreamWaitEvent(s->cuda, part->done, 0)))
		return NULL;
	part->capture = 0;
	return part->bytes >= bytes || grow_part(s, part, bytes) ? part : NULL;
}

void stream_part_given(struct k_stream *s, struct stream_part *part, struct k_stream *branch)
{
	if (branch == s)
		return;
	if (make_event(s, &part->done) &&
		context_check(s->ctx, "stream_part", cudaEventRecord(part->done, branch->cuda)))
		part->capture = stream_capture(s);
}

void *stream_workspace(struct k_stream *s)
{
	if (!s->workspace &&
		context_check(s->ctx, "memory for matrix products",
			cudaMalloc(&s->workspace, STREAM_WORKSPACE_BYTES)))
		s->grown++;
	return s->workspace;
}

/* ---- taken in advance ---- */

static void free_scratch(struct k_stream *s)
{
	while (s->scratches > 0)
		cudaFree(s->scratch[--s->scratches]);
	s->scratch_bytes = 0;
}

static void free_parts(struct k_stream *s)
{
	while (s->outgrowns > 0)
		cudaFree(s->outgrown[--s->outgrowns]);
	for (int i = 0; i < STREAM_PARTS; i++) {
		cudaFree(s->parts[i].memory);
		s->parts[i].memory = NULL;
		s->parts[i].bytes = 0;
		s->parts[i].capture = 0;
	}
}

static cudaError_t reserve_products(struct k_stream *s, size_t bytes)
{
	if (bytes > 0 && !s->workspace)
		return cudaMalloc(&s->workspace, STREAM_WORKSPACE_BYTES);
	if (bytes == 0) {
		cudaFree(s->workspace);
		s->workspace = NULL;
	}
	return cudaSuccess;
}

static cudaError_t reserve_operation(struct k_stream *s, size_t bytes)
{
	cudaError_t rc;

	if (bytes > 0 && bytes <= s->scratch_bytes)
		return cudaSuccess;
	free_scratch(s);
	if (bytes == 0)
		return cudaSuccess;
	rc = cudaMalloc(&s->scratch[0], bytes);
	if (rc != cudaSuccess)
		return rc;
	s->scratches = 1;
	s->scratch_bytes = bytes;
	return cudaSuccess;
}

static cudaError_t reserve_parts(struct k_stream *s, size_t bytes)
{
	size_t each = bytes / STREAM_PARTS;
	cudaError_t rc = cudaSuccess;
	bool enough = bytes > 0;

	for (int i = 0; i < STREAM_PARTS; i++)
		enough = enough && s->parts[i].bytes >= each;
	if (enough)
		return cudaSuccess;
	free_parts(s);
	for (int i = 0; i < STREAM_PARTS && bytes > 0 && rc == cudaSuccess; i++) {
		rc = cudaMalloc(&s->parts[i].memory, each);
		if (rc == cudaSuccess)
			s->parts[i].bytes = each;
	}
	if (rc != cudaSuccess)
		free_parts(s);
	return rc;
}

static bool make_branch(struct k_stream *s);

int64_t k_stream_grown(const struct k_stream *s)
{
	return s->grown + (s->branch ? s->branch->grown : 0);
}

int k_stream_reserve(struct k_stream *s, enum k_scratch kind, int64_t bytes)
{
	bool beside = kind == K_SCRATCH_BESIDE_PRODUCTS || kind == K_SCRATCH_BESIDE_OPERATION;
	cudaError_t rc;

	cudaSetDevice(s->ctx->device);
	if (beside && bytes > 0 && !make_branch(s))
		return -EIO;
	if (beside && !s->branch)
		return 0;
	if (kind == K_SCRATCH_PRODUCTS || kind == K_SCRATCH_BESIDE_PRODUCTS)
		rc = reserve_products(beside ? s->branch : s, (size_t)bytes);
	else if (kind == K_SCRATCH_PARTIAL)
		rc = reserve_parts(s, (size_t)bytes);
	else
		rc = reserve_operation(beside ? s->branch : s, (size_t)bytes);
	if (rc != cudaSuccess)
		cudaGetLastError(); /* the result reports it */
	return rc == cudaSuccess ? 0 : -ENOMEM;
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

/* A branch has the least priority; the stream beside it has the one above. */
static struct k_stream *make_stream(struct k_context *ctx, enum k_stream_kind kind, bool branch)
{
	struct k_stream *s = (struct k_stream *)calloc(1, sizeof *s);
	int least = 0, greatest = 0, priority;

	if (!s)
		return NULL;
	s->ctx = ctx;
	cudaSetDevice(ctx->device);
	cudaDeviceGetStreamPriorityRange(&least, &greatest);
	priority = branch || greatest == least ? least : least - 1;
	if (kind == K_STREAM_COMM)
		priority = greatest;
	if (!context_check(ctx, "k_stream_create",
		    cudaStreamCreateWithPriority(&s->cuda, cudaStreamNonBlocking, priority))) {
		free(s);
		return NULL;
	}
	return s;
}

static bool make_branch(struct k_stream *s)
{
	bool made;

	if (s->branch)
		return true;
	made = make_event(s, &s->parting) && make_event(s, &s->meeting);
	for (int i = 0; i < K_STREAM_MARKS && made; i++)
		made = make_event(s, &s->marks[i]);
	if (!made)
		return false;
	s->branch = make_stream(s->ctx, K_STREAM_COMPUTE, true);
	return s->branch != NULL;
}

/* Later work on s waits for all present work on first. */
static void follow(struct k_stream *s, struct k_stream *first, cudaEvent_t event, const char *name)
{
	if (context_check(s->ctx, name, cudaEventRecord(event, first->cuda)))
		context_check(s->ctx, name, cudaStreamWaitEvent(s->cuda, event, 0));
}

struct k_stream *k_stream_fork(struct k_stream *s)
{
	if (s->ctx->no_branches || !stream_ready(s) || !stream_capture(s) || !make_branch(s))
		return s;
	follow(s->branch, s, s->parting, "k_stream_fork");
	return s->branch;
}

/* Whether the branch is part of what s captures. */
static bool branched(struct k_stream *s)
{
	unsigned long long id = s->branch ? stream_capture(s) : 0;

	return id && stream_capture(s->branch) == id;
}

void k_stream_mark(struct k_stream *s, int i)
{
	if (branched(s))
		context_check(
			s->ctx, "k_stream_mark", cudaEventRecord(s->marks[i], s->branch->cuda));
}

void k_stream_await(struct k_stream *s, int i)
{
	if (branched(s))
		context_check(
			s->ctx, "k_stream_await", cudaStreamWaitEvent(s->cuda, s->marks[i], 0));
}

void k_stream_join(struct k_stream *s)
{
	if (branched(s))
		follow(s, s->branch, s->meeting, "k_stream_join");
}

int k_stream_create(
	struct k_context *ctx, enum k_stream_kind kind, const char *name, struct k_stream **out)
{
	struct k_stream *s = make_stream(ctx, kind, false);

	if (!s)
		return k_context_error(ctx) ? -EIO : -ENOMEM;
	*out = s;
	return 0;
}

void k_stream_destroy(struct k_stream *s)
{
	if (!s)
		return;
	/* freeing would wait forever for the device */
	if (!stream_rest(s->ctx, "k_stream_destroy", stream_done, s->cuda))
		return;
	cudaStreamDestroy(s->cuda);
	free_scratch(s);
	free_parts(s);
	for (int i = 0; i < STREAM_PARTS; i++) {
		if (s->parts[i].done)
			cudaEventDestroy(s->parts[i].done);
	}
	cudaFree(s->workspace);
	if (s->parting)
		cudaEventDestroy(s->parting);
	if (s->meeting)
		cudaEventDestroy(s->meeting);
	for (int i = 0; i < K_STREAM_MARKS; i++) {
		if (s->marks[i])
			cudaEventDestroy(s->marks[i]);
	}
	k_stream_destroy(s->branch);
	free(s);
}

void *k_stream_native(struct k_stream *s)
{
	cudaSetDevice(s->ctx->device);
	return s->cuda;
}

/* If the stream has failed, none of its work is left: fn runs here. */
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

/*
 * Steps take about the same time: near the last step's duration the thread spins, since a nap is
 * some 70 us late. Otherwise naps free the processor.
 */
static bool may_nap(const struct k_context *ctx, int64_t waited_ns)
{
	int64_t about = ctx->waited_ns / 16;

	return waited_ns > spin_ns &&
		(waited_ns < ctx->waited_ns - about || waited_ns > ctx->waited_ns + about);
}

int stream_poll(struct k_context *ctx, const char *name, cudaError_t (*done)(void *what),
	void *what, int64_t timeout_ns)
{
	const struct timespec nap = {0, nap_ns};
	int64_t start = now_ns(), waited = 0;
	cudaError_t rc;

	cudaSetDevice(ctx->device);
	while ((rc = done(what)) == cudaErrorNotReady) {
		waited = now_ns() - start;
		if (waited >= timeout_ns)
			return -ETIMEDOUT;
		if (may_nap(ctx, waited))
			nanosleep(&nap, NULL);
	}
	if (waited > spin_ns)
		ctx->waited_ns = waited;
	context_check(ctx, name, rc);
	return k_context_error(ctx) ? -EIO : 0;
}

bool stream_rest(
	struct k_context *ctx, const char *name, cudaError_t (*done)(void *what), void *what)
{
	if (stream_poll(ctx, name, done, what, K_WAIT_NS) != -ETIMEDOUT)
		return true;
	context_fail(ctx, "%s: the device has not finished for %lld s", name,
		(long long)(K_WAIT_NS / 1000000000));
	return false;
}

cudaError_t stream_done(void *stream)
{
	return cudaStreamQuery((cudaStream_t)stream);
}

int k_stream_sync(struct k_stream *s, int64_t timeout_ns)
{
	return stream_poll(s->ctx, "k_stream_sync", stream_done, s->cuda, timeout_ns);
}
