#include "proto/host/shm_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANDOM_CHARS = 6 };

int shm_folder_path(char *out, size_t out_bytes)
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

static bool is_own(int parent, const char *name)
{
	struct stat st;

	return fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) &&
		st.st_uid == geteuid() && (st.st_mode & 077) == 0;
}

int shm_folder_next(const char *path, const char *after, char *out, size_t out_bytes)
{
	const char *name = strrchr(path, '/') + 1;
	const size_t parent_n = (size_t)(name - path), name_n = strlen(name);
	char parent[PATH_MAX], best[NAME_MAX + 1] = "";
	const char *least = after != NULL ? strrchr(after, '/') + 1 : "";
	const struct dirent *entry;
	DIR *dir;

	if (parent_n >= sizeof parent)
		return -ENAMETOOLONG;
	snprintf(parent, sizeof parent, "%.*s", (int)parent_n, path);
	dir = opendir(parent);
	if (dir == NULL)
		return -errno;
	while ((entry = readdir(dir)) != NULL)
		if (strncmp(entry->d_name, name, name_n) == 0 && entry->d_name[name_n] == '-' &&
			strlen(entry->d_name) == name_n + 1 + RANDOM_CHARS &&
			strcmp(entry->d_name, least) > 0 &&
			(best[0] == '\0' || strcmp(entry->d_name, best) < 0) &&
			is_own(dirfd(dir), entry->d_name))
			snprintf(best, sizeof best, "%s", entry->d_name);
	closedir(dir);
	if (best[0] == '\0')
		return -ENOENT;
	return snprintf(out, out_bytes, "%s%s", parent, best) < (int)out_bytes ? 0 : -ENAMETOOLONG;
}

int shm_folder_open(const char *path)
{
	const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	int status;

	if (fd < 0)
		return -errno;
	status = fstat(fd, &st) != 0 ? -errno : 0;
	if (status == 0 && (st.st_uid != geteuid() || (st.st_mode & 077) != 0))
		status = -EPERM;
	if (status != 0)
		close(fd);
	return status != 0 ? status : fd;
}

void shm_folder_empty(int fd)
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

void shm_folder_remove_unused(int fd, const char *path)
{
	if (flock(fd, LOCK_EX | LOCK_NB) != 0)
		return;
	shm_folder_empty(fd);
	rmdir(path);
}

static void sweep_one(const char *path)
{
	const int fd = shm_folder_open(path);

	if (fd < 0)
		return;
	shm_folder_remove_unused(fd, path);
	close(fd);
}

void shm_folder_sweep(void)
{
	char path[PATH_MAX], other[PATH_MAX];
	const char *after = NULL;

	if (shm_folder_path(path, sizeof path) != 0)
		return;
	sweep_one(path);
	while (shm_folder_next(path, after, other, sizeof other) == 0) {
		sweep_one(other);
		after = other;
	}
}
