/*
 * artifact_copy.h: files of a run, from gpt2d into a directory: whole or not at all (artifact.h),
 * checked by their hashes. Links in the directory are not followed.
 */
#ifndef GPT2D_CTL_RESULTS_ARTIFACT_COPY_H
#define GPT2D_CTL_RESULTS_ARTIFACT_COPY_H

#include <jansson.h>
#include <stdbool.h>

#include "ctl/link/client.h"
#include "ctl/print/term.h"

/*
 * result: the reply to "artifacts", all pages, with the altered files marked. Each of its files
 * gets "result": "copied", "present" (the same file was there), "differs" (another file was there,
 * and force is off or the file is altered) or "failed", the last two with "message". *incomplete:
 * whether there are files of the last two kinds. A RUN_COMPLETE.txt is copied after the files that
 * it vouches for, and only if all of them are there and none is altered; an older one is removed
 * before a file beside or below it is written. Creates dir. bar: a terminal for the progress,
 * or NULL. 0, or an exit status with e when nothing more can be copied.
 */
int artifact_copy_all(struct client *c, json_t *result, const char *dir, bool force,
	const struct term *bar, bool *incomplete, struct ctl_error *e);

/*
 * At most bytes, up to PROTOCOL_ARTIFACT_PIECE, of a run's file from offset: 0 with *out (the
 * caller's, a NUL follows the *n bytes), or an exit status with e.
 */
int artifact_copy_read(struct client *c, int64_t run, const char *path, int64_t offset,
	int64_t bytes, char **out, size_t *n, struct ctl_error *e);

#endif
