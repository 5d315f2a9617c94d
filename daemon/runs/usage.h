/* usage.h: processor time and memory of a process, and of the host, from /proc. */
#ifndef GPT2D_DAEMON_RUNS_USAGE_H
#define GPT2D_DAEMON_RUNS_USAGE_H

#include <jansson.h>
#include <sys/types.h>

/*
 * Into object: cpu_s, processor time since the process began, all its threads, and rss_bytes, its
 * resident memory; both null when there is no such process.
 */
void usage_add(json_t *object, pid_t pid);

/* {processors, load_1m, memory_bytes, memory_available_bytes, memory_limit_bytes}; null: not known,
 * no limit. */
json_t *usage_host(void);

#endif
