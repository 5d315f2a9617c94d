#include "daemon/runs/resume.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/store/record.h"
#include "proto/checkpoint.h"
#include "proto/host/memory.h"

enum { FOLDERS_MAX = 64 };

json_t *resume_folders(const struct run *run, const char *state_dir, int64_t attempt)
{
	struct run place = *run;
	json_t *folders = json_array();
	char dir[PATH_MAX];

	for (place.attempt = attempt; place.attempt > 0 && json_array_size(folders) < FOLDERS_MAX;
		place.attempt--)
		if (run_dir(&place, state_dir, dir, sizeof(dir)) == 0)
			json_array_append_new(folders, json_sprintf("%s/" CHECKPOINT_FOLDER, dir));
	return folders;
}

struct search {
	const char *state_dir;
	void (*done)(void *arg, int rc, json_t *folders);
	void *arg;
};

static void on_show(void *arg, int rc, json_t *result)
{
	struct search *s = arg;
	const json_t *row = json_object_get(result, "run");
	const char *name = json_string_value(json_object_get(row, "name"));
	struct run run = {.id = json_integer_value(json_object_get(row, "id")),
		.attempt = json_integer_value(json_object_get(row, "attempt"))};

	snprintf(run.name, sizeof(run.name), "%s", name ? name : "");
	s->done(s->arg, rc, rc == 0 ? resume_folders(&run, s->state_dir, run.attempt) : NULL);
	json_decref(result);
	free(s);
}

void resume_find(struct store *store, const char *state_dir, int64_t id,
	void (*done)(void *arg, int rc, json_t *folders), void *arg)
{
	struct search *s = memory_zeroed(1, sizeof(*s));

	*s = (struct search){.state_dir = state_dir, .done = done, .arg = arg};
	record_show(store, state_dir, id, 0, 1, on_show, s);
}
