/*
 * outlook.h: why a queued run waits, as "code: text" (the codes: proto/waiting.h), and when it will
 * probably start.
 */
#ifndef GPT2D_DAEMON_OUTLOOK_H
#define GPT2D_DAEMON_OUTLOOK_H

#include <jansson.h>
#include <stdint.h>

#include "daemon/store/run.h"

struct daemon;

enum { OUTLOOK_RUNS_MAX = 100 };

/* Of the run that starts next: a text, or null if nothing is queued. */
json_t *outlook_head(const struct daemon *d);
/*
 * {position, waiting, starts_in_s} of a run; null if it is not queued. starts_in_s is a number only
 * if this run is next and the remaining time of the run in progress is known.
 */
json_t *outlook_run(const struct daemon *d, const struct run *run);
/* The same with {id, name, uid, priority}, of the first OUTLOOK_RUNS_MAX queued runs. */
json_t *outlook_queue(const struct daemon *d);

#endif
