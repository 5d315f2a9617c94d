/* stream.cuh: a stream, the checks around each launch, and memory for intermediate results. */
#ifndef GPT2D_KERNELS_CUDA_STREAM_CUH
#define GPT2D_KERNELS_CUDA_STREAM_CUH

#include "kernels/cuda/context.cuh"

enum { STREAM_BLOCKS_MAX = 64 };

/* Memory of what an operation leaves for the branch to finish; stream_part. */
enum { STREAM_PARTS = 8 };
struct stream_part {
	void *memory;
	size_t bytes;
	cudaEvent_t done;           /* the branch has come that far */
	unsigned long long capture; /* in this capture; 0: nothing is outstanding */
};

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
	struct stream_part parts[STREAM_PARTS];
	int next_part;
	void *outgrown[STREAM_BLOCKS_MAX]; /* by parts */
	int outgrowns;
	void *workspace; /* of cuBLASLt */
	int64_t grown;   /* how often an operation had to take memory */
	/* a branch beside this one in captured graphs; made when it is first needed */
	struct k_stream *branch;
	cudaEvent_t parting, meeting, marks[K_STREAM_MARKS];
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
/*
 * Likewise memory for what a branch of s is to finish: once that has been given to the branch,
 * stream_part_given says so. It is not used again before it is done.
 */
struct stream_part *stream_part(struct k_stream *s, size_t bytes);
void stream_part_given(struct k_stream *s, struct stream_part *part, struct k_stream *branch);
void *stream_workspace(struct k_stream *s); /* STREAM_WORKSPACE_BYTES, likewise */

/* Number of the capture that this stream is part of, 0: none. */
unsigned long long stream_capture(struct k_stream *s);

/* Calls done(what) until it says anything but cudaErrorNotReady: 0, -ETIMEDOUT or -EIO. */
int stream_poll(struct k_context *ctx, const char *name, cudaError_t (*done)(void *what),
	void *what, int64_t timeout_ns);
/*
 * The wait inside a call that has no deadline of its own, of K_WAIT_NS: false, and the context has
 * failed, when the device is still at it then.
 */
bool stream_rest(
	struct k_context *ctx, const char *name, cudaError_t (*done)(void *what), void *what);
cudaError_t stream_done(void *stream); /* for these two: a cudaStream_t */

#endif
