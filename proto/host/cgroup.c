#include "proto/host/cgroup.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a version says what. */
static const struct version {
	const char *type, *option; /* of the file system; the option that the mount must have */
	const char *limit, *usage; /* files */
	const char *droppable[3];  /* rows of memory.stat */
	const char *events;        /* file with a row oom_kill */
} versions[] = {
	{"cgroup", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
		{"total_inactive_file", "total_active_file"}, "memory.oom_control"},
	{"cgroup2", NULL, "memory.max", "memory.current",
		{"inactive_file", "active_file", "slab_reclaimable"}, "memory.events"},
};

/* Version 1 says so where there is none: the largest whole page below 2^63. */
static const int64_t NO_LIMIT_BYTES = INT64_C(1) << 62;

struct group {
	const struct version *version;
	char path[PATH_MAX]; /* of its folder */
	size_t mount;        /* bytes of it: what is above them is no group */
};

static FILE *open_below(const char *root, const char *path)
{
	char name[PATH_MAX + 64];

	if (snprintf(name, sizeof(name), "%s%s", root, path) >= (int)sizeof(name))
		return NULL;
	return fopen(name, "re");
}

/* Whether the list "a,b,c" has word. */
static bool has_word(const char *list, const char *word)
{
	const size_t n = strlen(word);

	for (const char *at = list; at != NULL; at = strchr(at, ',')) {
		at += *at == ',';
		if (strncmp(at, word, n) == 0 && (at[n] == '\0' || at[n] == ','))
			return true;
	}
	return false;
}

/* ---- the group's folder ---- */

/* The path of /proc/self/cgroup, by the version that has the memory: NULL, or malloc'd. */
static char *find_path(const char *root, const struct version **version)
{
	FILE *f = open_below(root, "/proc/self/cgroup");
	char *line = NULL, *path = NULL;
	size_t bytes = 0;

	*version = NULL;
	while (f != NULL && *version != &versions[0] && getline(&line, &bytes, f) > 0) {
		char *controllers = strchr(line, ':');
		char *rest = controllers ? strchr(++controllers, ':') : NULL;
		const bool unified = strncmp(line, "0::", 3) == 0;

		if (rest == NULL)
			continue;
		*rest++ = '\0';
		if (!unified && !has_word(controllers, versions[0].option))
			continue;
		rest[strcspn(rest, "\n")] = '\0';
		free(path);
		path = strdup(rest);
		*version = &versions[unified];
	}
	free(line);
	if (f != NULL)
		fclose(f);
	return path;
}

/* A line of /proc/self/mountinfo: whether it is one of the version's. The fields are in line. */
static bool is_mount(const struct version *v, char *line, char **from, char **at)
{
	char *field[5], *type, *options, *rest = strstr(line, " - ");
	int n = 0;

	if (rest == NULL)
		return false;
	*rest = '\0';
	type = strtok_r(rest + 3, " ", &rest);
	strtok_r(NULL, " ", &rest); /* the source */
	options = strtok_r(NULL, " \n", &rest);
	if (type == NULL || options == NULL || strcmp(type, v->type) != 0 ||
		(v->option && !has_word(options, v->option)))
		return false;
	for (char *f = strtok_r(line, " ", &rest); f && n < 5; f = strtok_r(NULL, " ", &rest))
		field[n++] = f;
	if (n < 5)
		return false;
	*from = field[3];
	*at = field[4];
	return true;
}

/*
 * What is mounted at `at` is the group `from`. A container may see only that, by whatever path; one
 * that leads out of its view begins with "/..".
 */
static int set_group(struct group *g, const char *from, const char *at, const char *path)
{
	const size_t n = strcmp(from, "/") == 0 ? 0 : strlen(from);
	const bool within = strncmp(path, from, n) == 0 && (path[n] == '/' || path[n] == '\0') &&
		strncmp(path, "/..", 3) != 0;
	const char *below = within && strcmp(path + n, "/") != 0 ? path + n : "";

	g->mount = strlen(at);
	return snprintf(g->path, sizeof(g->path), "%s%s", at, below) < (int)sizeof(g->path)
		? 0
		: -ENAMETOOLONG;
}

