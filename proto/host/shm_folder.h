/*
 * shm_folder.h: the folder in which this user's engines make shared memory, <parent>/gpt2d-<uid>,
 * parent being UCX_POSIX_DIR, else /dev/shm; <parent>/gpt2d-<uid>-XXXXXX where that name is taken
 * by another user. Who uses it holds a shared lock (flock) on it: with the exclusive one nobody
 * does. Engines remove it when they end; one that is killed cannot, and gpt2d does it after the
 * last.
 */
#ifndef GPT2D_PROTO_HOST_SHM_FOLDER_H
#define GPT2D_PROTO_HOST_SHM_FOLDER_H

#include <stddef.h>

/* The first of the two names, also where UCX_POSIX_DIR is either of them. 0 or -ENAMETOOLONG. */
int shm_folder_path(char *out, size_t out_bytes);
/*
 * A folder with the second name of path that this user may use, after the one that is named after
 * (NULL: the first; may be out), in the order of their names. 0, -ENOENT, or another negative
 * errno.
 */
int shm_folder_next(const char *path, const char *after, char *out, size_t out_bytes);
/* One that is there: a descriptor; -EPERM: another's, or open to others; another negative errno. */
int shm_folder_open(const char *path);
/* With the exclusive lock held: no process that could still want a file of it lives. */
void shm_folder_empty(int fd);
/* It goes, with what is in it, where nobody uses it. The lock on fd may be lost by that. */
void shm_folder_remove_unused(int fd, const char *path);
/* The same for all of this user's below parent. */
void shm_folder_sweep(void);

#endif
