/* stream.cuh: a stream, the checks around each launch, and memory for intermediate results. */
#ifndef GPT2D_KERNELS_CUDA_STREAM_CUH
#define GPT2D_KERNELS_CUDA_STREAM_CUH

#include "kernels/cuda/context.cuh"

enum { STREAM_BLOCKS_MAX = 64 };

struct k_stream {
	struct k_context *ctx;
	cudaStream_t cuda;
	/*
	 * Memory grows by a larger block beside the old ones: a captured graph may still use those.
	 * The last is the largest.
	 */
	void *scratch[STREAM_BLOCKS_MAX];
	int scratches;
	size_t scratch_bytes;
	void *workspace; /* of cuBLASLt */
	/* a branch beside this one in captured graphs; made when it is first needed */
	struct k_stream *branch;
	cudaEvent_t parting, meeting;
};

enum { STREAM_WORKSPACE_BYTES = 64 << 20 };

/* Before a launch: sets the device. False once the context has failed: nothing is to be done. */
bool stream_ready(struct k_stream *s);

/* After a launch: its failure becomes the context's, under this name. */
void stream_check(struct k_stream *s, const char *name);

/*
 * Memory for one operation, which the next operation on this stream uses again; NULL (and the
 * context failed) when there is none.
 */
void *stream_scratch(struct k_stream *s, size_t bytes);
void *stream_scratch_try(struct k_stream *s, size_t bytes); /* the context does not fail */
void *stream_workspace(struct k_stream *s); /* STREAM_WORKSPACE_BYTES, likewise */

/*
 * Work that may run beside what follows on s goes to the stream that fork gives: in a capture a
 * branch of the graph, else s itself, for launching to two streams costs more than it gains. join:
 * s goes on once that work has run. One fork at a time.
 */
struct k_stream *stream_fork(struct k_stream *s);
void stream_join(struct k_stream *s, struct k_stream *branch);

/* Number of the capture that this stream is part of, 0: none. */
unsigned long long stream_capture(struct k_stream *s);

/* Calls done(what) until it says anything but cudaErrorNotReady: 0, -ETIMEDOUT or -EIO. */
int stream_poll(struct k_context *ctx, const char *name, cudaError_t (*done)(void *what),
	void *what, int64_t timeout_ns);

#endif
