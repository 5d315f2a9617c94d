/*
 * artifact_copy.h: files of a run, from the daemon into a folder: in pieces, whole or not at all
 * (written beside, fsync, rename), checked by their hashes, never outside the folder. What was
 * copied in part goes on there the next time, if it still is the same file.
 */
#ifndef GPT2D_CTL_RESULTS_ARTIFACT_COPY_H
#define GPT2D_CTL_RESULTS_ARTIFACT_COPY_H

#include <jansson.h>
#include <stdbool.h>

#include "ctl/link/client.h"
#include "ctl/ctl.h"

/*
 * result: the reply to "artifacts", all pages, after artifact_check_all. Each of its files gets
 * "result": "copied", "present" (the same file was there), "differs" (another was there, and force
 * was not given or this one is altered) or "failed", the last two with "message". The marker of
 * what is altered is not copied, and one that an earlier copy left goes where it is false
 * (copy_marker.h). *incomplete: whether there are files of the last two kinds. dir is made where it
 * is not there, and locked meanwhile. A bar on stderr where that is a terminal. 0, or an exit code
 * with e when nothing more could be copied.
 */
int artifact_copy_all(struct ctl *ctl, struct client *c, json_t *result, const char *dir,
	bool force, bool *incomplete, struct ctl_error *e);

#endif
