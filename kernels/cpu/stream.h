/*
 * stream.h: submits operations to a stream. A compute stream runs them in the calling thread with
 * the context's pool. Any other stream has one worker thread with a queue, and runs them there.
 */
#ifndef GPT2D_KERNELS_CPU_STREAM_H
#define GPT2D_KERNELS_CPU_STREAM_H

#include "kernels/cpu/context.h"

struct stream_queue;

struct k_stream {
	struct k_context *ctx;
	struct pool *pool;          /* the context's, or a pool of one thread */
	struct stream_queue *queue; /* NULL: operations run in the caller */
};

/* 0 or a negative errno. The first one becomes the context's error. */
typedef int stream_fn(struct k_stream *s, const void *args);

/*
 * Runs fn(s, args) in stream order. Copies args (bytes) if fn cannot run at once. Blocks while the
 * queue is full. After the context has failed, stream_submit runs nothing, and stream_submit_always
 * still runs fn.
 */
void stream_submit(
	struct k_stream *s, const char *name, stream_fn *fn, const void *args, size_t bytes);
void stream_submit_always(
	struct k_stream *s, const char *name, stream_fn *fn, const void *args, size_t bytes);

/* timeout_ns from now on CLOCK_MONOTONIC, the clock of stream_cond_init's variables. */
struct timespec stream_deadline(int64_t timeout_ns);
void stream_cond_init(pthread_cond_t *cond);
int64_t stream_now_ns(void);

#endif
