/*
 * process.h: which process that is, for people who have to find the one that is old.
 */
#ifndef GPT2D_DAEMON_CONFIG_PROCESS_H
#define GPT2D_DAEMON_CONFIG_PROCESS_H

#include <stddef.h>
#include <sys/types.h>

/*
 * "/usr/bin/gpt2d, pid 12"; "/usr/bin/gpt2d (deleted), pid 12" when its file was replaced; "pid 12"
 * when the kernel does not tell us.
 */
void process_describe(pid_t pid, char *out, size_t out_bytes);

#endif
