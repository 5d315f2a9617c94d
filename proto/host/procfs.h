/* procfs.h: whether /proc is there and tells of this process's own pid namespace. */
#ifndef GPT2D_PROTO_HOST_PROCFS_H
#define GPT2D_PROTO_HOST_PROCFS_H

#include <stddef.h>

/* 0; or -ENOENT, or -EXDEV where it is of another namespace, and why. */
int procfs_check(char *why, size_t why_bytes);

#endif
