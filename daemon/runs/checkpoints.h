/*
 * checkpoints.h: where the checkpoints of a run are (proto/checkpoint.h): the folders of all its
 * attempts, in which an engine looks for a checkpoint that is whole; and the newest checkpoint.
 */
#ifndef GPT2D_DAEMON_RUNS_CHECKPOINTS_H
#define GPT2D_DAEMON_RUNS_CHECKPOINTS_H

#include <jansson.h>
#include <limits.h>
#include <stdint.h>

#include "daemon/store/run.h"

struct reply;
struct store;
struct worker;

/* The checkpoint folders of a run's attempts, from this attempt down to the first. */
json_t *checkpoints_folders(const struct run *run, const char *state_dir, int64_t attempt);
/*
 * The same for the run with this ID, from its last attempt on. done comes later, once, in the loop:
 * rc -ENOENT: no such run. It owns folders (NULL unless rc is 0).
 */
void checkpoints_find(struct store *store, const char *state_dir, int64_t id,
	void (*done)(void *arg, int rc, json_t *folders), void *arg);

struct checkpoints_options {
	struct store *store;
	struct worker *worker;
	const char *state_dir;
};

struct checkpoints_last {
	int64_t run, step;
	char dir[PATH_MAX];
};

/*
 * The newest checkpoint of the newest attempt that has one; of an experiment that of the last
 * segment that has one. Calls found in the event loop, later. Where the run is unknown or has no
 * checkpoint, the reply gets the error, and found gets NULL: the reply is gone.
 */
void checkpoints_find_last(const struct checkpoints_options *options, struct reply *reply,
	int64_t run, void (*found)(void *arg, const struct checkpoints_last *last), void *arg);

/* The request "checkpoint". */
void checkpoints_request(
	const struct checkpoints_options *options, struct reply *reply, json_t *params);

#endif
