/*
 * scratch.h: the folder in which gpt2d --check tries a database, .check-XXXXXX in the folder that
 * is looked at. Who uses it holds a shared lock (flock) on it, which goes with the process; one
 * that was killed has left the folder, and the next gpt2d of the state directory removes it.
 */
#ifndef GPT2D_DAEMON_CONFIG_SCRATCH_H
#define GPT2D_DAEMON_CONFIG_SCRATCH_H

#include <limits.h>

struct scratch {
	char path[PATH_MAX]; /* of the folder */
	int fd;
};

/* The database in it. */
#define SCRATCH_DATABASE "t.db"

/* A new one in folder: 0 or a negative errno. */
int scratch_make(struct scratch *scratch, const char *folder);
/* It goes, with the database. */
void scratch_remove(struct scratch *scratch);

/*
 * Those in state_dir that are this user's and that nobody uses go, and those in the folders above
 * it that can be written, where one is tried while there is no state_dir; the log tells how many,
 * and of those that cannot. What else may be in one stays, and the folder with it. No link is
 * followed.
 */
void scratch_sweep(const char *state_dir);

#endif
