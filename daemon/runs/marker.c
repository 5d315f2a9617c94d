#include "daemon/runs/marker.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/runs/run_files.h"
#include "proto/artifact.h"

enum { MARKER_BYTES = 16 << 10 };

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

/* The metrics beside a segment's marker are those whose hash it gives. */
static bool metrics_fit(const char *dir, const char *marker)
{
	char sha256[65] = "";
	size_t n;
	char *metrics = run_files_read(dir, ARTIFACT_METRICS, MARKER_METRICS_BYTES, &n);
	bool fit = metrics != NULL && artifact_sha256(metrics, n, sha256) == 0;

	free(metrics);
	return fit && equals(value_of(marker, " metrics_sha256="), sha256);
}

static bool names_run(const char *marker, const struct run *run)
{
	char id[24];

	snprintf(id, sizeof(id), "%lld", (long long)run->id);
	return equals(value_of(marker, " run_id="), id);
}

bool marker_segment_valid(const char *dir, const struct run *run)
{
	size_t n;
	char *marker = run_files_read(dir, ARTIFACT_COMPLETE, MARKER_BYTES, &n);
	bool valid = marker != NULL && names_run(marker, run) && metrics_fit(dir, marker);

	free(marker);
	return valid;
}

static bool segments_valid(const char *dir, const struct run *run)
{
	char path[PATH_MAX];
	struct dirent *entry;
	int64_t valid = 0;
	DIR *segments;

	if (snprintf(path, sizeof(path), "%s/segments", dir) >= PATH_MAX)
		return false;
	segments = opendir(path);
	while (segments != NULL && (entry = readdir(segments)) != NULL)
		if (entry->d_name[0] != '.' &&
			snprintf(path, sizeof(path), "%s/segments/%s", dir, entry->d_name) <
				PATH_MAX)
			valid += marker_segment_valid(path, run);
	if (segments != NULL)
		closedir(segments);
	return valid == run->segments;
}

bool marker_valid(const char *dir, const struct run *run)
{
	size_t n;
	char *marker = run_files_read(dir, ARTIFACT_COMPLETE, MARKER_BYTES, &n);
	const char *segments = marker ? value_of(marker, " segments=") : NULL;
	char count[24];
	bool valid;

	snprintf(count, sizeof(count), "%lld", (long long)run->segments);
	valid = marker != NULL && names_run(marker, run) &&
		equals(value_of(marker, " spec_sha256="), run->spec_sha256);
	if (valid && segments != NULL)
		valid = equals(segments, count) && segments_valid(dir, run);
	else if (valid)
		valid = metrics_fit(dir, marker);
	free(marker);
	return valid;
}
