#include "engine/comm/ucx_shm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "proto/host/clock.h"
#include "proto/host/shm_folder.h"

/* Others hold the exclusive lock only during a removal: a second is enough. */
enum { LOCK_TRIES = 1000 };

/* UCX 1.13 needs 4.1 MiB for a worker; with a reserve. */
enum { RANK_BYTES = 5 << 20, RANK_FILES = 2 };

/* -EAGAIN: another process is removing it. */
static int open_own(const char *path)
{
	int fd;

	if (mkdir(path, 0700) != 0 && errno != EEXIST)
		return -errno;
	fd = shm_folder_open(path);
	return fd == -ENOENT ? -EAGAIN : fd;
}

/* Whether the last user removed the directory before the lock was acquired. */
static bool still_there(int fd, const char *path)
{
	struct stat here, there;

	return fstat(fd, &here) == 0 && stat(path, &there) == 0 && here.st_dev == there.st_dev &&
		here.st_ino == there.st_ino;
}

/* Locks it, and passes its name to UCX. 0, -EAGAIN: it is being removed; or the error. */
static int enter_path(struct ucx_shm *shm)
{
	int fd = open_own(shm->path), status = -EAGAIN;

	if (fd < 0)
		return fd;
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		shm_folder_empty(fd);
	if (flock(fd, LOCK_SH | LOCK_NB) == 0 && still_there(fd, shm->path))
		status = setenv("UCX_POSIX_DIR", shm->path, 1) == 0 ? 0 : -ENOMEM;
	if (status == 0)
		shm->fd = fd;
	else
		close(fd);
	return status;
}

/* A directory of this user that a killed engine has left, else a new one. */
static int find_random(const char *path, char *out, size_t out_bytes)
{
	int rc = shm_folder_find(path, out, out_bytes);

	if (rc != -ENOENT)
		return rc;
	if (snprintf(out, out_bytes, "%s-XXXXXX", path) >= (int)out_bytes)
		return -ENAMETOOLONG;
	return mkdtemp(out) != NULL ? 0 : -errno;
}

int ucx_shm_enter(struct ucx_shm *shm)
{
	char path[sizeof shm->path];
	int status = shm_folder_path(path, sizeof path);

	shm->fd = -1;
	if (status != 0)
		return status;
	for (int i = 0; i < LOCK_TRIES; i++) {
		memcpy(shm->path, path, sizeof path);
		status = enter_path(shm);
		if (status != 0 && status != -EAGAIN && status != -ENOMEM && status != -ENOENT) {
			/*
			 * another user has the name: peers find files through /proc, without names
			 */
			status = find_random(path, shm->path, sizeof shm->path);
			if (status == 0)
				status = enter_path(shm);
		}
		if (status != -EAGAIN)
			return status;
		nanosleep(&(struct timespec){.tv_nsec = CLOCK_MS_NS}, NULL);
	}
	return -EBUSY;
}

void ucx_shm_leave(struct ucx_shm *shm)
{
	if (shm->fd < 0)
		return;
	shm_folder_remove_unused(shm->fd, shm->path);
	close(shm->fd);
	shm->fd = -1;
}

bool ucx_shm_is_short(const struct ucx_shm *shm, int ranks, char *why, size_t why_bytes)
{
	const int64_t needed = (int64_t)ranks * RANK_BYTES, files = (int64_t)ranks * RANK_FILES;
	struct statvfs fs;
	int64_t size, room;

	if (shm->fd < 0 || fstatvfs(shm->fd, &fs) != 0)
		return false;
	size = (int64_t)fs.f_blocks * (int64_t)fs.f_frsize;
	room = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
	if (room >= needed && (fs.f_files == 0 || (int64_t)fs.f_favail >= files))
		return false;
	if (room >= needed) {
		snprintf(why, why_bytes,
			"%s: %" PRIu64 " of %" PRIu64 " files (inodes) free, %" PRId64
			" needed by %d ranks",
			shm->path, (uint64_t)fs.f_favail, (uint64_t)fs.f_files, files, ranks);
		return true;
	}
	snprintf(why, why_bytes,
		"%s: %" PRId64 " of %" PRId64 " MiB free, %" PRId64
		" MiB needed by %d ranks (of a container: --shm-size)",
		shm->path, room >> 20, size >> 20, needed >> 20, ranks);
	return true;
}
