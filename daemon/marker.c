#include "daemon/marker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/artifact.h"

enum { MARKER_BYTES = 16 << 10 };
#define METRICS_BYTES (256 << 20)

/* All of dir/name with a NUL behind it, at most max bytes; NULL: it cannot be read. */
static char *read_file(const char *dir, const char *name, size_t max, size_t *n)
{
	char path[PATH_MAX], *text = NULL;
	struct stat st;
	ssize_t got;
	int fd;

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= PATH_MAX)
		return NULL;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (size_t)st.st_size <= max)
		text = malloc((size_t)st.st_size + 1);
	for (*n = 0; text != NULL && *n < (size_t)st.st_size; *n += (size_t)got) {
		got = read(fd, text + *n, (size_t)st.st_size - *n);
		if (got < 0 && errno == EINTR) {
			got = 0;
		} else if (got <= 0) {
			free(text);
			text = NULL;
			break;
		}
	}
	close(fd);
	if (text != NULL)
		text[*n] = '\0';
	return text;
}

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
	char *metrics = read_file(dir, ARTIFACT_METRICS, METRICS_BYTES, &n);
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

static bool segment_valid(const char *dir, const struct run *run)
{
	size_t n;
	char *marker = read_file(dir, ARTIFACT_COMPLETE, MARKER_BYTES, &n);
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
			valid += segment_valid(path, run);
	if (segments != NULL)
		closedir(segments);
	return valid == run->segments;
}

bool marker_valid(const char *dir, const struct run *run)
{
	size_t n;
	char *marker = read_file(dir, ARTIFACT_COMPLETE, MARKER_BYTES, &n);
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
