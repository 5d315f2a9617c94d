#include "proto/host/cgroup.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char mount[] = "/sys/fs/cgroup";

/* A folder of a group, below root. */
struct group {
	char path[PATH_MAX];
	size_t top; /* bytes of the path that are the mount's */
};

/* The group of this process. */
static int find_group(const char *root, struct group *g)
{
	char name[PATH_MAX], line[PATH_MAX];
	bool found = false;
	FILE *f;

	snprintf(name, sizeof(name), "%s/proc/self/cgroup", root);
	f = fopen(name, "re");
	while (f != NULL && !found && fgets(line, sizeof(line), f))
		found = strncmp(line, "0::/", 4) == 0;
	if (f != NULL)
		fclose(f);
	if (!found)
		return -ENOENT;
	line[strcspn(line, "\n")] = '\0';
	if (strcmp(line, "0::/") == 0 || strncmp(line, "0::/..", 6) == 0)
		line[3] = '\0'; /* the topmost, or a group outside of a container's view */
	g->top = strlen(root) + strlen(mount);
	return snprintf(g->path, sizeof(g->path), "%s%s%s", root, mount, line + 3) <
			(int)sizeof(g->path)
		? 0
		: -ENAMETOOLONG;
}

/* To the group above. false: the group was the topmost that can be seen. */
static bool go_up(struct group *g)
{
	char *slash = strrchr(g->path + g->top, '/');

	if (slash == NULL)
		return false;
	*slash = '\0';
	return true;
}

/* The first line of a file of the group, or the line that begins with row. */
static int read_line(const struct group *g, const char *file, const char *row, char line[256])
{
	char name[PATH_MAX + 64];
	int rc = -ENOENT;
	FILE *f;

	snprintf(name, sizeof(name), "%s/%s", g->path, file);
	f = fopen(name, "re");
	if (f == NULL)
		return rc;
	while (rc < 0 && fgets(line, 256, f))
		if (row == NULL ||
			(strncmp(line, row, strlen(row)) == 0 && line[strlen(row)] == ' '))
			rc = 0;
	fclose(f);
	return rc;
}

/* 0, or -ENOENT, also for "max", which is no limit. */
static int read_number(const struct group *g, const char *file, const char *row, int64_t *out)
{
	char line[256], *at = line, *end;

	if (read_line(g, file, row, line) < 0)
		return -ENOENT;
	if (row != NULL)
		at += strlen(row);
	*out = strtoll(at, &end, 10);
	return end > at && *out >= 0 ? 0 : -ENOENT;
}

/* Until this group's limit is reached. */
static int64_t left_of(const struct group *g, int64_t limit)
{
	static const char *const droppable[] = {"inactive_file", "active_file", "slab_reclaimable"};
	int64_t used, n;

	if (read_number(g, "memory.current", NULL, &used) < 0)
		return limit;
	for (size_t i = 0; i < sizeof(droppable) / sizeof(droppable[0]); i++)
		if (read_number(g, "memory.stat", droppable[i], &n) == 0)
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
	int rc = find_group(root, &g);

	if (rc < 0)
		return rc;
	do {
		if (read_number(&g, "memory.max", NULL, &limit) < 0)
			continue;
		left = left_of(&g, limit);
		if (left < found.free_bytes)
			found.free_bytes = left;
		if (limit < found.limit_bytes) {
			found.limit_bytes = limit;
			name_file(root, &g, "memory.max", found.file);
		}
	} while (go_up(&g));
	if (found.limit_bytes == INT64_MAX)
		return -ENOENT;
	*out = found;
	return 0;
}

/* The whole processors that cpu.max allows. */
static int64_t cpu_limit(const char *root)
{
	int64_t quota, period, limit = INT_MAX;
	char line[256];
	struct group g;

	if (find_group(root, &g) < 0)
		return limit;
	do {
		if (read_line(&g, "cpu.max", NULL, line) == 0 &&
			sscanf(line, "%" SCNd64 " %" SCNd64, &quota, &period) == 2 && period > 0 &&
			quota / period < limit)
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
	int rc = find_group(root, &g);

	if (rc < 0)
		return rc;
	do {
		if (read_number(&g, "memory.events", "oom_kill", &n) == 0) {
			name_file(root, &g, "memory.events", file);
			return n;
		}
	} while (go_up(&g));
	return -ENOENT;
}
