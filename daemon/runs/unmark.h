/*
 * unmark.h: completion markers of what is not done, taken away at the start. An engine takes away
 * its own when the folder cannot be synced after it, but on a disk that fails in that moment this
 * fails as well: the run is failed, and its folder says that it is whole to whoever reads it.
 */
#ifndef GPT2D_DAEMON_RUNS_UNMARK_H
#define GPT2D_DAEMON_RUNS_UNMARK_H

struct sqlite3;

/*
 * Runs that are looked at, those that ended last first, and for how long: each start looks at them
 * anew and writes down nothing, so that a marker that could not be removed is met again. A disk
 * that fails holds up the queue, so that few can be left with one.
 */
enum { UNMARK_RUNS_MAX = 1000, UNMARK_MS_MAX = 500 };

/*
 * The markers of runs that are stored as failed, cancelled or interrupted, and of their segments
 * that ended so, are removed, durably; the log tells each that was, and each that cannot be. What
 * is stored stays as it is, and the folder of anything that is done or was not settled. Below
 * state_dir/runs no link is followed; a marker that is one goes itself. Nobody may be writing
 * there: before the loop. 0, or a negative errno of reading the database.
 */
int unmark_ended(struct sqlite3 *db, const char *state_dir);

#endif
