/*
 * artifacts.h: a run's files through the socket: lists them with their hashes, and reads them in
 * pieces of at most PROTOCOL_ARTIFACT_PIECE bytes. The worker (worker.h) reads the disk: the loop
 * never waits for it, and clients take turns, piece by piece.
 */
#ifndef GPT2D_DAEMON_RUNS_ARTIFACTS_H
#define GPT2D_DAEMON_RUNS_ARTIFACTS_H

#include <jansson.h>

struct queue;
struct reply;
struct store;
struct worker;

struct artifacts_options {
	struct store *store;
	struct worker *worker;
	const struct queue *queue;
	const char *state_dir; /* outlives the request */
};

/* The methods "artifacts" and "artifact-read". */
void artifacts_list(const struct artifacts_options *o, struct reply *reply, json_t *params);
void artifacts_read(const struct artifacts_options *o, struct reply *reply, json_t *params);

#endif
