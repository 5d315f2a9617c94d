#include "daemon/config/reserve.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "proto/host/filesystem.h"
#include "proto/state_files.h"

static int reserve_path(const char *state_dir, char out[PATH_MAX])
{
	int n = snprintf(out, PATH_MAX, "%s/" STATE_RESERVE, state_dir);

	return n >= 0 && n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int see_room(const char *state_dir)
{
	char database[PATH_MAX];
	struct statvfs fs;

	/* another directory may have come in its place: nothing is left there */
	snprintf(database, sizeof(database), "%s/" STATE_DATABASE, state_dir);
	if (access(database, F_OK) < 0)
		return -errno;
	if (statvfs(state_dir, &fs) < 0)
		return -errno;
	return (int64_t)fs.f_bavail * (int64_t)fs.f_frsize < RESERVE_BYTES + RESERVE_BYTES / 4
		? -ENOSPC
		: 0;
}

int reserve_make(const char *state_dir)
{
	char path[PATH_MAX];
	struct stat st;
	int fd, rc = reserve_path(state_dir, path);

	if (rc < 0)
		return rc;
	if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode))
		return -EEXIST; /* not ours: opening it might not end */
	if (lstat(path, &st) == 0 && st.st_size == RESERVE_BYTES)
		return 0;
	rc = see_room(state_dir);
	if (rc < 0)
		return rc;
	fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	rc = -posix_fallocate(fd, 0, RESERVE_BYTES);
	close(fd);
	if (rc < 0)
		unlink(path);
	return rc;
}

int reserve_release(const char *state_dir)
{
	char path[PATH_MAX];
	int rc = reserve_path(state_dir, path);

	if (rc < 0)
		return rc;
	if (unlink(path) < 0)
		return -errno;
	/* some file systems keep what was freed until that is on disk */
	return filesystem_sync(state_dir);
}
