/*
 * run_log.h: the log lines of a run, from its engines and from gpt2d: sent to its followers at
 * once, and kept in the store, where "logs" reads them.
 */
#ifndef GPT2D_DAEMON_RUNS_RUN_LOG_H
#define GPT2D_DAEMON_RUNS_RUN_LOG_H

#include <jansson.h>

#include "daemon/config/log.h"
#include "daemon/store/run.h"

struct follow;
struct queue;
struct reply;
struct run_log;
struct store;

/* Lines of runs that wait for the store. Further ones are dropped and counted. */
enum { RUN_LOG_PENDING = 4000 };

struct run_log *run_log_create(struct store *store, struct queue *queue, struct follow *follow);
void run_log_destroy(struct run_log *log); /* takes NULL */

/* rank -1: gpt2d itself. Control characters and invalid UTF-8 are replaced. */
void run_log_write(struct run_log *log, struct run *run, int rank, enum log_level level,
	const char *format, ...) __attribute__((format(printf, 5, 6), nonnull(5)));

/* engine.log of a rank: to gpt2d's log, and to that of run (NULL: none is in progress). */
void run_log_take(struct run_log *log, struct run *run, int rank, json_t *params);

/* The method "logs"; replies now or later. */
void run_log_request(struct run_log *log, struct reply *reply, json_t *params);

#endif
