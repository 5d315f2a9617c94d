/*
 * ucx_shm.h: the directory in which UCX creates its shared memory.
 *
 * UCX unlinks a segment's file right after creating it, and peers open it through /proc; but a
 * process that is killed in between leaves the file behind (seen in 2 of 100 kills at random
 * moments; System V segments leak the same way). So the files are created in a directory for this
 * user's engines only, <parent>/gpt2d-<uid>, or <parent>/gpt2d-<uid>-XXXXXX if another user has
 * taken that name (proto/host/shm_folder.h). Every engine holds a shared lock on it. An engine that
 * is alone when it enters or leaves removes the content, and the last one also the directory.
 */
#ifndef GPT2D_ENGINE_COMM_UCX_SHM_H
#define GPT2D_ENGINE_COMM_UCX_SHM_H

#include <stdbool.h>
#include <stddef.h>

struct ucx_shm {
	int fd; /* the directory, locked; -1 before entering */
	char path[256];
};

/*
 * Parent: UCX_POSIX_DIR, else /dev/shm; UCX_POSIX_DIR then names the directory. 0 or a negative
 * errno: that of the parent, if nothing can be created. After a failure there is nothing to leave.
 */
int ucx_shm_enter(struct ucx_shm *shm);
void ucx_shm_leave(struct ucx_shm *shm); /* nothing when fd is -1 */
/*
 * Whether less is free there than `ranks` engines need to start; then why has the figures. Also
 * false if fd is -1.
 */
bool ucx_shm_is_short(const struct ucx_shm *shm, int ranks, char *why, size_t why_bytes);

#endif
