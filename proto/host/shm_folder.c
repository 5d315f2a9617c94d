#include "proto/host/shm_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
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

/* The folders with the second name of path, by name; the caller calls globfree(). */
static void find_all(const char *path, glob_t *found)
{
	char pattern[PATH_MAX + 8];

	*found = (glob_t){0};
	snprintf(pattern, sizeof pattern, "%s-??????", path);
	glob(pattern, 0, NULL, found);
}

int shm_folder_find(const char *path, char *out, size_t out_bytes)
{
	int fd, rc = -ENOENT;
	glob_t found;

	find_all(path, &found);
	for (size_t i = 0; i < found.gl_pathc && rc == -ENOENT; i++) {
		fd = shm_folder_open(found.gl_pathv[i]);
		if (fd < 0)
			continue;
		close(fd);
		rc = snprintf(out, out_bytes, "%s", found.gl_pathv[i]) < (int)out_bytes
			? 0
			: -ENAMETOOLONG;
	}
	globfree(&found);
	return rc;
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
	char path[PATH_MAX];
	glob_t found;

	if (shm_folder_path(path, sizeof path) != 0)
		return;
	sweep_one(path);
	find_all(path, &found);
	for (size_t i = 0; i < found.gl_pathc; i++)
		sweep_one(found.gl_pathv[i]);
	globfree(&found);
}
