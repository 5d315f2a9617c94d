#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/cpu/stream.h"

enum { MEMORY_ALIGN = 256, HUGE_PAGE_BYTES = 2 << 20 };

void *k_alloc(struct k_context *ctx, size_t bytes)
{
	size_t align = bytes >= 4 * HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : MEMORY_ALIGN;
	void *memory;

	if (bytes > SIZE_MAX / 2 || posix_memalign(&memory, align, bytes ? bytes : 1) != 0)
		return NULL;
	if (align == HUGE_PAGE_BYTES)
		madvise(memory, bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES, MADV_HUGEPAGE);
	return memset(memory, 0, bytes);
}

void k_free(struct k_context *ctx, void *memory)
{
	free(memory);
}

void *k_alloc_host(struct k_context *ctx, size_t bytes)
{
	return k_alloc(ctx, bytes);
}

void k_free_host(struct k_context *ctx, void *memory)
{
	k_free(ctx, memory);
}

/* ---- copies and zeros, in pieces so that a compute stream uses all its threads ---- */

enum { PIECE_BYTES = 1 << 18 };

struct copy {
	char *dst;
	const char *src; /* NULL: zeros */
	size_t bytes;
};

static void copy_piece(void *arg, int64_t chunk, void *scratch)
{
	const struct copy *c = arg;
	size_t first = (size_t)chunk * PIECE_BYTES;
	size_t bytes = c->bytes - first < PIECE_BYTES ? c->bytes - first : PIECE_BYTES;

	if (c->src)
		memcpy(c->dst + first, c->src + first, bytes);
	else
		memset(c->dst + first, 0, bytes);
}

static int run_copy(struct k_stream *s, const void *args)
{
	struct copy c = *(const struct copy *)args;

	pool_run(s->pool, (int64_t)((c.bytes + PIECE_BYTES - 1) / PIECE_BYTES), copy_piece, &c);
	return 0;
}

static void submit(struct k_stream *s, const char *name, void *dst, const void *src, size_t bytes)
{
	struct copy c = {dst, src, bytes};

	stream_submit(s, name, run_copy, &c, sizeof c);
}

void k_copy_in(struct k_stream *s, void *device, const void *host, size_t bytes)
{
	submit(s, "k_copy_in", device, host, bytes);
}

void k_copy_out(struct k_stream *s, void *host, const void *device, size_t bytes)
{
	submit(s, "k_copy_out", host, device, bytes);
}

void k_copy(struct k_stream *s, void *dst, const void *src, size_t bytes)
{
	submit(s, "k_copy", dst, src, bytes);
}

void k_zero(struct k_stream *s, void *device, size_t bytes)
{
	submit(s, "k_zero", device, NULL, bytes);
}

void k_zero_rows(
	struct k_stream *s, void *device, size_t bytes, size_t stride_bytes, int64_t rows)
{
	for (int64_t i = 0; i < rows; i++)
		k_zero(s, (char *)device + (size_t)i * stride_bytes, bytes);
}
