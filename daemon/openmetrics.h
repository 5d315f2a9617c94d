/*
 * openmetrics.h: figures of gpt2d for a monitoring system, as text in OpenMetrics 1.0's format; of
 * its types only gauge and counter, so that Prometheus' older text format, which node_exporter's
 * textfile collector reads, takes it as well. In a file that is replaced each period
 * (metrics_file), and as the answer to "metrics". Names, units and meanings: gpt2d.8.
 */
#ifndef GPT2D_DAEMON_OPENMETRICS_H
#define GPT2D_DAEMON_OPENMETRICS_H

#include <jansson.h>
#include <stdbool.h>

struct reply;
struct daemon;
struct openmetrics;

bool openmetrics_can_be(const char *path); /* the name of that file */
/* Nothing is there, or a regular file that is empty or has figures: no other is replaced or
 * removed. */
bool openmetrics_is_ours(const char *path);

/* 0 or a negative errno; the file is first written from the loop. */
int openmetrics_create(struct daemon *d, struct openmetrics **out);
/* After worker_stop and store_close. The file goes: a gpt2d that has ended has no figures. Takes
 * NULL. */
void openmetrics_destroy(struct openmetrics *m);

/* The method "metrics"; it answers the request later. */
void openmetrics_request(struct daemon *d, struct reply *reply, json_t *params);

#endif
