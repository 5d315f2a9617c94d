#include "daemon/runs/run_ids.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/state_files.h"

/* ID-NAME; 0 for another name. */
static int64_t id_of(const char *name)
{
	char *end;
	long long id;

	if (name[0] < '1' || name[0] > '9')
		return 0;
	errno = 0;
	id = strtoll(name, &end, 10);
	return *end == '-' && errno == 0 ? id : 0;
}

static int compare(const void *a, const void *b)
{
	const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static bool has_row(const struct run_ids_rows *rows, int64_t id)
{
	return rows == NULL ||
		(rows->n > 0 && bsearch(&id, rows->id, rows->n, sizeof(id), compare) != NULL);
}

int run_ids_look(const char *state_dir, int64_t known, const struct run_ids_rows *rows,
	struct run_ids *out)
{
	struct run_ids seen = {.last = known};
	const struct dirent *entry;
	char path[PATH_MAX];
	DIR *runs;
	int rc = 0;

	if (snprintf(path, sizeof(path), "%s/" STATE_RUNS, state_dir) >= PATH_MAX)
		return -ENAMETOOLONG;
	runs = opendir(path);
	if (runs == NULL && errno != ENOENT)
		return -errno;
	while (runs != NULL && (errno = 0, entry = readdir(runs)) != NULL) {
		int64_t id = id_of(entry->d_name);

		seen.beyond += id > known;
		if (id > seen.last) {
			seen.last = id;
			snprintf(seen.name, sizeof(seen.name), "%s", entry->d_name);
		}
		if (id == 0 || id > known || has_row(rows, id))
			continue;
		seen.strays++;
		if (id > seen.last_stray) {
			seen.last_stray = id;
			snprintf(seen.stray_name, sizeof(seen.stray_name), "%s", entry->d_name);
		}
	}
	if (runs != NULL) {
		rc = -errno;
		closedir(runs);
	}
	if (rc == 0)
		*out = seen;
	return rc;
}
