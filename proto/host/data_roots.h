/*
 * data_roots.h: the folders below which runs may read data. gpt2d judges a path when a run is
 * submitted, so that its owner is told; the engine judges the file that it has opened, which no
 * link that is changed in between can lead elsewhere.
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
 * Opens, with O_PATH, what path leads to, links followed. A negative errno: -EXDEV where it, or
 * anything on the way to it, is not below a root, whether that is there or not: nothing is looked
 * up there. Any other one is of a look-up below a root. No name is looked at again to tell.
 *
 * link: with -EXDEV, where a link was followed, "PATH is a link to TARGET" of the first one, PATH
 * as in path; else empty. It is below a root.
 */
int data_roots_open(
	const struct data_roots *roots, const char *path, char *link, size_t link_bytes);
/* Whether an open file is below a root, by the place that it has now. True without roots. */
bool data_roots_hold_fd(const struct data_roots *roots, int fd);

/* What a message says ("data_roots"): an array of texts. NULL without memory. */
json_t *data_roots_json(const struct data_roots *roots);
/* array may be NULL: anywhere. Strings are borrowed from it. 0, or -EINVAL. */
int data_roots_read(struct data_roots *out, const json_t *array);

#endif
