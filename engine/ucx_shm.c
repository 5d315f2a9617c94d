#include "engine/ucx_shm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Others hold the exclusive lock for the moment of a removal: a second is plenty. */
enum { LOCK_TRIES = 1000 };

static int find_path(char *out, size_t out_bytes)
{
	const char *parent = getenv("UCX_POSIX_DIR");
	char own[32];
	size_t n;

	snprintf(own, sizeof own, "/gpt2d-%u", (unsigned)geteuid());
	if (parent == NULL || parent[0] == '\0')
		parent = "/dev/shm";
	n = strlen(parent);
	if (n >= strlen(own) && strcmp(parent + n - strlen(own), own) == 0)
		own[0] = '\0';
	return snprintf(out, out_bytes, "%s%s", parent, own) < (int)out_bytes ? 0 : -ENAMETOOLONG;
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

int ucx_shm_enter(struct ucx_shm *shm)
{
	int status = find_path(shm->path, sizeof shm->path);

	shm->fd = -1;
	if (status != 0)
		return status;
	for (int i = 0; i < LOCK_TRIES; i++) {
		int fd = open_own(shm->path);

		if (fd < 0 && fd != -ENOENT)
			return fd;
		if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
			remove_files(fd);
		if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0 && still_there(fd, shm->path)) {
			if (setenv("UCX_POSIX_DIR", shm->path, 1) == 0) {
				shm->fd = fd;
				return 0;
			}
			close(fd);
			return -ENOMEM;
		}
		if (fd >= 0)
			close(fd);
		nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
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
