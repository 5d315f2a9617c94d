#include "daemon/runs/marker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/runs/run_files.h"
#include "proto/artifact.h"
#include "proto/checkpoint.h"

/* An engine lists at most 100,000 steps in its figures, some MB. */
enum { MARKER_BYTES = 16 << 10, FIGURES_BYTES = 16 << 20, EXPERIMENT_BYTES = 1 << 30 };

/* The value of " key=" in a marker, NULL when it has none. */
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

/* The file beside a marker is the one whose hash the marker gives under this key. */
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

/* Those of an experiment. Earlier builds wrote none. */
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

/* A killed writer may have left the rename of its marker unsynced. */
static int sync_dir(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = fd < 0 || fsync(fd) < 0 ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return rc;
}

int marker_remove(const char *dir)
{
	int rc = artifact_remove(dir, ARTIFACT_COMPLETE);

	return rc == -ENOENT || rc == -ENOTDIR ? 0 : rc;
}

int marker_check(const char *dir, const struct run *run, bool own, bool *complete)
{
	*complete = (own ? run_valid(dir, run) : segment_valid(dir, run)) && sync_dir(dir) == 0;
	return *complete ? 0 : marker_remove(dir);
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

char *marker_summary(const char *dir, char **artifacts)
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
