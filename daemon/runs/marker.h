/*
 * marker.h: whether a folder is complete, by its completion marker (gpt2d-artifacts(5)). Callers
 * check a folder when no process writes there any more, and before they store any state but "done",
 * so that folder and store never differ. A check may be repeated, as after a kill -9 between check
 * and store. These functions touch files only.
 */
#ifndef GPT2D_DAEMON_RUNS_MARKER_H
#define GPT2D_DAEMON_RUNS_MARKER_H

#include <stdbool.h>

#include "daemon/store/run.h"

/*
 * A valid marker names run, and its hashes fit the files beside it. own: dir is the run's own
 * folder, whose marker also names the run's spec; the marker of an experiment counts the segments,
 * and that many segments have a valid marker. Without own, dir is one segment of an experiment.
 * *complete: the marker is valid and durable. An invalid marker is removed, durably: 0, or a
 * negative errno where that failed.
 */
int marker_check(const char *dir, const struct run *run, bool own, bool *complete);
/* Removes a marker, valid or not: 0, or a negative errno. */
int marker_remove(const char *dir);

/*
 * The summary of a segment that is complete, as its engine wrote it, and [{path, bytes}] of its
 * files, as JSON text that the caller frees. NULL: there is no summary.
 */
char *marker_summary(const char *dir, char **artifacts);

#endif
