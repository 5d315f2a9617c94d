/*
 * ucx_shm.h: the directory in which UCX makes its shared memory.
 *
 * UCX unlinks a segment's file right after making it, and peers open it through /proc; but a
 * process killed in between leaves the file for good (seen in 2 of 100 kills at random moments;
 * System V segments leak the same way). So the files are made in a directory of this user's engines
 * alone, <parent>/gpt2d-<uid>, or <parent>/gpt2d-<uid>-XXXXXX where that name is taken by another
 * user (proto/host/shm_folder.h). Every engine holds a shared lock on it; who finds no other, when
 * it enters or leaves, removes what is in it, and the last one the directory itself.
 */
#ifndef GPT2D_ENGINE_COMM_UCX_SHM_H
#define GPT2D_ENGINE_COMM_UCX_SHM_H

#include <stdbool.h>
#include <stddef.h>

struct ucx_shm {
	int fd; /* the directory, locked; -1 when not entered */
	char path[256];
};

/*
 * Parent: UCX_POSIX_DIR, else /dev/shm; UCX_POSIX_DIR then names the directory. 0 or a negative
 * errno: that of the parent, where nothing can be made. Nothing to leave after a failure.
 */
int ucx_shm_enter(struct ucx_shm *shm);
void ucx_shm_leave(struct ucx_shm *shm); /* nothing when fd is -1 */
/*
 * Whether less is free there than `ranks` engines need to begin; why then says so. false also where
 * fd is -1.
 */
bool ucx_shm_is_short(const struct ucx_shm *shm, int ranks, char *why, size_t why_bytes);

#endif
