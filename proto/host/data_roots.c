#include "proto/host/data_roots.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

/* ---- the way to a file ---- */

/*
 * Outside the roots nothing is looked up: a path is text there, until it is the name of a root.
 * Below a root each part is looked up once, in the folder that is open, and links are put into the
 * path by hand.
 */
struct way {
	const struct data_roots *roots;
	char *real[DATA_ROOTS_MAX]; /* without links; NULL: not there */
	int fd;                     /* what the way has led to; -1: outside */
	char at[PATH_MAX];          /* its name, without links where fd >= 0; "": / */
	size_t top;                 /* length of the root's name in it */
	bool up;                    /* outside: at was reached by "..", and has no links */
	int links;
	char left[2 * PATH_MAX]; /* what is still to go */
};

/* Whether at, in which there is no part without meaning, is that path. */
static bool is_name_of(const char *path, const char *at)
{
	for (;;) {
		size_t n;

		path += strspn(path, "/");
		n = strcspn(path, "/");
		if (n == 0)
			return *at == '\0';
		if (n > 1 || path[0] != '.') {
			if (*at != '/' || strncmp(at + 1, path, n) != 0 ||
				(at[1 + n] != '/' && at[1 + n] != '\0'))
				return false;
			at += 1 + n;
		}
		path += n;
	}
}

/* Opens the folder below real, no part of it a link. */
static int reach(const char *real, const char *below_it)
{
	const int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int fd = open(real[0] ? real : "/", flags);
	char part[PATH_MAX];

	if (fd < 0)
		return -EXDEV;
	while (*below_it == '/') {
		const size_t n = strcspn(++below_it, "/");
		int next;

		snprintf(part, sizeof(part), "%.*s", (int)n, below_it);
		next = openat(fd, part, flags);
		if (next < 0)
			next = -errno;
		close(fd);
		if (next < 0)
			return next;
		fd = next;
		below_it += n;
	}
	return fd;
}

static void leave(struct way *w)
{
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
}

/* If that is the name of a root, the way goes on in it. */
static void enter(struct way *w)
{
	for (size_t i = 0; i < w->roots->n && w->fd < 0; i++) {
		const char *real = w->real[i];

		if (real == NULL ||
			!(is_name_of(w->roots->path[i], w->at) || is_name_of(real, w->at)))
			continue;
		real += real[1] == '\0'; /* / */
		w->fd = reach(real, "");
		if (w->fd >= 0)
			w->top = (size_t)snprintf(w->at, sizeof(w->at), "%s", real);
	}
}

/* From / on, by path and then by what is left after it. */
static int begin(struct way *w, const char *path, size_t bytes, const char *after)
{
	char left[sizeof(w->left)];
	int n = snprintf(left, sizeof(left), "%.*s%s", (int)bytes, path, after);

	if (n < 0 || (size_t)n >= sizeof(left))
		return -ENAMETOOLONG;
	memcpy(w->left, left, (size_t)n + 1);
	if (left[0] == '/') {
		leave(w);
		w->at[0] = '\0';
		w->up = false;
		enter(w);
	}
	return 0;
}

static int go_up(struct way *w)
{
	char root[PATH_MAX];

	if (w->at[0] == '\0')
		return 0; /* of / there is no folder above */
	/* a name that nobody looked at may be a link: what is above it is not known */
	if (w->fd < 0 && !w->up)
		return -EXDEV;
	w->up = w->fd < 0 || strlen(w->at) == w->top;
	leave(w);
	*strrchr(w->at, '/') = '\0';
	if (w->up)
		return 0;
	/* from the root on: the folder may have been moved, and have another one above it */
	snprintf(root, sizeof(root), "%.*s", (int)w->top, w->at);
	w->fd = reach(root, w->at + w->top);
	return w->fd < 0 ? w->fd : 0;
}

static int append(struct way *w, const char *part)
{
	const size_t n = strlen(w->at), more = strlen(part);

	if (n + 1 + more >= sizeof(w->at))
		return -ENAMETOOLONG;
	w->at[n] = '/';
	memcpy(w->at + n + 1, part, more + 1);
	return 0;
}

