#include "engine/ucx_shm.h"

#include <dirent.h>
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

#include "proto/clock.h"

/* Others hold the exclusive lock for the moment of a removal: a second is plenty. */
enum { LOCK_TRIES = 1000 };

enum { RANDOM_CHARS = 6 };

/* What UCX 1.13 takes for a worker, 4.1 MiB, and some more. */
enum { RANK_BYTES = 5 << 20 };

/* <parent>/gpt2d-<uid>, or what an earlier enter of this process has named. */
static int find_path(char *out, size_t out_bytes)
{
	const char *parent = getenv("UCX_POSIX_DIR");
	char own[32];
	size_t n, own_n;

	snprintf(own, sizeof own, "/gpt2d-%u", (unsigned)geteuid());
	own_n = strlen(own);
	if (parent == NULL || parent[0] == '\0')
		parent = "/dev/shm";
	n = strlen(parent);
	if (n > own_n + 1 + RANDOM_CHARS && parent[n - RANDOM_CHARS - 1] == '-' &&
		strncmp(parent + n - RANDOM_CHARS - 1 - own_n, own, own_n) == 0)
		n -= own_n + 1 + RANDOM_CHARS;
	else if (n >= own_n && strcmp(parent + n - own_n, own) == 0)
		n -= own_n;
	if (snprintf(out, out_bytes, "%.*s%s", (int)n, parent, own) >= (int)out_bytes)
		return -ENAMETOOLONG;
	return 0;
}

/* With the exclusive lock held: no process that could still want a file of it lives. */
static void remove_files(int fd)
{
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *entry;

	if (dir == NULL) {
		if (copy >= 0)
			close(copy);
		return;
	}
	while ((entry = readdir(dir)) != NULL)
		if (strncmp(entry->d_name, "ucx_shm_posix_", strlen("ucx_shm_posix_")) == 0)
			unlinkat(fd, entry->d_name, 0);
	closedir(dir);
}

static int open_own(const char *path)
{
	struct stat st;
	int fd, status;

	if (mkdir(path, 0700) != 0 && errno != EEXIST)
		return -errno;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	status = fstat(fd, &st) != 0 ? -errno : 0;
	if (status == 0 && (st.st_uid != geteuid() || (st.st_mode & 077) != 0))
		status = -EPERM;
	if (status != 0) {
		close(fd);
		return status;
	}
	return fd;
}

/* Was the directory removed by the last one to leave before the lock was got? */
static bool still_there(int fd, const char *path)
{
	struct stat here, there;

	return fstat(fd, &here) == 0 && stat(path, &there) == 0 && here.st_dev == there.st_dev &&
		here.st_ino == there.st_ino;
}

/* Locked, and named to UCX. 0, -EAGAIN: it is being removed; or what is wrong with it. */
static int enter_path(struct ucx_shm *shm)
{
	int fd = open_own(shm->path), status = -EAGAIN;

	if (fd < 0)
		return fd == -ENOENT ? -EAGAIN : fd;
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		remove_files(fd);
	if (flock(fd, LOCK_SH | LOCK_NB) == 0 && still_there(fd, shm->path))
		status = setenv("UCX_POSIX_DIR", shm->path, 1) == 0 ? 0 : -ENOMEM;
	if (status == 0)
		shm->fd = fd;
	else
		close(fd);
	return status;
}

/* One of this user's that was left by an engine that was killed, else a new one. */
static int find_random(const char *path, char *out, size_t out_bytes)
{
	const char *name = strrchr(path, '/') + 1;
	const size_t parent_n = (size_t)(name - path), name_n = strlen(name);
	char parent[256];
	struct dirent *entry;
	bool found = false;
	DIR *dir;

	snprintf(parent, sizeof parent, "%.*s", (int)parent_n, path);
	dir = opendir(parent);
	if (dir == NULL)
		return -errno;
	while (!found && (entry = readdir(dir)) != NULL) {
		struct stat st;

		if (strncmp(entry->d_name, name, name_n) != 0 || entry->d_name[name_n] != '-' ||
			strlen(entry->d_name) != name_n + 1 + RANDOM_CHARS ||
			fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
			!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) != 0)
			continue;
		found = snprintf(out, out_bytes, "%s%s", parent, entry->d_name) < (int)out_bytes;
	}
	closedir(dir);
	if (found)
		return 0;
	if (snprintf(out, out_bytes, "%s-XXXXXX", path) >= (int)out_bytes)
		return -ENAMETOOLONG;
	return mkdtemp(out) != NULL ? 0 : -errno;
}

int ucx_shm_enter(struct ucx_shm *shm)
{
	char path[sizeof shm->path];
	int status = find_path(path, sizeof path);

	shm->fd = -1;
	if (status != 0)
		return status;
	for (int i = 0; i < LOCK_TRIES; i++) {
		memcpy(shm->path, path, sizeof path);
		status = enter_path(shm);
		if (status != 0 && status != -EAGAIN && status != -ENOMEM) {
			/* the name is another's: peers find files through /proc, by no name */
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
	if (flock(shm->fd, LOCK_EX | LOCK_NB) == 0) {
		remove_files(shm->fd);
		rmdir(shm->path);
	}
	close(shm->fd);
	shm->fd = -1;
}

bool ucx_shm_is_short(const struct ucx_shm *shm, int ranks, char *why, size_t why_bytes)
{
	const int64_t needed = (int64_t)ranks * RANK_BYTES;
	struct statvfs fs;
	int64_t size, room;

	if (shm->fd < 0 || fstatvfs(shm->fd, &fs) != 0)
		return false;
	size = (int64_t)fs.f_blocks * (int64_t)fs.f_frsize;
	room = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
	if (room >= needed)
		return false;
	snprintf(why, why_bytes,
		"%s: %" PRId64 " of %" PRId64 " MiB free, %" PRId64
		" MiB needed by %d ranks (of a container: --shm-size)",
		shm->path, room >> 20, size >> 20, needed >> 20, ranks);
	return true;
}
