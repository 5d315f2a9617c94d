/*
 * prune.h: removes runs that have ended, with their files. Clients ask for it with "prune", and
 * retain_runs and retain_days ask for it while no run trains. Runs marked as kept stay.
 *
 * A run's folders are renamed into the trash (trash.h) and emptied there, and only then its rows
 * are deleted. So its files make room first where the disk is full. The next start finishes a
 * removal that gpt2d had begun. A run whose folder is missing keeps its rows, because its disk may
 * not be mounted; the request's "forget" removes them.
 */
#ifndef GPT2D_DAEMON_RUNS_PRUNE_H
#define GPT2D_DAEMON_RUNS_PRUNE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/store/run.h"

struct event_base;
struct pruner;
struct queue;
struct reply;
struct settings;
struct store;
struct worker;

struct prune_options {
	struct event_base *base;
	struct store *store;
	struct worker *worker;
	const struct queue *queue;       /* a run in it is not removed */
	const struct settings *settings; /* retain_runs and retain_days may change */
	const char *state_dir;
	int64_t last_change_ns;  /* UTC: of any run, a day before this start or earlier; 0: none */
	bool (*busy)(void *arg); /* retention waits */
	void (*removed)(enum run_state state, void *arg);
	void *arg;
};

/* Also empties the trash, in the background. */
struct pruner *prune_create(const struct prune_options *options);
void prune_destroy(struct pruner *p); /* after worker_stop and store_close; takes NULL */

/* A run has ended: retention may remove another one soon. */
void prune_soon(struct pruner *p);

/* The methods "prune" and "keep". */
void prune_request(struct pruner *p, struct reply *reply, json_t *params);
void prune_keep(struct pruner *p, struct reply *reply, json_t *params);

#endif
