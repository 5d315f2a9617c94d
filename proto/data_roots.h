/*
 * data_roots.h: the folders below which runs may read data. gpt2d judges a path when a run is
 * submitted, so that its owner is told; the engine judges the file that it has opened, which no
 * link that is changed in between can lead elsewhere.
 */
#ifndef GPT2D_DATA_ROOTS_H
#define GPT2D_DATA_ROOTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { DATA_ROOTS_MAX = 64 };

struct data_roots {
	const char *path[DATA_ROOTS_MAX]; /* absolute; borrowed */
	size_t n;                         /* 0: anywhere */
};

/*
 * Whether path, absolute, leads below a root, links followed. What is not there or cannot be
 * reached is judged by where it would be: no link on the way may stand elsewhere, and behind what
 * is there nothing may go up.
 */
bool data_roots_hold(const struct data_roots *roots, const char *path);
/* The same of an open file, by the place that it has now. */
bool data_roots_hold_fd(const struct data_roots *roots, int fd);

/*
 * Whether path is below a root by its name, and has a link there: out then tells of the first one,
 * "PATH is a link to TARGET"; else it is empty. What is behind that link is not looked at: who asks
 * may read what the roots hold, and perhaps nothing else.
 */
bool data_roots_link(
	const struct data_roots *roots, const char *path, char *out, size_t out_bytes);

/* What a message says ("data_roots"): an array of texts. NULL without memory. */
json_t *data_roots_json(const struct data_roots *roots);
/* array may be NULL: anywhere. Strings are borrowed from it. 0, or -EINVAL. */
int data_roots_read(struct data_roots *out, const json_t *array);

#endif
