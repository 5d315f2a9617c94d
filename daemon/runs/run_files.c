#include "daemon/runs/run_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/artifact.h"
#include "proto/checkpoint.h"
#include "proto/host/memory.h"

enum { DIR_FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC };

/* A folder below at, as a stream; NULL with errno. */
static DIR *open_dir(int at, const char *name)
{
	int fd = openat(at, name, DIR_FLAGS), error;
	DIR *stream;

	if (fd < 0)
		return NULL;
	stream = fdopendir(fd);
	if (stream == NULL) {
		error = errno;
		close(fd);
		errno = error;
	}
	return stream;
}

/* The error of opening a folder: -ELOOP if it is a link, -ENOTDIR if it is a file. */
static int place_error(const char *dir, int rc)
{
	struct stat st;

	if (rc == -ENOTDIR && lstat(dir, &st) == 0 && S_ISLNK(st.st_mode))
		return -ELOOP;
	return rc;
}

static bool is_dots(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* ---- list ---- */

static int add_file(struct run_files *f, const char *path, int64_t bytes)
{
	if (f->n == RUN_FILES_MAX)
		return -E2BIG;
	if (f->n == f->size) {
		f->size = f->size ? f->size * 2 : 16;
		f->file = memory_resized(f->file, f->size * sizeof(*f->file));
	}
	f->file[f->n++] = (struct run_file){.path = memory_text(path), .bytes = bytes};
	return 0;
}

static int list_below(struct run_files *f, int at, const char *name, const char *prefix,
	const char *skip, int depth);

static int list_entry(struct run_files *f, int at, const char *name, const char *prefix, int depth)
{
	char path[PATH_MAX];
	struct stat st;

	if (!artifact_path_valid(name) || depth > ARTIFACT_DEPTH ||
		snprintf(path, sizeof(path), "%s%s", prefix, name) >= PATH_MAX - 1) {
		f->left_out += name[0] != '.';
		return 0;
	}
	if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno; /* it was removed meanwhile */
	if (S_ISREG(st.st_mode))
		return add_file(f, path, st.st_size);
	if (!S_ISDIR(st.st_mode))
		return 0;
	strcat(path, "/");
	return list_below(f, at, name, path, NULL, depth + 1);
}

static int list_below(struct run_files *f, int at, const char *name, const char *prefix,
	const char *skip, int depth)
{
	DIR *stream = open_dir(at, name);
	const struct dirent *entry;
	int rc = 0;

	if (stream == NULL)
		return errno == ENOENT && depth > 1 ? 0 : -errno;
	while (rc == 0 && (errno = 0, entry = readdir(stream)) != NULL)
		if (skip == NULL || strcmp(entry->d_name, skip) != 0)
			rc = list_entry(f, dirfd(stream), entry->d_name, prefix, depth);
	if (rc == 0 && errno != 0)
		rc = -errno;
	closedir(stream);
	return rc;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct run_file *)a)->path, ((const struct run_file *)b)->path);
}

int run_files_list(const char *dir, const char *skip, struct run_files *out)
{
	struct run_files f = {0};
	int rc = list_below(&f, AT_FDCWD, dir, "", skip, 1);

	if (rc < 0) {
		run_files_finish(&f);
		return place_error(dir, rc);
	}
	if (f.n > 0)
		qsort(f.file, f.n, sizeof(*f.file), by_path);
	*out = f;
	return 0;
}

void run_files_finish(struct run_files *f)
{
	for (size_t i = 0; i < f->n; i++)
		free(f->file[i].path);
	free(f->file);
	*f = (struct run_files){0};
}

/* ---- open ---- */

/* Opens one name after another, so that no link on the path is followed. */
static int open_below(int at, const char *path, int flags)
{
	char name[NAME_MAX + 1];
	const size_t n = strcspn(path, "/");
	int fd, rc;

	if (n == 0 || n > NAME_MAX)
		return -ENOENT;
	memcpy(name, path, n);
	name[n] = '\0';
	fd = openat(at, name, path[n] == '\0' ? flags : DIR_FLAGS);
	if (fd < 0)
		return errno == ELOOP || errno == ENOTDIR || errno == ENXIO ? -ENOENT : -errno;
	if (path[n] == '\0')
		return fd;
	rc = open_below(fd, path + n + 1, flags);
	close(fd);
	return rc;
}

