/* procfs.h: whether /proc belongs to this process's pid namespace, and the program of a process. */
#ifndef GPT2D_PROTO_HOST_PROCFS_H
#define GPT2D_PROTO_HOST_PROCFS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* 0; or -ENOENT, or -EXDEV if /proc belongs to another namespace, with error. */
int procfs_check(char *why, size_t why_bytes);

/*
 * The program of process pid, so that people can find an old one: "/usr/bin/gpt2d, pid 12";
 * "/usr/bin/gpt2d (deleted), pid 12" if its file was replaced; "pid 12" if the kernel hides it.
 */
void procfs_describe(pid_t pid, char *out, size_t out_bytes);

/* The user and the name of a process, as in ps; false: it has ended, or is hidden. */
bool procfs_owner(pid_t pid, uid_t *uid, char *name, size_t name_bytes);

#endif
