/*
 * copy_target.h: the folder that a run's files are copied to, and what is below it. No link in it
 * is followed.
 */
#ifndef GPT2D_CTL_RESULTS_COPY_TARGET_H
#define GPT2D_CTL_RESULTS_COPY_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/digest.h"

/*
 * The folder of path, a valid path of an artifact, below dir; with make it is made where it is not
 * there. A descriptor, or a negative errno with *bad, the length of what of path is at fault:
 * -ELOOP: a link, -ENOTDIR: another file.
 */
int copy_target_enter(int dir, const char *path, bool make, size_t *bad);
/* Of a file in its folder. */
const char *copy_target_name(const char *path);
/* Whether name in folder is a regular file of that size and hash. */
bool copy_target_has(int folder, const char *name, int64_t bytes, const char *sha256);
/* Add n bytes of fd to the digest: 0 or a negative errno; -ENODATA: there are fewer. */
int copy_target_digest(int fd, struct digest *digest, int64_t n);

enum { COPY_TARGET_PART_BYTES = 256 };
/* What a file of that hash is written to first: the next copy goes on there. 0 or -ENAMETOOLONG. */
int copy_target_part(const char *name, const char *sha256, char out[COPY_TARGET_PART_BYTES]);
/*
 * Of files that are there what was begun goes, also of others of their names, as another run's. The
 * folder is read once.
 */
void copy_target_remove_parts(
	int folder, bool (*is_there)(const char *name, const void *arg), const void *arg);

#endif
