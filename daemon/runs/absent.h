/*
 * absent.h: runs that are done and have no folder: it was removed by hand, or runs is on a disk
 * that is not mounted.
 */
#ifndef GPT2D_DAEMON_RUNS_ABSENT_H
#define GPT2D_DAEMON_RUNS_ABSENT_H

#include <limits.h>
#include <stdbool.h>

struct sqlite3;

struct absent {
	int looked_at, absent; /* of the newest runs that are done */
	bool away;             /* all of them, and they are too many to have been removed by hand */
	char last[PATH_MAX];   /* the folder of the newest that is absent */
};

/* 0, or a negative errno: -EBADMSG for a row that cannot be. */
int absent_look(struct sqlite3 *db, const char *state_dir, struct absent *out);

#endif
