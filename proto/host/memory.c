#include "proto/host/memory.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void memory_exhausted(void)
{
	/* without stdio, which may allocate */
	static const char message[] = "out of memory\n";

	if (write(STDERR_FILENO, message, sizeof(message) - 1) < 0)
		abort();
	abort();
}

static void *checked(void *memory)
{
	if (memory == NULL)
		memory_exhausted();
	return memory;
}

void *memory_zeroed(size_t count, size_t size)
{
	return checked(calloc(count > 0 ? count : 1, size > 0 ? size : 1));
}

void *memory_resized(void *old, size_t bytes)
{
	return checked(realloc(old, bytes > 0 ? bytes : 1));
}

char *memory_text(const char *text)
{
	return checked(strdup(text));
}

char *memory_vprinted(const char *format, va_list args)
{
	char *text;

	return checked(vasprintf(&text, format, args) < 0 ? NULL : text);
}

char *memory_printed(const char *format, ...)
{
	va_list args;
	char *text;

	va_start(args, format);
	text = memory_vprinted(format, args);
	va_end(args);
	return text;
}

FILE *memory_stream(char **text, size_t *n)
{
	FILE *stream = checked(open_memstream(text, n));

	__fsetlocking(stream, FSETLOCKING_BYCALLER); /* only one thread writes it: half the time */
	return stream;
}

void memory_stream_end(FILE *stream)
{
	const int failed = ferror(stream);

	if (fclose(stream) != 0 || failed)
		checked(NULL);
}

static void *json_memory(size_t bytes)
{
	return checked(malloc(bytes));
}

void memory_use_for_json(void)
{
	json_set_alloc_funcs(json_memory, free);
}
