/*
 * pool.h: the computing threads. One run at a time; the caller takes part. The caller cuts the work
 * into chunks, independent of the number of threads, so that results do not depend on it.
 *
 * Idle threads poll for work for some microseconds, yielding to others, and then sleep: several
 * processes may share the cores. A run never waits for a thread that has not begun to help.
 */
#ifndef GPT2D_KERNELS_CPU_POOL_H
#define GPT2D_KERNELS_CPU_POOL_H

#include <stddef.h>
#include <stdint.h>

struct pool;

/* scratch: the running thread's own memory, of the size last reserved; contents undefined. */
typedef void pool_fn(void *arg, int64_t chunk, void *scratch);

/* threads >= 1, the caller included. 0 or a negative errno. */
int pool_create(int threads, struct pool **out);
void pool_destroy(struct pool *pool); /* takes NULL */

int pool_threads(const struct pool *pool);
void pool_set_threads(struct pool *pool, int threads); /* limited to 1..the number at creation */

/* At least bytes of scratch for every thread, 64-byte aligned. 0 or -ENOMEM. Not during a run. */
int pool_reserve(struct pool *pool, size_t bytes);

/*
 * The same for memory that chunks share, before an operation needs it: 0 or -ENOMEM; 0 bytes free
 * it. Not during a run.
 */
int pool_take_scratch(struct pool *pool, size_t bytes_per_thread);
int pool_take_shared(struct pool *pool, size_t bytes);
/* How often pool_reserve or pool_shared had to allocate more. */
int64_t pool_grown(const struct pool *pool);

/* Memory that all chunks of an operation share; valid until the next call. NULL: not enough. */
void *pool_shared(struct pool *pool, size_t bytes);

/* fn(arg, 0..n_chunks-1, scratch) on all threads; returns when all have run. */
void pool_run(struct pool *pool, int64_t n_chunks, pool_fn *fn, void *arg);

#endif
