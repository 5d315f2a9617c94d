/* sweep.h: temporary files that processes which were killed have left in a run's directory. */
#ifndef GPT2D_DAEMON_RUNS_SWEEP_H
#define GPT2D_DAEMON_RUNS_SWEEP_H

/*
 * Remove what artifact_write calls temporary (.NAME.tmp) in a run's directory and in those of its
 * segments, and those of segments that are empty. Nobody may be writing there. Other files, and
 * links, are left alone.
 */
void sweep_run_dir(const char *dir);

#endif
