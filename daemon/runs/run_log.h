/*
 * run_log.h: what engines and gpt2d say of a run: told to its followers at once, and kept in the
 * store (record_log.h), where "logs" finds it. Lines gather while a write is under way; of more
 * than RUN_LOG_WAITING that wait, only the number is kept.
 */
#ifndef GPT2D_DAEMON_RUNS_RUN_LOG_H
#define GPT2D_DAEMON_RUNS_RUN_LOG_H

#include <jansson.h>

#include "daemon/config/log.h"
#include "daemon/store/run.h"

struct reply;
struct daemon;
struct run_log;

enum { RUN_LOG_WAITING = 1000 };

struct run_log *run_log_create(void);      /* NULL without memory */
void run_log_destroy(struct run_log *log); /* takes NULL */

/* rank -1: gpt2d itself. Control characters and what is no UTF-8 are replaced. */
void run_log_write(struct daemon *d, struct run *run, int rank, enum log_level level,
	const char *format, ...) __attribute__((format(printf, 5, 6), nonnull(5)));

/* Lines that wait go to the store now, ahead of what is written next. */
void run_log_hand_over(struct daemon *d);

/* The method "logs"; it answers the request, now or later. */
void run_log_request(struct daemon *d, struct reply *reply, json_t *params);

#endif
