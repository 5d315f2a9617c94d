/*
 * place.h: where gpt2d keeps its socket and its state, and that nobody else does: each is owned by
 * whoever holds the lock of a file beside it. A socket that was left behind is replaced, one whose
 * owner lives never is, whether that answers or not.
 */
#ifndef GPT2D_DAEMON_CONFIG_PLACE_H
#define GPT2D_DAEMON_CONFIG_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* All: 0, or a negative errno with error. */

/* Make dir and what is above it (each 0700); names of what is made are on disk then. */
int place_make_dirs(const char *dir, char *error, size_t error_bytes);
/* Lock path.lock for the life of *fd: -EBUSY names the process that holds it. */
int place_lock(const char *path, int *fd, char *error, size_t error_bytes);
/* The same without patience for one that is about to let go. */
int place_lock_now(const char *path, int *fd, char *error, size_t error_bytes);
/* The words for that; owner: what is in path.lock, perhaps nothing. */
void place_say_locked(const char *path, const char *owner, char *error, size_t error_bytes);
/* Lock a folder itself: unlike a file in it, its lock does not go with somebody's rm. */
int place_lock_dir(const char *dir, int *fd, char *error, size_t error_bytes);
/* Whether path.lock still is the file that fd has locked. */
bool place_lock_stands(const char *path, int fd);
/* Which file a name stood for. */
struct place_mark {
	dev_t device;
	ino_t inode;
};
/* Who may connect: mode and group ((gid_t)-1: as it comes). */
struct place_access {
	mode_t mode;
	gid_t group;
};
/* What place_bind asks of a path that is to be a socket: its length, its folder, what is there. */
int place_check_socket(const char *path, char *error, size_t error_bytes);
/* The socket's folder, if it is not there: entered by those who may connect. */
int place_make_socket_dir(
	const char *dir, const struct place_access *access, char *error, size_t error_bytes);
/*
 * A bound socket that has its mode and group before anybody can connect, and is never open wider
 * than that; -EPERM when its folder lets anybody put another one in its place. The lock must be
 * held.
 */
int place_bind(const char *path, const struct place_access *access, int *fd,
	struct place_mark *mark, char *error, size_t error_bytes);
/* Whether path is still what mark was taken of. */
bool place_stands(const char *path, const struct place_mark *mark);
/* Whether somebody listens at the socket path. */
bool place_answers(const char *path);
/* Remove the socket if the name still stands for it. */
void place_unlink(const char *path, const struct place_mark *mark);

#endif
