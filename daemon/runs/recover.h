/*
 * recover.h: removals of runs that were begun by a gpt2d that went away (trash.h) are finished.
 */
#ifndef GPT2D_DAEMON_RUNS_RECOVER_H
#define GPT2D_DAEMON_RUNS_RECOVER_H

#include <stddef.h>

struct daemon;

/* Before the loop: rows of runs in the trash go. 0, or a negative errno with error. */
int recover_removals(struct daemon *d, char *error, size_t error_bytes);

#endif
