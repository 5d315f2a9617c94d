/*
 * record_log.h: what was said of runs, in the store: a run keeps its RECORD_LOG_LINES newest lines,
 * and how many were dropped. Transitions add theirs by themselves (record.c).
 */
#ifndef GPT2D_DAEMON_STORE_RECORD_LOG_H
#define GPT2D_DAEMON_STORE_RECORD_LOG_H

#include <jansson.h>
#include <stdint.h>
#include <sys/queue.h>

#include "proto/log_level.h"
#include "daemon/store/store.h"

enum { RECORD_LOG_LINES = 1000, RECORD_LOG_BYTES = 1024 };

struct record_log_line {
	TAILQ_ENTRY(record_log_line) link;
	int64_t run, at_ns;
	int rank; /* -1: gpt2d */
	enum log_level level;
	int64_t dropped; /* of the run, after this one */
	char message[RECORD_LOG_BYTES];
};
TAILQ_HEAD(record_log_lines, record_log_line);

/*
 * Write lines (at least one), which stay the caller's and must stay until done comes; lines of runs
 * that are no more are left out. Tried until they are durable. 0, or -ENOMEM.
 */
int record_log_add(struct store *s, struct record_log_lines *lines, void (*done)(void *arg, int rc),
	void *arg);

/*
 * Lines numbered above after, of at least a level, at most limit: {id, name, state, lines: [{n, at,
 * rank, level, message}], dropped, next, more}. rc -ENOENT: no such run. The callback owns result.
 */
int record_log_read(struct store *s, int64_t run, int64_t after, int64_t limit,
	enum log_level level, void (*done)(void *arg, int rc, json_t *result), void *arg);

#endif
