/*
 * reserve_keeper.h: sees to it that the reserve (reserve.h) is there, in the worker's thread, and
 * says what became of it.
 */
#ifndef GPT2D_DAEMON_CONFIG_RESERVE_KEEPER_H
#define GPT2D_DAEMON_CONFIG_RESERVE_KEEPER_H

#include <stdbool.h>

#include "daemon/store/worker.h"

struct reserve_keeper {
	struct worker *worker;
	const char *state_dir;
	void (*on_missed)(void *arg); /* it could not be made */
	void *arg;
	struct worker_job job;
	bool at_work; /* that job is, or waits */
	int rc;       /* what it came to last; negative: there is no reserve */
};

/* state_dir outlives it, as it does the worker's jobs: its memory is used until worker_stop. */
void reserve_keeper_init(struct reserve_keeper *k, struct worker *worker, const char *state_dir,
	void (*on_missed)(void *arg), void *arg);
/* Makes it, unless it is there or that is being done. */
void reserve_keeper_look(struct reserve_keeper *k);
/* The store has taken it: that is said, and it is made again once there is room. */
void reserve_keeper_gone(struct reserve_keeper *k);

#endif
