#include "proto/data_roots.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINKS_MAX = 40 }; /* as many as the kernel follows */

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

/* How much of path is there and can be looked at; real: that, without links. -1 without memory. */
static int there(const char *path, char real[PATH_MAX])
{
	char known[PATH_MAX];

	snprintf(known, sizeof(known), "%s", path);
	while (realpath(known[0] ? known : "/", real) == NULL) {
		if (known[0] == '\0')
			return -1;
		*strrchr(known, '/') = '\0';
	}
	return (int)strlen(known);
}

/*
 * Puts what a link says in its place: its folder, without links, and its name are link, and rest is
 * what path has after it. The link itself has to be below a root: what links there are elsewhere is
 * not to be found out.
 */
static bool follow(
	const struct data_roots *roots, const char *link, const char *rest, char out[PATH_MAX])
{
	char target[PATH_MAX], next[3 * PATH_MAX];
	ssize_t n = below(roots, link) ? readlink(link, target, sizeof(target)) : -1;
	int folder = (int)(strrchr(link, '/') - link);

	if (n <= 0 || n == sizeof(target))
		return false;
	snprintf(next, sizeof(next), "%.*s%s%.*s%s", target[0] == '/' ? 0 : folder, link,
		target[0] == '/' ? "" : "/", (int)n, target, rest);
	n = (ssize_t)strlen(next);
	if (n >= PATH_MAX)
		return false;
	memcpy(out, next, (size_t)n + 1);
	return true;
}

/*
 * Whether path, which leads to nothing that can be reached, would lead below a root. A part that
 * may not be looked at is taken for no link: what is opened is judged again.
 */
static bool would_be_below(const struct data_roots *roots, const char *path)
{
	char at[PATH_MAX], real[PATH_MAX], place[2 * PATH_MAX], byte;

	snprintf(at, sizeof(at), "%s", path);
	for (int links = 0; links < LINKS_MAX; links++) {
		const int n = there(at, real);
		const char *rest = at + n;
		int part;

		if (n < 0)
			return false;
		part = (int)strspn(rest, "/");
		part += (int)strcspn(rest + part, "/");
		snprintf(place, sizeof(place), "%s%.*s", real[1] ? real : "", part, rest);
		if (readlink(place, &byte, 1) < 0) {
			snprintf(place, sizeof(place), "%s%s", real[1] || !*rest ? real : "", rest);
			return !goes_up(rest) && below(roots, place);
		}
		if (!follow(roots, place, rest + part, at))
			return false;
	}
	return true; /* links without an end, all of them below a root */
}

bool data_roots_hold(const struct data_roots *roots, const char *path)
{
	char real[PATH_MAX];

	if (roots->n == 0)
		return true;
	if (path[0] != '/' || strlen(path) >= PATH_MAX)
		return false;
	if (realpath(path, real) != NULL)
		return below(roots, real);
	return would_be_below(roots, path);
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