/* after: what of left follows part. */
static int go_outside(struct way *w, const char *part, const char *after)
{
	char path[sizeof(w->at)];

	if (append(w, part) < 0)
		return -EXDEV;
	if (w->up) {
		memcpy(path, w->at, sizeof(path));
		return begin(w, path, strlen(path), after);
	}
	memmove(w->left, after, strlen(after) + 1);
	enter(w);
	return 0;
}

/* Of part in the folder that is open: a descriptor, of the link where it is one; st is of it. */
static int look(const struct way *w, const char *part, bool is_folder, struct stat *st)
{
	const int flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
	int fd = -1, rc;

	/* said to be a folder, it is mounted if need be */
	if (is_folder)
		fd = openat(w->fd, part, flags | O_DIRECTORY);
	if (fd < 0 && (!is_folder || errno == ENOTDIR))
		fd = openat(w->fd, part, flags);
	if (fd < 0)
		return -errno;
	rc = fstat(fd, st) < 0 ? -errno : 0;
	if (rc == 0 && is_folder && !S_ISDIR(st->st_mode) && !S_ISLNK(st->st_mode))
		rc = -ENOTDIR;
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

static int go_below(struct way *w, const char *part, const char *after, char target[PATH_MAX])
{
	struct stat st;
	int fd = look(w, part, after[0] == '/', &st), rc;
	ssize_t n;

	if (fd < 0)
		return fd;
	if (!S_ISLNK(st.st_mode)) {
		leave(w);
		w->fd = fd;
		memmove(w->left, after, strlen(after) + 1);
		return append(w, part);
	}
	n = readlinkat(fd, "", target, PATH_MAX - 1);
	rc = n < 0 ? -errno : n == 0 ? -ENOENT : 0;
	close(fd);
	if (rc == 0 && w->links++ == LINKS_MAX)
		rc = -ELOOP;
	if (rc < 0)
		return rc;
	target[n] = '\0';
	return begin(w, target, (size_t)n, after);
}

/* One part further. target: of the link that was followed, else left alone. */
static int go(struct way *w, char target[PATH_MAX])
{
	const size_t slashes = strspn(w->left, "/"), n = strcspn(w->left + slashes, "/");
	const char *after = w->left + slashes + n;
	char part[sizeof(w->left)];
	int rc = 0;

	snprintf(part, sizeof(part), "%.*s", (int)n, w->left + slashes);
	if (n > 0 && strcmp(part, ".") != 0 && strcmp(part, "..") != 0)
		return w->fd < 0 ? go_outside(w, part, after) : go_below(w, part, after, target);
	if (strcmp(part, "..") == 0)
		rc = go_up(w);
	memmove(w->left, after, strlen(after) + 1);
	return rc;
}

/* All of it. link: see data_roots_open(). */
static int go_all(struct way *w, const char *path, char *link, size_t link_bytes)
{
	char target[PATH_MAX];
	int rc = begin(w, path, strlen(path), "");

	while (rc == 0 && w->left[0] != '\0') {
		const size_t slashes = strspn(w->left, "/");
		/* of path, up to the part that is next; it is as it was until a link is followed */
		const char *end = path + strlen(path) - strlen(w->left) + slashes;
		const bool first = w->links == 0 && strlen(w->left) <= strlen(path);
		const size_t n = first ? strcspn(end, "/") : 0;

		rc = go(w, target);
		if (first && w->links > 0)
			snprintf(link, link_bytes, "%.*s is a link to %s", (int)(end - path + n),
				path, target);
	}
	if (rc == 0 && (w->fd < 0 || (w->top > 0 && strlen(w->at) == w->top)))
		rc = -EXDEV;
	return rc;
}

int data_roots_open(const struct data_roots *roots, const char *path, char *link, size_t link_bytes)
{
	struct way w = {.roots = roots, .fd = -1};
	int rc;

	link[0] = '\0';
	if (path[0] != '/' || strlen(path) >= PATH_MAX)
		return -EXDEV;
	for (size_t i = 0; i < roots->n; i++)
		w.real[i] = realpath(roots->path[i], NULL);
	rc = go_all(&w, path, link, link_bytes);
	for (size_t i = 0; i < roots->n; i++)
		free(w.real[i]);
	if (rc == 0)
		return w.fd;
	leave(&w);
	if (rc != -EXDEV)
		link[0] = '\0';
	return rc;
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
