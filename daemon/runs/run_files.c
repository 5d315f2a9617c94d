#include "daemon/runs/run_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
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
#include "proto/host/file.h"
#include "proto/host/filesystem.h"
#include "proto/host/memory.h"

enum { DIR_FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC };

/* The error of opening a folder: -ELOOP if it is a link, -ENOTDIR if it is a file. */
static int place_error(const char *dir, int rc)
{
	struct stat st;

	if (rc == -ENOTDIR && lstat(dir, &st) == 0 && S_ISLNK(st.st_mode))
		return -ELOOP;
	return rc;
}

/* Walks dir and all below it, and follows no links; NULL with errno. */
static FTS *walk(const char *dir)
{
	char *const paths[] = {(char *)(uintptr_t)dir, NULL};

	return fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
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

static bool is_unreadable(const FTSENT *e)
{
	return e->fts_info == FTS_NS || e->fts_info == FTS_DNR || e->fts_info == FTS_ERR;
}

/* path: of the entry, below the folder that is listed. */
static int list_entry(struct run_files *f, FTS *tree, FTSENT *e, const char *path, const char *skip)
{
	if (e->fts_info == FTS_DP)
		return 0;
	if (is_unreadable(e)) /* or it was removed meanwhile */
		return e->fts_level > 0 && e->fts_errno == ENOENT ? 0 : -e->fts_errno;
	if (e->fts_level == 0)
		return e->fts_info == FTS_D ? 0 : e->fts_info == FTS_SL ? -ELOOP : -ENOTDIR;
	if (e->fts_level == 1 && skip != NULL && strcmp(e->fts_name, skip) == 0)
		return fts_set(tree, e, FTS_SKIP);
	if (!artifact_path_valid(e->fts_name) || e->fts_level > ARTIFACT_DEPTH) {
		f->left_out += e->fts_name[0] != '.';
		return fts_set(tree, e, FTS_SKIP);
	}
	return e->fts_info == FTS_F ? add_file(f, path, e->fts_statp->st_size) : 0;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct run_file *)a)->path, ((const struct run_file *)b)->path);
}

int run_files_list(const char *dir, const char *skip, struct run_files *out)
{
	const size_t below = strlen(dir) + 1;
	struct run_files f = {0};
	FTS *tree = walk(dir);
	int rc = tree == NULL ? -errno : 0;
	FTSENT *e;

	while (rc == 0 && (e = fts_read(tree)) != NULL)
		rc = list_entry(&f, tree, e, e->fts_path + below, skip);
	if (rc == 0)
		rc = -errno; /* of the walk; 0 at its end */
	if (tree != NULL)
		fts_close(tree);
	if (rc < 0) {
		run_files_finish(&f);
		return rc;
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
	int fd;

	if (run_files_open(dir, path, &fd, &size) < 0)
		return NULL;
	*n = (size_t)size;
	if (*n <= max)
		text = memory_zeroed(*n + 1, 1);
	if (text != NULL && file_read_at(fd, text, *n, 0) < 0) {
		free(text);
		text = NULL;
	}
	close(fd);
	return text;
}

/* ---- remove ---- */

int run_files_remove(const char *dir)
{
	FTS *tree = walk(dir);
	int rc = tree == NULL ? -errno : 0;
	const FTSENT *e;

	while (rc == 0 && (e = fts_read(tree)) != NULL) {
		if (is_unreadable(e) && (e->fts_level == 0 || e->fts_info == FTS_DNR))
			rc = e->fts_errno == ENOENT ? 0 : -e->fts_errno;
		else if (e->fts_level > 0 && e->fts_info != FTS_D && remove(e->fts_path) < 0 &&
			errno != ENOENT)
			rc = -errno;
	}
	if (rc == 0)
		rc = -errno; /* of the walk; 0 at its end */
	if (tree != NULL)
		fts_close(tree);
	return rc;
}

int64_t run_files_bytes(const char *dir)
{
	FTS *tree = walk(dir);
	const FTSENT *e;
	int64_t bytes = 0;

	while (tree != NULL && (e = fts_read(tree)) != NULL)
		if (e->fts_info == FTS_F)
			bytes += e->fts_statp->st_size;
	if (tree != NULL)
		fts_close(tree);
	return bytes;
}

/* ---- temporary files ---- */

static bool is_temporary(const char *name)
{
	const size_t n = strlen(name);

	return n > 5 && name[0] == '.' && strcmp(name + n - 4, ".tmp") == 0;
}

void run_files_sweep(const char *dir)
{
	enum { SEGMENT_LEVEL = 2 }; /* segments/NNN-ARM */
	FTS *tree = walk(dir);
	FTSENT *e;

	while (tree != NULL && (e = fts_read(tree)) != NULL) {
		if (e->fts_info == FTS_D && e->fts_level > SEGMENT_LEVEL)
			fts_set(tree, e, FTS_SKIP);
		else if (e->fts_info == FTS_F && is_temporary(e->fts_name))
			unlink(e->fts_path);
		else if (e->fts_info == FTS_DP && e->fts_level == SEGMENT_LEVEL)
			rmdir(e->fts_path);
	}
	if (tree != NULL)
		fts_close(tree);
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

int run_files_remove_marker(const char *dir)
{
	int rc = artifact_remove(dir, ARTIFACT_COMPLETE);

	return rc == -ENOENT || rc == -ENOTDIR ? 0 : rc;
}

int run_files_check_marker(const char *dir, const struct run *run, bool own, bool *complete)
{
	/* the rename of a marker may be unsynced if its writer was killed */
	*complete =
		(own ? run_valid(dir, run) : segment_valid(dir, run)) && filesystem_sync(dir) == 0;
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
