/*
 * place.h: gpt2d's state directory and socket, which no other gpt2d uses. A lock file beside each
 * decides who owns it. gpt2d replaces a socket that a dead process left behind, and never one that
 * a live process listens on.
 */
#ifndef GPT2D_DAEMON_CONFIG_PLACE_H
#define GPT2D_DAEMON_CONFIG_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct settings;

/* Who may connect. */
struct place_access {
	mode_t mode;
	gid_t group; /* (gid_t)-1: the process's own */
};
struct place_access place_access(const struct settings *s);

/* Identifies a file behind a name. */
struct place_mark {
	dev_t device;
	ino_t inode;
};

/* The following return 0, or a negative errno with error. */

/* Make dir and its parents, 0700 and durable. */
int place_make_dirs(const char *dir, char *error, size_t error_bytes);
/* Make the socket's folder if it does not exist, so that users of the socket can enter it. */
int place_make_socket_dir(
	const char *socket, const struct place_access *access, char *error, size_t error_bytes);
/* Lock path.lock for the life of *fd; -EBUSY names the process that holds the lock. */
int place_lock(const char *path, int *fd, char *error, size_t error_bytes);
/* Lock the folder itself: this lock remains if somebody removes the lock file in the folder. */
int place_lock_dir(const char *dir, int *fd, char *error, size_t error_bytes);

/*
 * Checks what place_bind requires of the path: its length, its folder, and a socket or nothing
 * there.
 */
int place_check_socket(const char *path, char *error, size_t error_bytes);
/*
 * Bind a socket to path. The socket gets its mode and group before it listens, and never a wider
 * mode. -EBUSY: another process listens there. The caller holds the lock.
 */
int place_bind(const char *path, const struct place_access *access, int *fd,
	struct place_mark *mark, char *error, size_t error_bytes);

/* Whether path is still the file of mark. */
bool place_unchanged(const char *path, const struct place_mark *mark);
/* Remove path if it is still that file. */
void place_unlink(const char *path, const struct place_mark *mark);

#endif
