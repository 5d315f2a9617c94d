/*
 * generation.h: the request "generate": the warm engine of rank 0 continues a text with the newest
 * checkpoint of a run. One generation at a time, and only while no run is with the engines, because
 * it would disturb measurements. The scheduler starts it and sends no segment until it has ended.
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
	void (*changed)(void *arg);        /* it now waits for engines, or has ended */
	void *arg;
};

struct generation *generation_create(const struct generation_options *options);
void generation_destroy(struct generation *g); /* takes NULL */

/* running: the run with the engines, 0: none. */
void generation_request(struct generation *g, struct reply *reply, json_t *params, int64_t running);

bool generation_waits(const struct generation *g); /* it needs engines */
bool generation_runs(const struct generation *g);  /* it is with the engines */
/*
 * If the engines are ready, starts or refuses the waiting generation. True: a generation has the
 * engines, or will have them.
 */
bool generation_start(struct generation *g, int64_t running);

/* From the engines: whether the message belongs to a generation. */
bool generation_message(struct generation *g, const char *method, json_t *params);
void generation_lost(struct generation *g, const char *reason);
/* Each second: ends a generation without a client, and engines that hang in one. */
void generation_watch(struct generation *g);
/* gpt2d is stopping. */
void generation_stop(struct generation *g);

#endif
