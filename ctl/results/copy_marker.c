#include "ctl/results/copy_marker.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/results/copy_target.h"
#include "ctl/print/format.h"
#include "proto/artifact.h"

int copy_marker_turn(const char *path)
{
	if (strcmp(copy_target_name(path), ARTIFACT_COMPLETE) != 0)
		return 0;
	return strchr(path, '/') ? 1 : COPY_MARKER_LAST_TURN;
}

const char *copy_marker_lacks(const json_t *files, const char *marker, const char *lacking)
{
	const size_t folder = strlen(marker) - strlen(ARTIFACT_COMPLETE);
	const json_t *file;
	size_t i;

	json_array_foreach(files, i, file) {
		const char *path = json_string_value(json_object_get(file, "path"));

		if (strncmp(path ? path : marker, marker, folder) == 0 &&
			json_object_get(file, lacking) != NULL)
			return path ? path : "";
	}
	return NULL;
}

static bool is_there(int folder, const char *name)
{
	struct stat st;

	return fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Whether the file name in folder is the run's marker at path, to the byte. */
static bool is_marker(const json_t *files, int folder, const char *path)
{
	const char *known, *sha256;
	const json_t *file;
	size_t i;

	json_array_foreach(files, i, file) {
		known = json_string_value(json_object_get(file, "path"));
		sha256 = json_string_value(json_object_get(file, "sha256"));
		if (known != NULL && sha256 != NULL && strcmp(known, path) == 0)
			return copy_target_has(folder, ARTIFACT_COMPLETE,
				format_int(file, "bytes", -1), sha256);
	}
	return false;
}

/* It is off the disk before what it vouches for is written. 0, or a negative errno. */
static int remove_marker(int folder)
{
	if (unlinkat(folder, ARTIFACT_COMPLETE, 0) < 0)
		return errno == ENOENT ? 0 : -errno;
	return fsync(folder) < 0 ? -errno : 0;
}

int copy_marker_drop(int dir, const json_t *files, const char *path, bool replaces)
{
	char marker[PATH_MAX];
	const char *rest = path;
	int rc = 0;

	while (rc == 0 && rest != NULL) {
		size_t bad;
		int folder;

		if (snprintf(marker, sizeof(marker), "%.*s" ARTIFACT_COMPLETE, (int)(rest - path),
			    path) >= (int)sizeof(marker))
			return -ENAMETOOLONG;
		folder = copy_target_enter(dir, marker, false, &bad);
		if (folder < 0)
			return folder;
		if (is_there(folder, ARTIFACT_COMPLETE) &&
			(replaces || is_marker(files, folder, marker)))
			rc = remove_marker(folder);
		close(folder);
		rest = strchr(rest, '/');
		rest = rest ? rest + 1 : NULL;
	}
	return rc;
}

/* Whether a file below where to is not the one that a marker was written for. */
static bool belies(int dir, const json_t *file)
{
	const char *path = json_string_value(json_object_get(file, "path"));
	const char *result = json_string_value(json_object_get(file, "result"));
	const bool altered = json_object_get(file, "altered") != NULL;
	size_t bad;
	int folder;
	bool absent;

	if (path == NULL || !artifact_path_valid(path))
		return false;
	if (result != NULL && strcmp(result, "differs") == 0)
		return !altered; /* of what is altered, another one may be the right one */
	if (result != NULL && strcmp(result, "failed") != 0)
		return altered;
	folder = copy_target_enter(dir, path, false, &bad);
	absent = folder < 0 || !is_there(folder, copy_target_name(path));
	if (folder >= 0)
		close(folder);
	return absent;
}

bool copy_marker_remove_false(int dir, const json_t *result, const char *marker)
{
	const json_t *lists[] = {
		json_object_get(result, "files"), json_object_get(result, "missing")};
	const size_t n = strlen(marker) - strlen(ARTIFACT_COMPLETE);
	bool is_false = false;
	const json_t *file;
	size_t i, bad;
	int folder;

	folder = artifact_path_valid(marker) ? copy_target_enter(dir, marker, false, &bad) : -1;
	if (folder < 0)
		return false;
	for (size_t list = 0; list < 2 && is_there(folder, ARTIFACT_COMPLETE); list++) {
		json_array_foreach(lists[list], i, file) {
			const char *path = json_string_value(json_object_get(file, "path"));

			if (path != NULL && strncmp(path, marker, n) == 0 &&
				strcmp(path, marker) != 0)
				is_false = is_false || belies(dir, file);
		}
	}
	is_false = is_false && is_marker(lists[0], folder, marker) && remove_marker(folder) == 0;
	close(folder);
	return is_false;
}
