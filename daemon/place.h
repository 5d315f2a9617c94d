/*
 * place.h: where gpt2d keeps its socket and its state, and that nobody else does: each is owned by
 * whoever holds the lock of a file beside it. A socket that was left behind is replaced, one whose
 * owner lives never is, whether that answers or not.
 */
#ifndef GPT2D_PLACE_H
#define GPT2D_PLACE_H

#include <stddef.h>
#include <sys/types.h>

/* All: 0, or a negative errno with error. */

/* Make dir and what is above it (each 0700). */
int place_make_dirs(const char *dir, char *error, size_t error_bytes);
/* Lock path.lock for the life of *fd: -EBUSY names the process that holds it. */
int place_lock(const char *path, int *fd, char *error, size_t error_bytes);
/* Which file a name stood for. */
struct place_mark {
	dev_t device;
	ino_t inode;
};
/* A bound socket, mode 0600 from its first moment; the lock must be held. */
int place_bind(const char *path, int *fd, struct place_mark *mark, char *error, size_t error_bytes);
/* Remove the socket if the name still stands for it. */
void place_unlink(const char *path, const struct place_mark *mark);

#endif
