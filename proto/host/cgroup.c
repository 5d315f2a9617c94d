#include "proto/host/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char mount[] = "/sys/fs/cgroup";

/* The files of a version. */
static const struct version {
	const char *limit, *usage, *events;
	const char *droppable[3]; /* rows of memory.stat */
} versions[] = {
	{"memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control",
		{"total_inactive_file", "total_active_file"}},
	{"memory.max", "memory.current", "memory.events",
		{"inactive_file", "active_file", "slab_reclaimable"}},
};

/* The limit in version 1 if there is none: the last whole page below 2^63. */
static const int64_t NO_LIMIT_BYTES = INT64_C(1) << 62;

/* A folder of a group, below root. */
struct group {
	const struct version *version;
	char path[PATH_MAX];
	size_t top; /* length of the mount's part of the path */
};

/* Whether the list "a,b,c" has the word. */
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

/* path: of a line of /proc/self/cgroup. controller: NULL for version 2. */
static int set_group(struct group *g, const char *root, const char *controller, const char *path)
{
	/* "/": the topmost; "/..": a group outside of a container's view */
	const char *below = strcmp(path, "/") == 0 || strncmp(path, "/..", 3) == 0 ? "" : path;
	const int top = snprintf(g->path, sizeof(g->path), "%s%s%s%s", root, mount,
		controller ? "/" : "", controller ? controller : "");

	g->version = &versions[controller == NULL];
	g->top = (size_t)top;
	return snprintf(g->path + top, sizeof(g->path) - (size_t)top, "%s", below) <
			(int)(sizeof(g->path) - (size_t)top)
		? 0
		: -ENAMETOOLONG;
}

/*
 * The group of this process with the controller: of version 1 if there is one, else of version 2.
 */
static int find_group(const char *root, const char *controller, struct group *g)
{
	char name[PATH_MAX], line[PATH_MAX];
	int rc = -ENOENT;
	FILE *f;

	snprintf(name, sizeof(name), "%s/proc/self/cgroup", root);
	f = fopen(name, "re");
	while (f != NULL && fgets(line, sizeof(line), f)) {
		char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;

		if (path == NULL)
			continue;
		*path++ = '\0';
		path[strcspn(path, "\n")] = '\0';
		if (has_word(list + 1, controller)) {
			rc = set_group(g, root, controller, path);
			break;
		}
		if (strcmp(line, "0:") == 0 && path[0] == '/')
			rc = set_group(g, root, NULL, path);
	}
	if (f != NULL)
		fclose(f);
	return rc;
}

/* Moves to the parent group. false: the group was the topmost visible one. */
static bool go_up(struct group *g)
{
	char *slash = strrchr(g->path + g->top, '/');

	if (slash == NULL)
		return false;
	*slash = '\0';
	return true;
}

enum { FILE_BYTES = 8192 }; /* memory.stat is the longest */

/* A file of the group, at most FILE_BYTES - 1 of it. */
static int read_file(const struct group *g, const char *file, char text[FILE_BYTES])
{
	char name[PATH_MAX + 64];
	ssize_t n;
	int fd;

	snprintf(name, sizeof(name), "%s/%s", g->path, file);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -ENOENT;
	n = read(fd, text, FILE_BYTES - 1);
	close(fd);
	if (n <= 0)
		return -ENOENT;
	text[n] = '\0';
	return 0;
}

/* The number at the start of the text, or after "row " at the start of a line; not "max". */
static int find_number(const char *text, const char *row, int64_t *out)
{
	const size_t n = row ? strlen(row) : 0;
	char *end;

	while (row != NULL && text != NULL && !(strncmp(text, row, n) == 0 && text[n] == ' ')) {
		text = strchr(text, '\n');
		text += text != NULL;
	}
	if (text == NULL)
		return -ENOENT;
	text += n;
	*out = strtoll(text, &end, 10);
	return end > text && *out >= 0 ? 0 : -ENOENT;
}

/* 0, or -ENOENT, also for "max", which means no limit. */
static int read_number(const struct group *g, const char *file, const char *row, int64_t *out)
{
	char text[FILE_BYTES];

	return read_file(g, file, text) < 0 ? -ENOENT : find_number(text, row, out);
}

/* Bytes left until this group's limit is reached. */
static int64_t left_of(const struct group *g, int64_t limit)
{
	const struct version *v = g->version;
	char stat[FILE_BYTES];
	int64_t used, n;

	if (read_number(g, v->usage, NULL, &used) < 0)
		return limit;
	if (read_file(g, "memory.stat", stat) < 0)
		stat[0] = '\0';
	for (int i = 0; i < 3 && v->droppable[i] != NULL; i++)
		if (find_number(stat, v->droppable[i], &n) == 0)
			used -= n < used ? n : used;
	return used < limit ? limit - used : 0;
}

static void name_file(
	const char *root, const struct group *g, const char *file, char out[CGROUP_FILE_BYTES])
{
	if (snprintf(out, CGROUP_FILE_BYTES, "%s/%s", g->path + strlen(root), file) >=
		CGROUP_FILE_BYTES)
		strcpy(out, file);
}

int cgroup_memory_read(const char *root, struct cgroup_memory *out)
{
	struct cgroup_memory found = {INT64_MAX, INT64_MAX, ""};
	struct group g;
	int64_t limit, left;
	int rc = find_group(root, "memory", &g);

	if (rc < 0)
		return rc;
	do {
		if (read_number(&g, g.version->limit, NULL, &limit) < 0 || limit >= NO_LIMIT_BYTES)
			continue;
		left = left_of(&g, limit);
		if (left < found.free_bytes)
			found.free_bytes = left;
		if (limit < found.limit_bytes) {
			found.limit_bytes = limit;
			name_file(root, &g, g.version->limit, found.file);
		}
	} while (go_up(&g));
	if (found.limit_bytes == INT64_MAX)
		return -ENOENT;
	*out = found;
	return 0;
}

/* 0 with the time that the group may use of each period, or -ENOENT. */
static int read_quota(const struct group *g, int64_t *quota, int64_t *period)
{
	char text[FILE_BYTES];

	if (g->version == &versions[0])
		return read_number(g, "cpu.cfs_quota_us", NULL, quota) < 0
			? -ENOENT
			: read_number(g, "cpu.cfs_period_us", NULL, period);
	if (read_file(g, "cpu.max", text) < 0 ||
		sscanf(text, "%" SCNd64 " %" SCNd64, quota, period) != 2)
		return -ENOENT;
	return 0;
}

/* The whole processors that the quota allows. */
static int64_t cpu_limit(const char *root)
{
	int64_t quota, period, limit = INT_MAX;
	struct group g;

	if (find_group(root, "cpu", &g) < 0)
		return limit;
	do {
		if (read_quota(&g, &quota, &period) == 0 && period > 0 && quota / period < limit)
			limit = quota / period;
	} while (go_up(&g));
	return limit > 1 ? limit : 1;
}

int cgroup_processors(const char *root)
{
	int64_t n = sysconf(_SC_NPROCESSORS_ONLN);
	const int64_t limit = cpu_limit(root);
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		n = CPU_COUNT(&set);
	return (int)(n < limit ? n : limit);
}

int64_t cgroup_oom_kills(const char *root, char file[CGROUP_FILE_BYTES])
{
	struct group g;
	int64_t n;
	int rc = find_group(root, "memory", &g);

	if (rc < 0)
		return rc;
	do {
		if (read_number(&g, g.version->events, "oom_kill", &n) == 0) {
			name_file(root, &g, g.version->events, file);
			return n;
		}
	} while (go_up(&g));
	return -ENOENT;
}
