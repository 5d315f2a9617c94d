/*
 * hold.h: whether queued runs may start, and whether the engines are there. Drained: nothing new
 * starts, the engines stay. Released: the engines end as well, once no run is with them. Both are
 * durable and last until they are lifted. Idle: the engines have ended by themselves
 * (--idle-release) and come back for the next run. No run and no engine is touched before what was
 * asked for is on disk; only that nothing starts is so from the request on.
 */
#ifndef GPT2D_DAEMON_RUNS_HOLD_H
#define GPT2D_DAEMON_RUNS_HOLD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "daemon/control/reply.h"

struct daemon;
struct holds;

enum hold { HOLD_DRAINED, HOLD_RELEASED, HOLDS };

/* Reads what the store holds: before store_start. 0 or a negative errno. */
int hold_create(struct daemon *d, struct holds **out);
void hold_destroy(struct holds *holds); /* takes NULL */

bool hold_none(const struct holds *holds); /* queued runs may start */
bool hold_is_set(const struct holds *holds, enum hold hold);
/* null, or {since, uid, reason} */
json_t *hold_json(const struct holds *holds, enum hold hold);
/*
 * null, or {since, after_s}: the engines have ended for being idle so long, and nothing has started
 * them yet.
 */
json_t *hold_idle_json(const struct holds *holds);
/* Why no run starts, and what lets one; NULL when nothing is held. Valid until it changes. */
const char *hold_reason(const struct holds *holds);

struct hold_request {
	enum hold hold;
	const char *reason; /* NULL: none is given */
	bool now;           /* released: interrupt the run in progress */
	bool wait;          /* answer once it has come about */
};
/* Answer client's request, when it is durable or, with wait, when it has come about. */
void hold_place(struct holds *holds, const struct hold_request *request, struct reply *reply);
void hold_lift(struct holds *holds, const struct hold_request *request, struct reply *reply);

/* Something that matters here may have changed: runs, engines, the queue. */
void hold_update(struct holds *holds);
/* Engines were lost: who waits for them is told why. */
void hold_engines_lost(struct holds *holds, const char *reason);
/* gpt2d stops: who waits is told so. */
void hold_shut_down(struct holds *holds);

#endif
