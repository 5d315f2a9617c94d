/* marker.h: whether what a run has left on disk says that it was completed. */
#ifndef GPT2D_DAEMON_RUNS_MARKER_H
#define GPT2D_DAEMON_RUNS_MARKER_H

#include <stdbool.h>

#include "daemon/store/run.h"

/* Larger ones are none: an engine lists at most 100,000 steps in them, some MB. */
enum { MARKER_METRICS_BYTES = 16 << 20 };

/*
 * The marker in dir names this run and its spec, and the metrics are those that it was written
 * for. In an experiment's directory the marker counts the segments: as many of them have a marker
 * that fits their metrics.
 */
bool marker_valid(const char *dir, const struct run *run);
/* The same of the directory of one segment of an experiment. */
bool marker_segment_valid(const char *dir, const struct run *run);

#endif
