/*
 * summary.h: the summary of a segment (gpt2d-artifacts(5)), made from its training_metrics.json:
 * for one whose engine wrote everything, and whose segment.done gpt2d did not hear.
 */
#ifndef GPT2D_DAEMON_RUNS_SUMMARY_H
#define GPT2D_DAEMON_RUNS_SUMMARY_H

#include <jansson.h>

/* What segment.done would have said; NULL: these are no metrics of a whole segment. */
json_t *summary_of_metrics(const json_t *metrics);

#endif
