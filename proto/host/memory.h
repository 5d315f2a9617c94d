/*
 * memory.h: allocation for processes that end when memory runs out. Each function returns memory
 * that the caller frees, never NULL: without memory it prints one line and calls abort(). gpt2d
 * loses nothing that way, because every accepted run is on disk, and systemd restarts gpt2d.
 * Sizes that a client or a file chooses must be bounded before they reach these functions.
 */
#ifndef GPT2D_PROTO_HOST_MEMORY_H
#define GPT2D_PROTO_HOST_MEMORY_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/* Prints the line and calls abort(): a library had no memory. */
void memory_exhausted(void) __attribute__((noreturn));

/* Zeroed memory for count members of size bytes each. */
void *memory_zeroed(size_t count, size_t size);
/* realloc(); keeps the first bytes of old, which may be NULL. */
void *memory_resized(void *old, size_t bytes);
/* strdup() */
char *memory_text(const char *text);
/* asprintf(), vasprintf() */
char *memory_printed(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *memory_vprinted(const char *format, va_list args) __attribute__((format(printf, 1, 0)));

/* open_memstream(), and its end: *text is the caller's once memory_stream_end() returns. */
FILE *memory_stream(char **text, size_t *n);
void memory_stream_end(FILE *stream);

/* Jansson allocates through these functions too. Call it before the first JSON value. */
void memory_use_for_json(void);

#endif