int run_files_open(const char *dir, const char *path, int *fd, int64_t *bytes)
{
	struct stat st;
	int at, rc;

	if (!artifact_path_valid(path))
		return -EINVAL;
	at = open(dir, DIR_FLAGS);
	if (at < 0)
		return place_error(dir, -errno);
	rc = open_below(at, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	close(at);
	if (rc < 0)
		return rc;
	if (fstat(rc, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(rc);
		return -ENOENT;
	}
	*fd = rc;
	*bytes = st.st_size;
	return 0;
}

char *run_files_read(const char *dir, const char *path, size_t max, size_t *n)
{
	char *text = NULL;
	int64_t size;
	ssize_t got;
	int fd;

	if (run_files_open(dir, path, &fd, &size) < 0)
		return NULL;
	if ((uint64_t)size <= max)
		text = memory_zeroed((size_t)size + 1, 1);
	for (*n = 0; text != NULL && *n < (size_t)size; *n += (size_t)got) {
		got = read(fd, text + *n, (size_t)size - *n);
		if (got < 0 && errno == EINTR) {
			got = 0;
		} else if (got <= 0) {
			free(text);
			text = NULL;
			break;
		}
	}
	close(fd);
	return text;
}

/* ---- remove ---- */

static int remove_below(int at, const char *name, int64_t *budget);

static int remove_entry(int at, const char *name, int64_t *budget)
{
	struct stat st;
	int rc;

	if (*budget <= 0)
		return -EAGAIN;
	if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (S_ISDIR(st.st_mode)) {
		rc = remove_below(at, name, budget);
		if (rc < 0)
			return rc;
	}
	if (unlinkat(at, name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) < 0 && errno != ENOENT)
		return errno == ENOTEMPTY ? -EAGAIN : -errno; /* readdir may miss some */
	--*budget;
	return 0;
}

static int remove_below(int at, const char *name, int64_t *budget)
{
	DIR *stream = open_dir(at, name);
	const struct dirent *entry;
	int rc = 0;

	if (stream == NULL)
		return errno == ENOENT ? 0 : -errno;
	while (rc == 0 && (errno = 0, entry = readdir(stream)) != NULL)
		if (!is_dots(entry->d_name))
			rc = remove_entry(dirfd(stream), entry->d_name, budget);
	if (rc == 0 && errno != 0)
		rc = -errno;
	closedir(stream);
	return rc;
}

int run_files_remove(const char *dir, int64_t *budget)
{
	return remove_below(AT_FDCWD, dir, budget);
}

static int64_t bytes_below(int at, const char *name)
{
	DIR *stream = open_dir(at, name);
	const struct dirent *entry;
	struct stat st;
	int64_t bytes = 0;

	if (stream == NULL)
		return 0;
	while ((entry = readdir(stream)) != NULL) {
		if (is_dots(entry->d_name) ||
			fstatat(dirfd(stream), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (S_ISREG(st.st_mode))
			bytes += st.st_size;
		else if (S_ISDIR(st.st_mode))
			bytes += bytes_below(dirfd(stream), entry->d_name);
	}
	closedir(stream);
	return bytes;
}

int64_t run_files_bytes(const char *dir)
{
	return bytes_below(AT_FDCWD, dir);
}

/* ---- temporary files ---- */

static bool is_temporary(const char *name)
{
	const size_t n = strlen(name);

	return n > 5 && name[0] == '.' && strcmp(name + n - 4, ".tmp") == 0;
}

/* below: levels of folders to search; an empty one of the lowest level is removed too. */
static void sweep(int at, const char *name, int below)
{
	DIR *stream = open_dir(at, name);
	const struct dirent *entry;
	struct stat st;

	if (stream == NULL)
		return;
	while ((entry = readdir(stream)) != NULL) {
		if (fstatat(dirfd(stream), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (S_ISREG(st.st_mode) && is_temporary(entry->d_name)) {
			unlinkat(dirfd(stream), entry->d_name, 0);
		} else if (S_ISDIR(st.st_mode) && below > 0 && entry->d_name[0] != '.') {
			sweep(dirfd(stream), entry->d_name, below - 1);
			if (below == 1)
				unlinkat(dirfd(stream), entry->d_name, AT_REMOVEDIR);
		}
	}
	closedir(stream);
}

void run_files_sweep(const char *dir)
{
	sweep(AT_FDCWD, dir, 2); /* segments/NNN-ARM */
}

/* ---- the completion marker ---- */

/* An engine lists at most 100,000 steps in its figures, some MB. */
enum { MARKER_BYTES = 16 << 10, FIGURES_BYTES = 16 << 20, EXPERIMENT_BYTES = 1 << 30 };

/* The value of " key=" in a marker, NULL if it has none. */
static const char *value_of(const char *marker, const char *key)
{
	const char *at = strstr(marker, key);

	return at ? at + strlen(key) : NULL;
}

static bool equals(const char *value, const char *expected)
{
	size_t n = strlen(expected);

	return value != NULL && strncmp(value, expected, n) == 0 &&
		(value[n] == ' ' || value[n] == '\n');
}

/* Whether the file beside a marker has the hash that the marker gives under this key. */
static bool file_fits(
	const char *dir, const char *marker, const char *name, const char *key, size_t max)
{
	char sha256[65] = "";
	size_t n;
	char *text = run_files_read(dir, name, max, &n);
	bool fit = text != NULL && artifact_sha256(text, n, sha256) == 0;

	free(text);
	return fit && equals(value_of(marker, key), sha256);
}

static bool metrics_fit(const char *dir, const char *marker)
{
	return file_fits(dir, marker, ARTIFACT_METRICS, " metrics_sha256=", FIGURES_BYTES);
}

/* The hashes of an experiment's files. Earlier builds wrote none. */
static bool results_fit(const char *dir, const char *marker)
{
	return value_of(marker, " experiment_sha256=") == NULL ||
		(file_fits(dir, marker, ARTIFACT_EXPERIMENT,
			 " experiment_sha256=", EXPERIMENT_BYTES) &&
			file_fits(
				dir, marker, ARTIFACT_TABLE, " summary_sha256=", EXPERIMENT_BYTES));
}

static bool names_run(const char *marker, const struct run *run)
{
	char id[24];

	snprintf(id, sizeof(id), "%lld", (long long)run->id);
	return equals(value_of(marker, " run_id="), id);
}

static bool segment_valid(const char *dir, const struct run *run)
{
	size_t n;
	char *marker = run_files_read(dir, ARTIFACT_COMPLETE, MARKER_BYTES, &n);
	bool valid = marker != NULL && names_run(marker, run) && metrics_fit(dir, marker);

	free(marker);
	return valid;
}

/* How many segments below dir are complete. Those of void blocks may not be. */
static int64_t count_valid(const char *dir, const struct run *run)
{
	char path[PATH_MAX];
	struct dirent *entry;
	int64_t valid = 0;
	DIR *segments;

	if (snprintf(path, sizeof(path), "%s/segments", dir) >= PATH_MAX)
		return 0;
	segments = opendir(path);
	while (segments != NULL && (entry = readdir(segments)) != NULL)
		if (entry->d_name[0] != '.' &&
			snprintf(path, sizeof(path), "%s/segments/%s", dir, entry->d_name) <
				PATH_MAX)
			valid += segment_valid(path, run);
	if (segments != NULL)
		closedir(segments);
	return valid;
}

static bool run_valid(const char *dir, const struct run *run)
{
	size_t n;
	char *marker = run_files_read(dir, ARTIFACT_COMPLETE, MARKER_BYTES, &n);
	const char *segments = marker ? value_of(marker, " segments=") : NULL;
	bool valid;

	valid = marker != NULL && names_run(marker, run) &&
		equals(value_of(marker, " spec_sha256="), run->spec_sha256);
	if (valid && segments != NULL) {
		valid = count_valid(dir, run) >= strtoll(segments, NULL, 10) &&
			results_fit(dir, marker);
	} else if (valid) {
		valid = metrics_fit(dir, marker);
	}
	free(marker);
	return valid;
}

/* The rename of a marker may be unsynced if its writer was killed. */
static int sync_dir(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = fd < 0 || fsync(fd) < 0 ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return rc;
}

int run_files_remove_marker(const char *dir)
{
	int rc = artifact_remove(dir, ARTIFACT_COMPLETE);

	return rc == -ENOENT || rc == -ENOTDIR ? 0 : rc;
}

int run_files_check_marker(const char *dir, const struct run *run, bool own, bool *complete)
{
	*complete = (own ? run_valid(dir, run) : segment_valid(dir, run)) && sync_dir(dir) == 0;
	return *complete ? 0 : run_files_remove_marker(dir);
}

static json_t *files_of(const char *dir)
{
	struct run_files files = {0};
	json_t *list = json_array();

	if (run_files_list(dir, CHECKPOINT_FOLDER, &files) < 0)
		return list;
	for (size_t i = 0; i < files.n; i++)
		json_array_append_new(list,
			json_pack("{ss sI}", "path", files.file[i].path, "bytes",
				(json_int_t)files.file[i].bytes));
	run_files_finish(&files);
	return list;
}

char *run_files_summary(const char *dir, char **artifacts)
{
	size_t n = 0;
	char *text = run_files_read(dir, ARTIFACT_SUMMARY, FIGURES_BYTES, &n);
	json_t *file = text ? json_loadb(text, n, 0, NULL) : NULL;
	json_t *summary = json_object_get(file, "summary"), *files = files_of(dir);

	free(text);
	text = NULL;
	*artifacts = json_dumps(files, JSON_COMPACT);
	if (json_object_set(summary, "artifacts", files) == 0)
		text = json_dumps(summary, JSON_COMPACT);
	json_decref(files);
	json_decref(file);
	return text;
}
