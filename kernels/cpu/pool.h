/*
 * pool.h: the computing threads. The pool runs one job at a time, and the caller takes part. The
 * caller cuts the work into chunks. The chunks do not depend on the number of threads, so the
 * results do not either.
 *
 * Several processes may share the cores. So idle threads poll for work for some microseconds, yield
 * to other threads, and then sleep. A run never waits for a thread that has not begun to help.
 */
#ifndef GPT2D_KERNELS_CPU_POOL_H
#define GPT2D_KERNELS_CPU_POOL_H

#include <stddef.h>
#include <stdint.h>

struct pool;

/* scratch: memory of the running thread, of the size last reserved. Its contents are undefined. */
typedef void pool_fn(void *arg, int64_t chunk, void *scratch);

/* threads >= 1, the caller included. 0 or a negative errno. */
int pool_create(int threads, struct pool **out);
void pool_destroy(struct pool *pool); /* takes NULL */

int pool_threads(const struct pool *pool);
void pool_set_threads(struct pool *pool, int threads); /* limited to 1..the number at creation */

/* At least bytes of scratch per thread, 64-byte aligned. 0 or -ENOMEM. Not during a run. */
int pool_reserve(struct pool *pool, size_t bytes);

/*
 * Allocates the scratch per thread, or the memory that chunks share, before an operation needs it.
 * 0 bytes free the memory. 0 or -ENOMEM. Not during a run.
 */
int pool_take_scratch(struct pool *pool, size_t bytes_per_thread);
int pool_take_shared(struct pool *pool, size_t bytes);
/* How often pool_reserve or pool_shared had to allocate more. */
int64_t pool_grown(const struct pool *pool);

/* Memory that all chunks of an operation share. Valid until the next call. NULL: out of memory. */
void *pool_shared(struct pool *pool, size_t bytes);

/* Runs fn(arg, 0..n_chunks-1, scratch) on all threads. Returns when all chunks are done. */
void pool_run(struct pool *pool, int64_t n_chunks, pool_fn *fn, void *arg);

#endif
