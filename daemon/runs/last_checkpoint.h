/*
 * last_checkpoint.h: where the newest checkpoint of a run is: that of its newest attempt, and of an
 * experiment that of its last segment, that has one (checkpoint.h).
 */
#ifndef GPT2D_DAEMON_RUNS_LAST_CHECKPOINT_H
#define GPT2D_DAEMON_RUNS_LAST_CHECKPOINT_H

#include <jansson.h>
#include <limits.h>
#include <stdint.h>

struct reply;
struct store;
struct worker;

struct last_checkpoint_options {
	struct store *store;
	struct worker *worker;
	const char *state_dir;
};

struct last_checkpoint {
	int64_t run, step;
	char dir[PATH_MAX];
};

/*
 * Calls found in the event loop, later. Where the run is unknown or has no checkpoint, the reply
 * gets the error, and found gets NULL: the reply is gone.
 */
void last_checkpoint_find(const struct last_checkpoint_options *options, struct reply *reply,
	int64_t run, void (*found)(void *arg, const struct last_checkpoint *checkpoint), void *arg);

/* The request "checkpoint". */
void last_checkpoint_request(
	const struct last_checkpoint_options *options, struct reply *reply, json_t *params);

#endif
