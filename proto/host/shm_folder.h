/*
 * shm_folder.h: the folder in which this user's engines create shared memory, <parent>/gpt2d-<uid>,
 * where parent is UCX_POSIX_DIR, else /dev/shm; <parent>/gpt2d-<uid>-XXXXXX if another user has
 * taken that name. Each user process holds a shared lock (flock) on it, so an exclusive lock means
 * that it is unused. Engines remove it when they end; if an engine was killed, gpt2d removes it
 * after the last one.
 */
#ifndef GPT2D_PROTO_HOST_SHM_FOLDER_H
#define GPT2D_PROTO_HOST_SHM_FOLDER_H

#include <stddef.h>

/* The first of the two names, also if UCX_POSIX_DIR is one of them. 0 or -ENAMETOOLONG. */
int shm_folder_path(char *out, size_t out_bytes);
/* The first folder with the second name of path that this user owns: 0, or a negative errno. */
int shm_folder_find(const char *path, char *out, size_t out_bytes);
/*
 * Opens an existing one: a descriptor; -EPERM: owned by another user, or open to others; another
 * negative errno.
 */
int shm_folder_open(const char *path);
/* Requires the exclusive lock: whether no process that could need one of its files is alive. */
void shm_folder_empty(int fd);
/* Removes it and its content if it is unused. The lock on fd may be lost. */
void shm_folder_remove_unused(int fd, const char *path);
/* The same for all folders of this user below parent. */
void shm_folder_sweep(void);

#endif
