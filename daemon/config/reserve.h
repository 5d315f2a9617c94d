/*
 * reserve.h: a file that holds room on the state directory's file system, STATE_DIR/reserve. It is
 * given up where the disk is full and old runs are to be removed, or gpt2d is to start, or to end
 * while what became of runs is in memory only: rows are deleted by writing, and the files of runs
 * may not free enough for it. It holds nothing else; it may be removed at any time and is made
 * again once there is room for it and a quarter more.
 */
#ifndef GPT2D_DAEMON_CONFIG_RESERVE_H
#define GPT2D_DAEMON_CONFIG_RESERVE_H

enum { RESERVE_BYTES = 1 << 20 };

/* 0: it is there, whole; -ENOSPC: no room for it; another negative errno. May take long. */
int reserve_make(const char *state_dir);
/* 0: its room is free, durably; -ENOENT: there was none; another negative errno. */
int reserve_release(const char *state_dir);

#endif
