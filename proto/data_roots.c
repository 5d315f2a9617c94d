#include "proto/data_roots.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* real: without links. A root may be a link itself, and may be mounted at any time. */
static bool below(const struct data_roots *roots, const char *real)
{
	char root[PATH_MAX];

	for (size_t i = 0; i < roots->n; i++) {
		size_t n;

		if (realpath(roots->path[i], root) == NULL)
			continue;
		n = strlen(root);
		if (n == 1 || (strncmp(real, root, n) == 0 && real[n] == '/'))
			return true;
	}
	return false;
}

/* Whether a part of path is "..". */
static bool goes_up(const char *path)
{
	for (const char *at = path; (at = strstr(at, "..")) != NULL; at++)
		if ((at == path || at[-1] == '/') && (at[2] == '/' || at[2] == '\0'))
			return true;
	return false;
}

/*
 * The part of path that is there, without links, and the rest as it stands. A link that leads
 * nowhere is not "there": its target would be made elsewhere than it says, so it has no place.
 */
static bool resolve(const char *path, char *out, size_t out_bytes)
{
	char known[PATH_MAX], real[PATH_MAX];
	size_t n = strlen(path);

	if (n >= sizeof(known) || path[0] != '/')
		return false;
	memcpy(known, path, n + 1);
	while (realpath(known[0] ? known : "/", real) == NULL) {
		char link[2];

		if (errno != ENOENT || readlink(known, link, sizeof(link)) >= 0)
			return false;
		*strrchr(known, '/') = '\0';
	}
	n = strlen(known);
	return !goes_up(path + n) &&
		snprintf(out, out_bytes, "%s%s", real[1] || !path[n] ? real : "", path + n) <
		(int)out_bytes;
}

bool data_roots_hold(const struct data_roots *roots, const char *path)
{
	char real[2 * PATH_MAX];

	return roots->n == 0 || (resolve(path, real, sizeof(real)) && below(roots, real));
}

bool data_roots_hold_fd(const struct data_roots *roots, int fd)
{
	char name[64], real[PATH_MAX];
	ssize_t n;

	if (roots->n == 0)
		return true;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	n = readlink(name, real, sizeof(real) - 1);
	if (n < 0)
		return false;
	real[n] = '\0';
	return below(roots, real);
}

/* The length of the root that path is below by its name; 0: none. */
static size_t named_below(const struct data_roots *roots, const char *path)
{
	for (size_t i = 0; i < roots->n; i++) {
		size_t n = strlen(roots->path[i]);

		while (n > 0 && roots->path[i][n - 1] == '/')
			n--;
		if (n > 0 && strncmp(path, roots->path[i], n) == 0 && path[n] == '/')
			return n;
	}
	return 0;
}

bool data_roots_link(
	const struct data_roots *roots, const char *path, char *out, size_t out_bytes)
{
	const int flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
	size_t at = named_below(roots, path);
	char part[PATH_MAX], target[PATH_MAX];
	ssize_t n = -1;
	int folder, next;

	out[0] = '\0';
	if (at == 0 || goes_up(path) || strlen(path) >= sizeof(part))
		return false;
	snprintf(part, sizeof(part), "%.*s", (int)at, path);
	folder = open(part, flags);
	/* by descriptors: a folder that becomes a link meanwhile is not followed */
	while (folder >= 0 && n < 0 && path[at] != '\0') {
		const size_t bytes = strcspn(path + at + 1, "/");

		snprintf(part, sizeof(part), "%.*s", (int)bytes, path + at + 1);
		at += 1 + bytes;
		if (bytes == 0)
			continue;
		n = readlinkat(folder, part, target, sizeof(target) - 1);
		next = n < 0 ? openat(folder, part, flags | O_NOFOLLOW) : -1;
		close(folder);
		folder = next;
	}
	if (folder >= 0)
		close(folder);
	if (n < 0)
		return false;
	snprintf(out, out_bytes, "%.*s is a link to %.*s", (int)at, path, (int)n, target);
	return true;
}

json_t *data_roots_json(const struct data_roots *roots)
{
	json_t *array = json_array();

	for (size_t i = 0; array != NULL && i < roots->n; i++) {
		if (json_array_append_new(array, json_string(roots->path[i])) < 0) {
			json_decref(array);
			return NULL;
		}
	}
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
