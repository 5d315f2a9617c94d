#include "daemon/config/metrics_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/artifact.h"

static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* The folder of a valid path. */
static void folder_of(const char *path, char out[PATH_MAX])
{
	const char *name = name_of(path);

	if (name == path)
		strcpy(out, ".");
	else if (name == path + 1)
		strcpy(out, "/");
	else
		snprintf(out, PATH_MAX, "%.*s", (int)(name - 1 - path), path);
}

bool metrics_file_valid(const char *path)
{
	const char *name = name_of(path);

	return *name != '\0' && *name != '.' && strlen(name) <= NAME_MAX && strlen(path) < PATH_MAX;
}

bool metrics_file_replaceable(const char *path)
{
	static const char first_words[] = "# TYPE gpt2d_";
	char begins[sizeof(first_words) - 1];
	struct stat st;
	ssize_t n;
	int fd;

	if (lstat(path, &st) < 0)
		return true;
	if (!S_ISREG(st.st_mode))
		return false;
	if (st.st_size == 0)
		return true;
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, begins, sizeof(begins));
	close(fd);
	return n == sizeof(begins) && memcmp(begins, first_words, sizeof(begins)) == 0;
}

int metrics_file_write(const char *path, const char *text, size_t n, mode_t mode)
{
	char folder[PATH_MAX];

	if (!metrics_file_replaceable(path))
		return -EEXIST;
	folder_of(path, folder);
	return artifact_write_mode(folder, name_of(path), text, n, mode);
}

void metrics_file_remove(const char *path)
{
	char folder[PATH_MAX];

	folder_of(path, folder);
	if (metrics_file_replaceable(path))
		artifact_remove(folder, name_of(path));
}
