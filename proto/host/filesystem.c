#include "proto/host/filesystem.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *filesystem_folder(const char *path, char out[PATH_MAX])
{
	snprintf(out, PATH_MAX, "%s", path);
	return dirname(out);
}

/* "36 35 98:0 /root /mount/point options optional... - type source options" */
static bool split(char *line, char **mount, char **type)
{
	char *dash = strstr(line, " - "), *save = NULL, *word = NULL;

	if (dash == NULL)
		return false;
	*dash = '\0';
	*type = strtok_r(dash + 3, " \n", &save);
	word = strtok_r(line, " ", &save);
	for (int i = 0; i < 4 && word != NULL; i++)
		word = strtok_r(NULL, " ", &save);
	*mount = word;
	return *mount != NULL && *type != NULL;
}

static bool lies_below(const char *path, const char *mount)
{
	size_t n = strlen(mount);

	if (n == 1)
		return true; /* "/" */
	return strncmp(path, mount, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

void filesystem_describe(const char *path, char *out, size_t out_bytes)
{
	char real[PATH_MAX], *line = NULL, *mount, *type;
	size_t line_bytes = 0, longest = 0;
	FILE *f = fopen("/proc/self/mountinfo", "re");

	snprintf(out, out_bytes, "an unknown file system");
	if (f == NULL || realpath(path, real) == NULL) {
		if (f != NULL)
			fclose(f);
		return;
	}
	/* if two are mounted at one place, the later one counts */
	while (getline(&line, &line_bytes, f) > 0) {
		if (!split(line, &mount, &type) || !lies_below(real, mount) ||
			strlen(mount) < longest)
			continue;
		longest = strlen(mount);
		snprintf(out, out_bytes, "%s (%s)", mount, type);
	}
	free(line);
	fclose(f);
}

int filesystem_sync(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;

	if (fd < 0)
		return -errno;
	if (fsync(fd) < 0)
		rc = -errno;
	close(fd);
	return rc;
}
