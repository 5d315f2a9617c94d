/*
 * trash.h: directories of runs that are to go: STATE_DIR/runs/.trash, from where nothing comes
 * back. Below runs, which may be a file system of its own. For the worker's thread, or before it is
 * there.
 */
#ifndef GPT2D_DAEMON_RUNS_TRASH_H
#define GPT2D_DAEMON_RUNS_TRASH_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/store/run.h"

/*
 * Move the directories of all attempts of run there, durably; those that are not there are none. 0
 * or a negative errno. One that cannot be moved (EXDEV: a folder of an overlay's lower layer) stays
 * where it is, without its completion marker, and an empty one of its name is in the trash for it.
 */
int trash_move(const char *state_dir, const struct run *run);
/*
 * Empty them, at most budget names, and remove what could not be moved, durably: 0, -EAGAIN: there
 * is more, or another negative errno.
 */
int trash_empty(const char *state_dir, const struct run *run, int64_t budget);
/* What could not be moved, at once and all of it: 0, or a negative errno. */
int trash_clear(const char *state_dir, const struct run *run);
/* Remove them, empty as they are, durably. */
int trash_remove(const char *state_dir, const struct run *run);

/* Whether there is one, here or in the trash; also where that cannot be told. */
bool trash_finds(const char *state_dir, const struct run *run);

/* What they take where they are. */
int64_t trash_bytes(const char *state_dir, const struct run *run);

/* Calls each with the id of every run that has something there: 0, or what each returned. */
int trash_each(const char *state_dir, int (*each)(int64_t id, void *arg), void *arg);
/* Remove whatever is there, at most budget names: 0, -EAGAIN or another negative errno. */
int trash_empty_all(const char *state_dir, int64_t budget);

#endif
