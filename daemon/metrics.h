/*
 * metrics.h: figures of gpt2d in the text format of Prometheus: as the reply to "metrics", and in
 * metrics_file, which gpt2d replaces each period, for the textfile collector of node_exporter. Each
 * sample has the daemon's socket as a label, which distinguishes several daemons on one host.
 * Names, units and meanings: gpt2d.8.
 */
#ifndef GPT2D_DAEMON_METRICS_H
#define GPT2D_DAEMON_METRICS_H

#include <jansson.h>
#include <stdbool.h>

struct event_base;
struct metrics;
struct reply;
struct settings;
struct store;
struct worker;

/* All outlive the struct metrics. */
struct metrics_options {
	struct event_base *base;
	struct worker *worker;
	struct store *store;
	const struct settings *settings; /* metrics_file and metrics_period */
	const char *socket, *state_dir;
	json_t *(*status)(void *arg); /* the result of the method "status" */
	void *arg;
};

/* The file is first written from the loop. */
struct metrics *metrics_create(const struct metrics_options *options);
/*
 * After worker_stop and store_close. Removes the file: a gpt2d that has ended has no figures. Takes
 * NULL.
 */
void metrics_destroy(struct metrics *m);

/* The method "metrics". */
void metrics_request(struct metrics *m, struct reply *reply);

/*
 * Whether path ends in a name that does not begin with a dot, and nothing but a regular file is
 * there: gpt2d does not replace /dev/null.
 */
bool metrics_path_valid(const char *path);

#endif
