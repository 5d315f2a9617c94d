#include "kernels/cpu/blas.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Room for OpenBLAS's own additions and for other threads' allocations meanwhile. */
enum { EXTRA_BYTES = 1 << 23 };
static const size_t buffer_bytes = ((size_t)BLAS_BUFFER_MIB << 20) + EXTRA_BYTES;

/* OpenBLAS's, in no header; a build that hides them maps its buffers later. */
void *blas_memory_alloc(int use) __attribute__((weak));
void blas_memory_free(void *buffer) __attribute__((weak));

/* Whether n buffers can be mapped. One by one: the system may refuse a single large mapping. */
static bool would_be_given(void **buffers, int n)
{
	int given = 0;

	while (given < n) {
		buffers[given] = mmap(NULL, buffer_bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (buffers[given] == MAP_FAILED)
			break;
		given++;
	}
	for (int i = 0; i < given; i++)
		munmap(buffers[i], buffer_bytes);
	return given == n;
}

static int take(void **buffers, int n)
{
	int taken = 0;

	while (taken < n && (buffers[taken] = blas_memory_alloc(0)) != NULL)
		taken++;
	for (int i = 0; i < taken; i++)
		blas_memory_free(buffers[i]);
	return taken == n ? 0 : -ENOMEM;
}

int blas_reserve(int threads)
{
	void **buffers = calloc((size_t)threads, sizeof(*buffers));
	int rc = -ENOMEM;

	if (buffers && would_be_given(buffers, threads))
		rc = blas_memory_alloc && blas_memory_free ? take(buffers, threads) : 0;
	free(buffers);
	return rc;
}
