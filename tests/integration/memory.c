/*
 * No memory at a chosen moment, for tests: a library to be preloaded, which counts what a program
 * asks malloc and its kin for and gives it nothing at the numbers that are asked for. $GPT2D_MEMORY
 * is a folder; a program takes part when the folder has a file of its name, which is a struct
 * control. memory.py writes it. Not beside a sanitizer, which brings its own malloc.
 */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/integration/preload.h"

/* Shared with the test. */
struct control {
	int64_t count; /* allocations so far */
	int64_t first, last;
	int64_t failed; /* how many of them got nothing */
	int64_t bytes;  /* none but those of that size; 0: of any */
};

static struct control *control;

/* What is behind these names in glibc. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *at, size_t bytes);
void *__libc_memalign(size_t to, size_t bytes);

__attribute__((constructor)) static void begin(void)
{
	control = preload_control("GPT2D_MEMORY", sizeof(*control));
}

static bool refused(size_t bytes)
{
	int64_t n;

	if (control == NULL)
		return false;
	n = __atomic_add_fetch(&control->count, 1, __ATOMIC_SEQ_CST);
	if (control->first == 0 || n < control->first || n > control->last ||
		(control->bytes != 0 && (size_t)control->bytes != bytes))
		return false;
	__atomic_add_fetch(&control->failed, 1, __ATOMIC_SEQ_CST);
	errno = ENOMEM;
	return true;
}

void *malloc(size_t bytes)
{
	return refused(bytes) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
	return refused(n * bytes) ? NULL : __libc_calloc(n, bytes);
}

void *realloc(void *at, size_t bytes)
{
	return bytes > 0 && refused(bytes) ? NULL : __libc_realloc(at, bytes);
}

void *aligned_alloc(size_t to, size_t bytes)
{
	return refused(bytes) ? NULL : __libc_memalign(to, bytes);
}

int posix_memalign(void **out, size_t to, size_t bytes)
{
	void *at = refused(bytes) ? NULL : __libc_memalign(to, bytes);

	if (at == NULL)
		return ENOMEM;
	*out = at;
	return 0;
}
