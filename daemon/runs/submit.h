/*
 * submit.h: from the spec in a request to a stored run. gpt2d parses the spec, compares its paths
 * with the data roots, has the checker check each arm, writes the run, and then replies. A dry run
 * ends before the run is written.
 */
#ifndef GPT2D_DAEMON_RUNS_SUBMIT_H
#define GPT2D_DAEMON_RUNS_SUBMIT_H

#include <jansson.h>
#include <stdbool.h>

struct checker;
struct lifecycle;
struct reply;
struct run;
struct settings;
struct store;
struct submitter;
struct world;

struct submit_options {
	const struct settings *settings;
	struct store *store;
	struct checker *checker;
	struct world *world;
	const char *state_dir, *runs_dir;
	struct lifecycle *lifecycle;
	/* The run is durable and in the queue: sends the reply. */
	void (*queued)(void *arg, struct reply *reply, struct run *run);
	void *arg;
};

struct submitter *submit_create(const struct submit_options *options);
void submit_destroy(struct submitter *submitter); /* takes NULL */

/* Replies now or later. params has a member "spec", and may have "priority" and "rerun_of". */
void submit_request(struct submitter *submitter, struct reply *reply, json_t *params, bool dry_run);

/* gpt2d is stopping: refuses runs, but not dry runs. */
void submit_stop(struct submitter *submitter);
/* The checker will be destroyed: refuses everything. */
void submit_stop_checks(struct submitter *submitter);

#endif
