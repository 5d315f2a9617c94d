/*
 * reconcile.h: at gpt2d's start, makes the store agree with the folders of the runs. No run is
 * running after a restart:
 *
 * - A run whose removal had begun is removed.
 * - An open run whose folder is complete (run_files.h) is done.
 * - Any other run that had started is interrupted, and queued again if its spec says restart: true.
 * - Queued runs keep their order.
 * - A segment whose folder is complete is done, and any other segment ends with its run.
 * - The folder of a run or segment that is not done has no completion marker.
 */
#ifndef GPT2D_DAEMON_RUNS_RECONCILE_H
#define GPT2D_DAEMON_RUNS_RECONCILE_H

#include <stddef.h>
#include <stdint.h>

struct queue;
struct store;

struct reconcile_options {
	struct store *store; /* before store_start */
	const char *state_dir;
	struct queue *queue; /* filled with the queued runs */
	int64_t *counts;     /* filled with the runs of each enum run_state */
};
/* Before the event loop, while no engine runs: 0, or a negative errno with error. */
int reconcile_runs(const struct reconcile_options *o, char *error, size_t error_bytes);

#endif
