#include "daemon/runs/trash.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/host/filesystem.h"
#include "daemon/runs/run_files.h"
#include "proto/state_files.h"
#include "proto/artifact.h"

static int trash_path(const char *state_dir, const char *name, char out[PATH_MAX])
{
	int n = snprintf(
		out, PATH_MAX, "%s/" STATE_TRASH "%s%s", state_dir, *name ? "/" : "", name);

	return n >= 0 && n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* Where an attempt of the run is, and where in the trash. */
static int places(const char *state_dir, const struct run *run, int64_t attempt,
	char from[PATH_MAX], char to[PATH_MAX])
{
	struct run one = *run;
	int rc;

	one.attempt = attempt;
	rc = run_dir(&one, state_dir, from, PATH_MAX);
	return rc < 0 ? rc : trash_path(state_dir, strrchr(from, '/') + 1, to);
}

static int sync_dir(const char *state_dir, const char *name)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/%s", state_dir, name) >= PATH_MAX)
		return -ENAMETOOLONG;
	return filesystem_sync(path);
}

/* What decides it is durable before anything goes; then the marker, as what is left is no run. */
static int leave_in_place(const char *state_dir, const char *from, const char *to)
{
	int rc = mkdir(to, 0700) < 0 && errno != EEXIST ? -errno : sync_dir(state_dir, STATE_TRASH);

	if (rc == 0)
		rc = artifact_remove(from, ARTIFACT_COMPLETE);
	return rc == -ENOENT ? 0 : rc;
}

int trash_move(const char *state_dir, const struct run *run)
{
	char from[PATH_MAX], to[PATH_MAX];
	int rc = trash_path(state_dir, "", to);

	if (rc == 0 && mkdir(to, 0700) < 0 && errno != EEXIST)
		rc = -errno;
	for (int64_t i = 1; i <= run->attempt && rc == 0; i++) {
		rc = places(state_dir, run, i, from, to);
		if (rc == 0 && rename(from, to) < 0 && errno != ENOENT)
			rc = errno == EXDEV ? leave_in_place(state_dir, from, to) : -errno;
	}
	if (rc == 0)
		rc = sync_dir(state_dir, STATE_TRASH);
	return rc < 0 ? rc : sync_dir(state_dir, STATE_RUNS);
}

/* What could not be moved. */
static int remove_in_place(const char *state_dir, const char *from, int64_t *budget)
{
	int64_t bytes = 0;
	int rc = run_files_remove(from, budget, &bytes);

	if (rc == 0 && rmdir(from) < 0)
		return errno == ENOENT ? 0 : -errno;
	return rc < 0 ? rc : sync_dir(state_dir, STATE_RUNS);
}

int trash_empty(const char *state_dir, const struct run *run, int64_t budget)
{
	char from[PATH_MAX], to[PATH_MAX];
	int64_t bytes = 0;
	int rc = 0;

	for (int64_t i = 1; i <= run->attempt && rc == 0; i++) {
		rc = places(state_dir, run, i, from, to);
		if (rc == 0)
			rc = run_files_remove(to, &budget, &bytes);
		/* somebody's link in the place of the folder goes, what it leads to stays */
		if ((rc == -ENOTDIR || rc == -ELOOP) && (unlink(to) == 0 || errno == ENOENT))
			rc = 0;
		if (rc == 0)
			rc = remove_in_place(state_dir, from, &budget);
	}
	return rc;
}

int trash_clear(const char *state_dir, const struct run *run)
{
	char from[PATH_MAX], to[PATH_MAX];
	int64_t budget = INT64_MAX;
	int rc = 0;

	for (int64_t i = 1; i <= run->attempt && rc == 0; i++) {
		rc = places(state_dir, run, i, from, to);
		if (rc == 0)
			rc = remove_in_place(state_dir, from, &budget);
	}
	return rc;
}

int trash_remove(const char *state_dir, const struct run *run)
{
	char from[PATH_MAX], to[PATH_MAX];
	int rc = 0;

	for (int64_t i = 1; i <= run->attempt && rc == 0; i++) {
		rc = places(state_dir, run, i, from, to);
		if (rc == 0 && rmdir(to) < 0 && errno != ENOENT)
			rc = -errno;
	}
	return rc;
}

static bool is_absent(const char *path)
{
	struct stat st;

	return lstat(path, &st) < 0 && errno == ENOENT;
}

bool trash_finds(const char *state_dir, const struct run *run)
{
	char from[PATH_MAX], to[PATH_MAX];

	for (int64_t i = 1; i <= run->attempt; i++)
		if (places(state_dir, run, i, from, to) < 0 || !is_absent(from) || !is_absent(to))
			return true;
	return false;
}

int64_t trash_bytes(const char *state_dir, const struct run *run)
{
	char from[PATH_MAX], to[PATH_MAX];
	int64_t bytes = 0;

	for (int64_t i = 1; i <= run->attempt; i++)
		if (places(state_dir, run, i, from, to) == 0)
			bytes += run_files_bytes(from);
	return bytes;
}

int trash_each(const char *state_dir, int (*each)(int64_t id, void *arg), void *arg)
{
	const struct dirent *entry;
	char path[PATH_MAX];
	DIR *stream;
	int rc = trash_path(state_dir, "", path);

	stream = rc == 0 ? opendir(path) : NULL;
	if (stream == NULL)
		return rc < 0 ? rc : errno == ENOENT ? 0 : -errno;
	while (rc == 0 && (entry = readdir(stream)) != NULL)
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
			rc = each(strtoll(entry->d_name, NULL, 10), arg);
	closedir(stream);
	return rc;
}

int trash_empty_all(const char *state_dir, int64_t budget)
{
	char path[PATH_MAX];
	int64_t bytes = 0;
	int rc = trash_path(state_dir, "", path);

	return rc < 0 ? rc : run_files_remove(path, &budget, &bytes);
}
