/*
 * run_files.h: the files below a directory of a run: found, opened, measured and removed, and never
 * anything outside it; and whether they are complete. No link is followed, whoever made it; only
 * regular files count, and paths that artifact_path_valid allows (what is being written has a name
 * that begins with a dot).
 */
#ifndef GPT2D_DAEMON_RUNS_RUN_FILES_H
#define GPT2D_DAEMON_RUNS_RUN_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/store/run.h"

enum { RUN_FILES_MAX = 10000 }; /* below one directory */

struct run_file {
	char *path; /* below the directory that was listed; owned */
	int64_t bytes;
};

struct run_files {
	struct run_file *file; /* by path */
	size_t n, size;
	size_t left_out; /* names that cannot be sent as text, or that are too many levels deep */
};

/*
 * The files below dir; skip (NULL: none) names a folder at its top that is left out. 0; -ENOENT: no
 * such directory; -ELOOP: dir is a link; -E2BIG: more than RUN_FILES_MAX; another negative errno.
 * Finish after success.
 */
int run_files_list(const char *dir, const char *skip, struct run_files *out);
void run_files_finish(struct run_files *f);

/*
 * Open dir/path for reading. 0, -EINVAL (invalid path), -ENOENT (also if not a regular file),
 * -ELOOP (dir is a link), or another negative errno.
 */
int run_files_open(const char *dir, const char *path, int *fd, int64_t *bytes);

/*
 * All of dir/path, at most max bytes, with a final NUL; NULL: it cannot be read or is larger. The
 * caller frees it.
 */
char *run_files_read(const char *dir, const char *path, size_t max, size_t *n);

/*
 * Removes the content of dir, links themselves and not their targets. dir stays. 0: it is empty (or
 * does not exist), or a negative errno.
 */
int run_files_remove(const char *dir);
/* The size of the files that run_files_remove would remove; unreadable folders count nothing. */
int64_t run_files_bytes(const char *dir);

/*
 * Remove what killed processes left in a run's directory: temporary files (.NAME.tmp of
 * artifact_write) there and in the folders of its segments, and empty folders of segments. No
 * process may write there meanwhile.
 */
void run_files_sweep(const char *dir);

/*
 * The completion marker of a folder (gpt2d-artifacts(5)). Callers check a folder when no process
 * writes there any more, and before they store any state but "done", so that folder and store never
 * differ. A check may be repeated, as after a kill -9 between check and store.
 *
 * A valid marker names run, and its hashes fit the files beside it. own: dir is the run's own
 * folder, whose marker also names the run's spec; the marker of an experiment counts the segments,
 * and that many segments have a valid marker. Without own, dir is one segment of an experiment.
 * *complete: the marker is valid and durable. An invalid marker is removed, durably: 0, or a
 * negative errno where that failed.
 */
int run_files_check_marker(const char *dir, const struct run *run, bool own, bool *complete);
/* Removes a marker, valid or not: 0, or a negative errno. */
int run_files_remove_marker(const char *dir);

/*
 * The engine's summary of a complete segment, and [{path, bytes}] of its files, as JSON text that
 * the caller frees. NULL: there is no summary.
 */
char *run_files_summary(const char *dir, char **artifacts);

#endif
