#include "daemon/config/scratch.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/config/log.h"

#define PREFIX ".check-"

enum {
	RANDOM_CHARS = 6,
	TRIES = 3,        /* a gpt2d may sweep it before its lock is taken */
	SWEPT_MAX = 1000, /* at one start */
	DIR_FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
};

static int make_locked(struct scratch *scratch, const char *folder)
{
	struct stat ours, there;
	int rc;

	if (snprintf(scratch->path, sizeof(scratch->path), "%s/" PREFIX "XXXXXX", folder) >=
		(int)sizeof(scratch->path))
		return -ENAMETOOLONG;
	if (mkdtemp(scratch->path) == NULL)
		return -errno;
	scratch->fd = open(scratch->path, DIR_FLAGS);
	if (scratch->fd < 0) {
		rc = -errno;
		rmdir(scratch->path);
		return rc == -ENOENT ? -EAGAIN : rc;
	}
	/* without a lock, as on some file systems, it is only not told from one that was left */
	flock(scratch->fd, LOCK_SH);
	if (fstat(scratch->fd, &ours) == 0 && stat(scratch->path, &there) == 0 &&
		ours.st_ino == there.st_ino && ours.st_dev == there.st_dev)
		return 0;
	close(scratch->fd);
	return -EAGAIN;
}

int scratch_make(struct scratch *scratch, const char *folder)
{
	int rc = -EAGAIN;

	for (int i = 0; i < TRIES && rc == -EAGAIN; i++)
		rc = make_locked(scratch, folder);
	return rc;
}

static void empty(int fd)
{
	static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
	char name[32];

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
		snprintf(name, sizeof(name), SCRATCH_DATABASE "%s", suffixes[i]);
		unlinkat(fd, name, 0);
	}
}

void scratch_remove(struct scratch *scratch)
{
	empty(scratch->fd);
	rmdir(scratch->path);
	close(scratch->fd);
}

static bool is_one(const char *name)
{
	const size_t n = sizeof(PREFIX) - 1;

	if (strncmp(name, PREFIX, n) != 0 || strlen(name) != n + RANDOM_CHARS)
		return false;
	for (size_t i = n; name[i] != '\0'; i++)
		if (!isalnum((unsigned char)name[i]))
			return false;
	return true;
}

/* 1: it was left and is gone; 0: it is none, another's or in use; else a negative errno. */
static int remove_left(int parent, const char *name)
{
	int fd = openat(parent, name, DIR_FLAGS), rc = 0;
	struct stat st;

	if (fd < 0)
		return errno == ELOOP || errno == ENOTDIR || errno == EACCES ? 0 : -errno;
	if (fstat(fd, &st) < 0)
		rc = -errno;
	else if (st.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0)
		rc = 1;
	if (rc == 1)
		empty(fd);
	if (rc == 1 && unlinkat(parent, name, AT_REMOVEDIR) < 0)
		rc = -errno;
	close(fd);
	return rc;
}

static void sweep(const char *folder)
{
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc, removed = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (dir == NULL) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while (removed < SWEPT_MAX && (entry = readdir(dir)) != NULL) {
		if (!is_one(entry->d_name))
			continue;
		rc = remove_left(fd, entry->d_name);
		removed += rc > 0;
		if (rc < 0)
			log_write(LOG_WARNING,
				"%s/%s: left by a gpt2d --check, cannot be removed: %s", folder,
				entry->d_name, strerror(-rc));
	}
	closedir(dir);
	if (removed > 0)
		log_write(LOG_INFO,
			"%s: %d " PREFIX "XXXXXX folder%s of a gpt2d --check that was"
			" killed: removed",
			folder, removed, removed == 1 ? "" : "s");
}

void scratch_sweep(const char *state_dir)
{
	char path[PATH_MAX], *at = path;

	snprintf(path, sizeof(path), "%s", state_dir);
	do {
		sweep(at);
		if (strcmp(at, "/") == 0)
			break;
		at = dirname(at);
	} while (faccessat(AT_FDCWD, at, W_OK, AT_EACCESS) == 0);
}
