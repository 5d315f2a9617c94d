/*
 * generation.h: the request "generate": text that the newest checkpoint of a run continues, by the
 * warm engine of rank 0. One at a time, and only while no run is with the engines: a generation
 * would disturb what a run measures. The scheduler starts it and sends no segment until it has
 * ended.
 *
 *   looking (for the checkpoint) -> waiting (for ready engines) -> running -> the reply
 */
#ifndef GPT2D_DAEMON_RUNS_GENERATION_H
#define GPT2D_DAEMON_RUNS_GENERATION_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/runs/checkpoints.h"

struct engine_pool;
struct generation;
struct holds;
struct reply;

struct generation_options {
	struct checkpoints_options checkpoints;
	struct engine_pool *pool;
	const struct holds *holds;
	const int64_t *progress_timeout_s; /* the setting, which may change */
	void (*changed)(void *arg);        /* it waits for engines now, or has ended */
	void *arg;
};

struct generation *generation_create(const struct generation_options *options);
void generation_destroy(struct generation *g); /* takes NULL */

/* running: the run that is with the engines, 0: none. */
void generation_request(struct generation *g, struct reply *reply, json_t *params, int64_t running);

bool generation_waits(const struct generation *g); /* it needs engines */
bool generation_runs(const struct generation *g);  /* they are at it */
/*
 * Starts what waits when the engines are ready, or refuses it. True: the engines are taken by a
 * generation, or about to be.
 */
bool generation_start(struct generation *g, int64_t running);

/* From the engines: whether the message was about a generation. */
bool generation_message(struct generation *g, const char *method, json_t *params);
void generation_lost(struct generation *g, const char *reason);
/* Each second: ends one that nobody waits for, and engines that hang in one. */
void generation_watch(struct generation *g);
/* gpt2d is stopping. */
void generation_stop(struct generation *g);

#endif
