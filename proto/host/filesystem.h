/* filesystem.h: the folder and the file system of a path, and how to flush a folder to disk. */
#ifndef GPT2D_PROTO_HOST_FILESYSTEM_H
#define GPT2D_PROTO_HOST_FILESYSTEM_H

#include <limits.h>
#include <stddef.h>

/* The folder in which path is, as of dirname(3), in out or elsewhere. */
const char *filesystem_folder(const char *path, char out[PATH_MAX]);

/*
 * "/var (ext4)": mount point and type of the file system of path, which exists and is absolute,
 * from /proc/self/mountinfo; "an unknown file system" if that is not known.
 */
void filesystem_describe(const char *path, char *out, size_t out_bytes);

/* Makes earlier changes of names in the folder dir durable: 0, or a negative errno. */
int filesystem_sync(const char *dir);

#endif
