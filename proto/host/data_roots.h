/*
 * data_roots.h: the folders below which runs may read data. gpt2d checks a path when a run is
 * submitted, so that the user sees the error at once. The engine checks the file that it opens,
 * because a link may have changed since.
 */
#ifndef GPT2D_PROTO_HOST_DATA_ROOTS_H
#define GPT2D_PROTO_HOST_DATA_ROOTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { DATA_ROOTS_MAX = 64 };

struct data_roots {
	const char *path[DATA_ROOTS_MAX]; /* absolute; borrowed */
	size_t n;                         /* 0: anywhere */
};

/*
 * Opens, with O_PATH, the file that path leads to, links followed, if it is a root or below one.
 * The caller opens /proc/self/fd/N to read it. Otherwise -EXDEV with error, which is the same for
 * a file outside the roots and for none. roots->n is at least 1.
 */
int data_roots_open(
	const struct data_roots *roots, const char *path, char *error, size_t error_bytes);

/* Member data_roots of a message: an array of strings. */
json_t *data_roots_json(const struct data_roots *roots);
/* array: NULL means anywhere. *roots borrows its strings. 0, or -EINVAL. */
int data_roots_read(struct data_roots *out, const json_t *array);

#endif
