#include "daemon/runs/trash.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/runs/run_files.h"
#include "proto/host/filesystem.h"
#include "proto/state_files.h"

enum { TRASH_MODE = 0700 };

/* The folder of an attempt of the run, and its place in the trash. */
static int find_places(const char *state_dir, const struct run *run, int64_t attempt,
	char from[PATH_MAX], char to[PATH_MAX])
{
	struct run one = *run;
	int n, rc;

	one.attempt = attempt;
	rc = run_dir(&one, state_dir, from, PATH_MAX);
	if (rc < 0)
		return rc;
	n = snprintf(to, PATH_MAX, "%s/" STATE_TRASH "/%s", state_dir, strrchr(from, '/') + 1);
	return n >= 0 && n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

int trash_move(const char *state_dir, const struct run *run)
{
	char from[PATH_MAX], to[PATH_MAX], trash[PATH_MAX];
	int n = snprintf(trash, sizeof(trash), "%s/" STATE_TRASH, state_dir);
	int rc = n >= 0 && n < PATH_MAX ? 0 : -ENAMETOOLONG;

	if (rc == 0 && mkdir(trash, TRASH_MODE) < 0 && errno != EEXIST)
		rc = -errno;
	for (int64_t i = 1; i <= run->attempt && rc == 0; i++) {
		rc = find_places(state_dir, run, i, from, to);
		if (rc == 0 && rename(from, to) < 0 && errno != ENOENT)
			rc = -errno;
	}
	if (rc == 0)
		rc = filesystem_sync(trash);
	if (rc < 0)
		return rc;
	*strrchr(trash, '/') = '\0';
	return filesystem_sync(trash);
}

int trash_empty(const char *state_dir, const struct run *run)
{
	char from[PATH_MAX], to[PATH_MAX];
	int rc = 0;

	for (int64_t i = 1; i <= run->attempt && rc == 0; i++) {
		rc = find_places(state_dir, run, i, from, to);
		/* moves a link in place of the folder, but not its target */
		if (rc == 0 && unlink(to) < 0)
			rc = run_files_remove(to);
	}
	return rc;
}

void trash_remove(const char *state_dir, const struct run *run)
{
	char from[PATH_MAX], to[PATH_MAX];

	for (int64_t i = 1; i <= run->attempt; i++)
		if (find_places(state_dir, run, i, from, to) == 0)
			rmdir(to);
}

static bool is_missing(const char *path)
{
	struct stat st;

	return lstat(path, &st) < 0 && errno == ENOENT;
}

bool trash_finds(const char *state_dir, const struct run *run)
{
	char from[PATH_MAX], to[PATH_MAX];

	for (int64_t i = 1; i <= run->attempt; i++)
		if (find_places(state_dir, run, i, from, to) < 0 || !is_missing(from) ||
			!is_missing(to))
			return true;
	return false;
}

int64_t trash_bytes(const char *state_dir, const struct run *run)
{
	char from[PATH_MAX], to[PATH_MAX];
	int64_t bytes = 0;

	for (int64_t i = 1; i <= run->attempt; i++)
		if (find_places(state_dir, run, i, from, to) == 0)
			bytes += run_files_bytes(from);
	return bytes;
}

int trash_each(const char *state_dir, int (*each)(int64_t id, void *arg), void *arg)
{
	const struct dirent *entry;
	char path[PATH_MAX];
	DIR *stream;
	int rc = 0;

	snprintf(path, sizeof(path), "%s/" STATE_TRASH, state_dir);
	stream = opendir(path);
	if (stream == NULL)
		return errno == ENOENT ? 0 : -errno;
	while (rc == 0 && (entry = readdir(stream)) != NULL)
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
			rc = each(strtoll(entry->d_name, NULL, 10), arg);
	closedir(stream);
	return rc;
}

int trash_empty_all(const char *state_dir)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/" STATE_TRASH, state_dir);
	return run_files_remove(path);
}
