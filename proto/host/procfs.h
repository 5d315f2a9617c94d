/* procfs.h: /proc: is it of this process's pid namespace, and which program is a process? */
#ifndef GPT2D_PROTO_HOST_PROCFS_H
#define GPT2D_PROTO_HOST_PROCFS_H

#include <stddef.h>
#include <sys/types.h>

/* 0; or -ENOENT, or -EXDEV if /proc is of another namespace, and why. */
int procfs_check(char *why, size_t why_bytes);

/*
 * Which process pid is, so that people can find an old one: "/usr/bin/gpt2d, pid 12";
 * "/usr/bin/gpt2d (deleted), pid 12" if its file was replaced; "pid 12" if the kernel hides it.
 */
void procfs_describe(pid_t pid, char *out, size_t out_bytes);

#endif
