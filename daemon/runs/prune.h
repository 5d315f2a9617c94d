/*
 * prune.h: removes runs that have ended, with their files: for the request "prune", and for
 * retain_runs and retain_days while no run trains. Protected runs stay.
 *
 * A run's folders are renamed into the trash (trash.h) and emptied there, and only then its rows
 * are deleted. So a full disk gets free space first. The next start finishes a removal that gpt2d
 * had begun. A run whose folder is missing keeps its rows, because its disk may not be mounted;
 * "forget" of the request removes them.
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
	const struct queue *queue;       /* its run is not removed */
	const struct settings *settings; /* retain_runs and retain_days may change */
	const char *state_dir;
	/* UTC of the last change of any run at least a day before this start; 0: none */
	int64_t last_change_ns;
	bool (*busy)(void *arg); /* retention waits */
	void (*removed)(enum run_state state, void *arg);
	void *arg;
};

/* Also empties the trash, in the background. */
struct pruner *prune_create(const struct prune_options *options);
void prune_destroy(struct pruner *p); /* after worker_stop and store_close; takes NULL */

/* A run has ended: retention may soon remove another one. */
void prune_soon(struct pruner *p);

/* The methods "prune" and "keep". */
void prune_request(struct pruner *p, struct reply *reply, json_t *params);
void prune_keep(struct pruner *p, struct reply *reply, json_t *params);

#endif
