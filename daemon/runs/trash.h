/*
 * trash.h: STATE_DIR/runs/.trash, where gpt2d moves the folders of a run before it deletes them. A
 * run with a folder in the trash is never restored. The trash is below runs, because runs may be
 * another file system. For the worker's thread, or before it starts.
 */
#ifndef GPT2D_DAEMON_RUNS_TRASH_H
#define GPT2D_DAEMON_RUNS_TRASH_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/store/run.h"

/* Renames the folders of all attempts of run into the trash, durably: 0, or a negative errno. */
int trash_move(const char *state_dir, const struct run *run);
/* Empties them: 0, or a negative errno. */
int trash_empty(const char *state_dir, const struct run *run);
/* Removes them, once they are empty. */
void trash_remove(const char *state_dir, const struct run *run);

/* Whether the run has a folder, here or in the trash; also true if that is not known. */
bool trash_finds(const char *state_dir, const struct run *run);
/* The size of the files in the run's folders. */
int64_t trash_bytes(const char *state_dir, const struct run *run);

/* Calls each with the ID of every run in the trash: 0, or the result of each. */
int trash_each(const char *state_dir, int (*each)(int64_t id, void *arg), void *arg);
/* Removes all that is in the trash: 0, or a negative errno. */
int trash_empty_all(const char *state_dir);

#endif
