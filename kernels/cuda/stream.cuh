/* stream.cuh: a stream, the checks around each launch, and memory for intermediate results. */
#ifndef GPT2D_KERNELS_CUDA_STREAM_CUH
#define GPT2D_KERNELS_CUDA_STREAM_CUH

#include "kernels/cuda/context.cuh"

enum { STREAM_BLOCKS_MAX = 64 };

/* Memory that the branch reads after the operation; stream_part. */
enum { STREAM_PARTS = 8 };
struct stream_part {
	void *memory;
	size_t bytes;
	cudaEvent_t done;           /* the branch is done with it */
	unsigned long long capture; /* in this capture; 0: nothing is outstanding */
};

struct k_stream {
	struct k_context *ctx;
	cudaStream_t cuda;
	/*
	 * Memory grows by a larger block beside the old ones, which a captured graph may still use.
	 * The last is the largest.
	 */
	void *scratch[STREAM_BLOCKS_MAX];
	int scratches;
	size_t scratch_bytes;
	struct stream_part parts[STREAM_PARTS];
	int next_part;
	void *outgrown[STREAM_BLOCKS_MAX]; /* per part */
	int outgrowns;
	void *workspace; /* cuBLASLt's */
	int64_t grown;   /* how often an operation allocated memory */
	/* a parallel branch in captured graphs; created at its first use */
	struct k_stream *branch;
	cudaEvent_t parting, meeting, marks[K_STREAM_MARKS];
};

enum { STREAM_WORKSPACE_BYTES = 64 << 20 };

/* Before a launch: sets the device. False: the context has failed; skip the launch. */
bool stream_ready(struct k_stream *s);

/* After a launch: a failure becomes the context's, under this name. */
void stream_check(struct k_stream *s, const char *name);

/*
 * Memory for one operation; the next operation on this stream reuses it. NULL: no memory, the
 * context has failed.
 */
void *stream_scratch(struct k_stream *s, size_t bytes);
/*
 * The same for work that a branch of s finishes; call stream_part_given after that work is on the
 * branch. The memory is not reused before the work is done.
 */
struct stream_part *stream_part(struct k_stream *s, size_t bytes);
void stream_part_given(struct k_stream *s, struct stream_part *part, struct k_stream *branch);
void *stream_workspace(struct k_stream *s); /* STREAM_WORKSPACE_BYTES, likewise */

/* Number of the capture that this stream is part of, 0: none. */
unsigned long long stream_capture(struct k_stream *s);

/* Calls done(what) while it returns cudaErrorNotReady: 0, -ETIMEDOUT or -EIO. */
int stream_poll(struct k_context *ctx, const char *name, cudaError_t (*done)(void *what),
	void *what, int64_t timeout_ns);
/*
 * A wait of at most K_WAIT_NS, for calls without their own deadline. False: the device has not
 * finished by then, and the context has failed.
 */
bool stream_rest(
	struct k_context *ctx, const char *name, cudaError_t (*done)(void *what), void *what);
cudaError_t stream_done(void *stream); /* done for both: a cudaStream_t */

#endif
