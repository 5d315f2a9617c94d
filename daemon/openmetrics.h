/*
 * openmetrics.h: figures of gpt2d for a monitoring system: as the reply to "metrics", in the format
 * of OpenMetrics 1.0, and in a file that is replaced each period (metrics_file), in the text format
 * of Prometheus, for the textfile collector of node_exporter. Each sample has a label with the
 * daemon's socket, so that several daemons on one host stay apart. Names, units and meanings:
 * gpt2d.8.
 */
#ifndef GPT2D_DAEMON_OPENMETRICS_H
#define GPT2D_DAEMON_OPENMETRICS_H

#include <jansson.h>

struct event_base;
struct openmetrics;
struct reply;
struct settings;
struct store;
struct worker;

/* All outlive the struct openmetrics. */
struct openmetrics_options {
	struct event_base *base;
	struct worker *worker;
	struct store *store;
	const struct settings *settings; /* metrics_file and metrics_period */
	const char *socket, *state_dir;
	json_t *(*status)(void *arg); /* the result of the method "status" */
	void *arg;
};

/* The file is first written from the loop. */
struct openmetrics *openmetrics_create(const struct openmetrics_options *options);
/*
 * After worker_stop and store_close. Removes the file: a gpt2d that has ended has no figures. Takes
 * NULL.
 */
void openmetrics_destroy(struct openmetrics *m);

/* The method "metrics". */
void openmetrics_request(struct openmetrics *m, struct reply *reply, json_t *params);

#endif
