/*
 * resume.h: where the checkpoints of a run are. The engine finds the checkpoint: it knows which
 * are whole.
 */
#ifndef GPT2D_DAEMON_RUNS_RESUME_H
#define GPT2D_DAEMON_RUNS_RESUME_H

#include <jansson.h>
#include <stdint.h>

#include "daemon/store/run.h"

struct store;

/* Folders of the checkpoints of a run's attempts, from this one down to the first. */
json_t *resume_folders(const struct run *run, const char *state_dir, int64_t attempt);

/*
 * The same of the run with this ID, from its last attempt on. done comes later, once, in the loop:
 * rc -ENOENT: no such run. It owns folders (NULL unless rc is 0).
 */
void resume_find(struct store *store, const char *state_dir, int64_t id,
	void (*done)(void *arg, int rc, json_t *folders), void *arg);

#endif
