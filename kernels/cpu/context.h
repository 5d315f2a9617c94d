/* context.h: the part of a context that CPU operations use. */
#ifndef GPT2D_KERNELS_CPU_CONTEXT_H
#define GPT2D_KERNELS_CPU_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>

#include "kernels/cpu/pool.h"
#include "kernels/kernels.h"

struct vec;

struct k_context {
	enum k_dtype dtype;
	struct pool *pool;     /* used by the compute streams */
	const struct vec *vec; /* the loops built for this processor */
	pthread_mutex_t lock;
	atomic_bool failed;
	char error[256];
	char name[128];
	int64_t memory_total_bytes; /* of the machine */
	char library[128];
};

/* Keeps this message if it is the context's first failure. */
__attribute__((format(printf, 2, 3))) void context_fail(
	struct k_context *ctx, const char *format, ...);

#endif
