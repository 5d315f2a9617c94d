/*
 * settle.h: what the folder of a segment, or of a whole run, says of it once nobody writes there
 * any more: it is complete, durably, or it has no completion marker. Called before anything but
 * "done" is stored of it, so that the two never differ; may be called again, as after a kill -9
 * between the two. In any thread: it touches files only.
 */
#ifndef GPT2D_DAEMON_RUNS_SETTLE_H
#define GPT2D_DAEMON_RUNS_SETTLE_H

#include <stdbool.h>

#include "daemon/store/run.h"

/*
 * own: dir is the run's, whose marker is the whole run's; else one segment's of an experiment. When
 * *complete is false the marker is gone, durably, or (a negative errno) could not be removed.
 */
int settle_folder(const char *dir, const struct run *run, bool own, bool *complete);
/* A marker goes whatever it says: 0, or a negative errno. */
int settle_remove(const char *dir);

/*
 * What segment.done would have said of what lies in dir: the summary, and [{path, bytes}], as JSON
 * text that the caller frees. Both NULL where the metrics are none of a whole segment, or without
 * memory.
 */
void settle_summary(const char *dir, char **summary, char **artifacts);

#endif