static int find_group(const char *root, struct group *g)
{
	char *path = find_path(root, &g->version), *line = NULL, *from, *at;
	FILE *f = path ? open_below(root, "/proc/self/mountinfo") : NULL;
	size_t bytes = 0;
	int rc = -ENOENT;

	while (f != NULL && rc == -ENOENT && getline(&line, &bytes, f) > 0)
		if (is_mount(g->version, line, &from, &at))
			rc = set_group(g, from, at, path);
	if (f != NULL)
		fclose(f);
	free(line);
	free(path);
	return rc;
}

/* ---- its files ---- */

/* The number in a file of one, or behind the row's name: 0, or -ENOENT ("max" is no number). */
static int read_number(
	const char *root, const struct group *g, const char *file, const char *row, int64_t *out)
{
	char name[PATH_MAX + 64], line[256], *end;
	const size_t n = row ? strlen(row) : 0;
	int rc = -ENOENT;
	FILE *f = NULL;

	if (snprintf(name, sizeof(name), "%s/%s", g->path, file) < (int)sizeof(name))
		f = open_below(root, name);
	while (f != NULL && rc < 0 && fgets(line, sizeof(line), f)) {
		if (row && (strncmp(line, row, n) != 0 || line[n] != ' '))
			continue;
		errno = 0;
		*out = strtoll(line + n, &end, 10);
		if (end > line + n && errno == 0 && *out >= 0)
			rc = 0;
	}
	if (f != NULL)
		fclose(f);
	return rc;
}

/* Until this group's limit is reached. */
static int64_t left_of(const char *root, const struct group *g, int64_t limit)
{
	int64_t used, droppable;

	if (read_number(root, g, g->version->usage, NULL, &used) < 0)
		return limit;
	for (int i = 0; i < 3 && g->version->droppable[i]; i++)
		if (read_number(root, g, "memory.stat", g->version->droppable[i], &droppable) == 0)
			used -= droppable < used ? droppable : used;
	return used < limit ? limit - used : 0;
}

/* The name of a file of the group; its last part where the whole does not fit. */
static void name_file(const struct group *g, const char *file, char out[CGROUP_FILE_BYTES])
{
	if (snprintf(out, CGROUP_FILE_BYTES, "%s/%s", g->path, file) >= CGROUP_FILE_BYTES)
		strcpy(out, file);
}

/* To the group above; false when there is none to be seen. */
static bool go_up(struct group *g)
{
	if (strlen(g->path) <= g->mount)
		return false;
	*strrchr(g->path, '/') = '\0';
	return true;
}

int cgroup_memory_read(const char *root, struct cgroup_memory *out)
{
	struct cgroup_memory found = {INT64_MAX, INT64_MAX, ""};
	struct group g;
	int64_t limit, left;
	int rc = find_group(root, &g);

	if (rc < 0)
		return rc;
	do {
		if (read_number(root, &g, g.version->limit, NULL, &limit) < 0 ||
			limit >= NO_LIMIT_BYTES)
			continue;
		left = left_of(root, &g, limit);
		if (left < found.free_bytes)
			found.free_bytes = left;
		if (limit < found.limit_bytes) {
			found.limit_bytes = limit;
			name_file(&g, g.version->limit, found.file);
		}
	} while (go_up(&g));
	if (found.limit_bytes == INT64_MAX)
		return -ENOENT;
	*out = found;
	return 0;
}

int64_t cgroup_pids_left(const char *root, char file[CGROUP_FILE_BYTES])
{
	int64_t limit, used, left = -ENOENT;
	struct group g;
	int rc = find_group(root, &g);

	if (rc < 0)
		return rc;
	do {
		if (read_number(root, &g, "pids.max", NULL, &limit) < 0 ||
			read_number(root, &g, "pids.current", NULL, &used) < 0)
			continue;
		used = used < limit ? used : limit;
		if (left < 0 || limit - used < left) {
			left = limit - used;
			name_file(&g, "pids.max", file);
		}
	} while (go_up(&g));
	return left;
}

int64_t cgroup_oom_kills(const char *root, char file[CGROUP_FILE_BYTES])
{
	struct group g;
	int64_t n;
	int rc = find_group(root, &g);

	if (rc < 0)
		return rc;
	do {
		if (read_number(root, &g, g.version->events, "oom_kill", &n) == 0) {
			name_file(&g, g.version->events, file);
			return n;
		}
	} while (go_up(&g));
	return -ENOENT;
}
