/*
 * artifacts.h: a run's files through the socket: listed with their hashes, and read in pieces of at
 * most PROTOCOL_ARTIFACT_PIECE bytes. The disk is the worker's (worker.h): the loop never waits for
 * it, and many clients take turns, piece by piece.
 */
#ifndef GPT2D_DAEMON_RUNS_ARTIFACTS_H
#define GPT2D_DAEMON_RUNS_ARTIFACTS_H

#include <jansson.h>

struct artifacts;
struct reply;
struct daemon;

struct artifacts *artifacts_create(void);      /* NULL without memory */
void artifacts_destroy(struct artifacts *all); /* takes NULL */

/* The methods "artifacts" and "artifact-read"; they answer the request, now or later. */
void artifacts_list(struct daemon *d, struct reply *reply, json_t *params);
void artifacts_read(struct daemon *d, struct reply *reply, json_t *params);

#endif
