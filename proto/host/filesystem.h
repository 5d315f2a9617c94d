/*
 * filesystem.h: which file system a path lies on, by the name a person knows it by; and that the
 * names in a folder are on its disk.
 */
#ifndef GPT2D_PROTO_HOST_FILESYSTEM_H
#define GPT2D_PROTO_HOST_FILESYSTEM_H

#include <stddef.h>

/*
 * "/var (ext4)": mount point and type of what path, which exists and is absolute, lies on, from
 * /proc/self/mountinfo; "an unknown file system" where that cannot be told.
 */
void filesystem_describe(const char *path, char *out, size_t out_bytes);

/* What was made, renamed or removed in the folder dir stays so: 0, or a negative errno. */
int filesystem_sync(const char *dir);

#endif
