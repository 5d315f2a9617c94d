#include "engine/comm/ucx_sum.h"

#include <string.h>

/* Elements summed at a time over all sources, so that the partial sum stays in the first-level
 * cache. */
enum { BLOCK_BYTES = 4096 };

static void add_float(void *acc, const void *x, size_t n)
{
	float *restrict a = acc;
	const float *restrict b = x;

	for (size_t i = 0; i < n; i++)
		a[i] += b[i];
}

static void add_double(void *acc, const void *x, size_t n)
{
	double *restrict a = acc;
	const double *restrict b = x;

	for (size_t i = 0; i < n; i++)
		a[i] += b[i];
}

static void add_int64(void *acc, const void *x, size_t n)
{
	uint64_t *restrict a = acc;
	const uint64_t *restrict b = x;

	for (size_t i = 0; i < n; i++)
		a[i] += b[i];
}

static void max_float(void *acc, const void *x, size_t n)
{
	float *restrict a = acc;
	const float *restrict b = x;

	for (size_t i = 0; i < n; i++)
		a[i] = b[i] > a[i] || b[i] != b[i] ? b[i] : a[i];
}

static void max_double(void *acc, const void *x, size_t n)
{
	double *restrict a = acc;
	const double *restrict b = x;

	for (size_t i = 0; i < n; i++)
		a[i] = b[i] > a[i] || b[i] != b[i] ? b[i] : a[i];
}

static void max_int64(void *acc, const void *x, size_t n)
{
	int64_t *restrict a = acc;
	const int64_t *restrict b = x;

	for (size_t i = 0; i < n; i++)
		a[i] = b[i] > a[i] ? b[i] : a[i];
}

static const struct {
	size_t elem_bytes;
	void (*reduce[2])(void *acc, const void *x, size_t n); /* by enum collectives_op */
} types[] = {
	[UCX_SUM_FLOAT] = {sizeof(float), {add_float, max_float}},
	[UCX_SUM_DOUBLE] = {sizeof(double), {add_double, max_double}},
	[UCX_SUM_INT64] = {sizeof(int64_t), {add_int64, max_int64}},
};

size_t ucx_sum_elem_bytes(enum ucx_sum_type type)
{
	return types[type].elem_bytes;
}

void ucx_sum(enum ucx_sum_type type, enum collectives_op op, void *dst, const void *const *srcs,
	int count, int64_t n)
{
	size_t elem_bytes = types[type].elem_bytes;
	size_t bytes = (size_t)n * elem_bytes;
	union {
		float f[BLOCK_BYTES / sizeof(float)];
		double d[BLOCK_BYTES / sizeof(double)];
		int64_t i[BLOCK_BYTES / sizeof(int64_t)];
	} block;

	for (size_t at = 0; at < bytes; at += BLOCK_BYTES) {
		size_t part = bytes - at < BLOCK_BYTES ? bytes - at : BLOCK_BYTES;

		memcpy(&block, (const char *)srcs[0] + at, part);
		for (int k = 1; k < count; k++)
			types[type].reduce[op](
				&block, (const char *)srcs[k] + at, part / elem_bytes);
		memcpy((char *)dst + at, &block, part);
	}
}
