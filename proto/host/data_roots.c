#include "proto/host/data_roots.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* real: without links. A root may be a link itself, and may be mounted at any time. */
static bool is_within(const struct data_roots *roots, const char *real)
{
	char root[PATH_MAX];

	for (size_t i = 0; i < roots->n; i++) {
		size_t n;

		if (realpath(roots->path[i], root) == NULL)
			continue;
		n = strlen(root);
		if (n == 1 || (strncmp(real, root, n) == 0 && (real[n] == '/' || real[n] == '\0')))
			return true;
	}
	return false;
}

int data_roots_open(
	const struct data_roots *roots, const char *path, char *error, size_t error_bytes)
{
	int fd = path[0] == '/' ? open(path, O_PATH | O_CLOEXEC) : -1;
	char name[64], real[PATH_MAX];
	ssize_t n;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	n = fd >= 0 ? readlink(name, real, sizeof(real) - 1) : -1;
	if (n >= 0) {
		real[n] = '\0';
		if (is_within(roots, real))
			return fd;
	}
	if (fd >= 0)
		close(fd);
	if (fd >= 0 && n < 0)
		snprintf(error, error_bytes, "%s: gpt2d cannot find its place: %s: %s", path, name,
			strerror(errno));
	else
		snprintf(error, error_bytes,
			"%s is not below a data root of gpt2d (%s%s), or does not exist; put a "
			"copy below that folder",
			path, roots->path[0], roots->n > 1 ? ", ..." : "");
	return -EXDEV;
}

json_t *data_roots_json(const struct data_roots *roots)
{
	json_t *array = json_array();

	for (size_t i = 0; i < roots->n; i++)
		json_array_append_new(array, json_string(roots->path[i]));
	return array;
}

int data_roots_read(struct data_roots *out, const json_t *array)
{
	struct data_roots roots = {.n = json_array_size(array)};

	if ((array != NULL && !json_is_array(array)) || roots.n > DATA_ROOTS_MAX)
		return -EINVAL;
	for (size_t i = 0; i < roots.n; i++) {
		roots.path[i] = json_string_value(json_array_get(array, i));
		if (roots.path[i] == NULL)
			return -EINVAL;
	}
	*out = roots;
	return 0;
}
