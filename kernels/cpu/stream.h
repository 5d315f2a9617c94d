/*
 * stream.h: how an operation is submitted to a stream. A compute stream runs it in the calling
 * thread with the context's pool; any other stream is one worker thread with a queue, and its
 * operations run on that thread alone.
 */
#ifndef GPT2D_KERNELS_CPU_STREAM_H
#define GPT2D_KERNELS_CPU_STREAM_H

#include "kernels/cpu/context.h"

struct stream_queue;

struct k_stream {
	struct k_context *ctx;
	struct pool *pool;          /* the context's, or one of a single thread */
	struct stream_queue *queue; /* NULL: runs in the caller */
};

/* 0 or a negative errno, which becomes the context's error unless it has one already. */
typedef int stream_fn(struct k_stream *s, const void *args);

/*
 * Runs fn(s, args) in stream order; args (bytes) are copied if it cannot run at once. Blocks while
 * the queue is full. stream_submit runs nothing once the context has failed; stream_submit_always
 * does.
 */
void stream_submit(
	struct k_stream *s, const char *name, stream_fn *fn, const void *args, size_t bytes);
void stream_submit_always(
	struct k_stream *s, const char *name, stream_fn *fn, const void *args, size_t bytes);

/* CLOCK_MONOTONIC, timeout_ns from now; for condition variables made by stream_cond_init. */
struct timespec stream_deadline(int64_t timeout_ns);
void stream_cond_init(pthread_cond_t *cond);
int64_t stream_now_ns(void);

#endif
