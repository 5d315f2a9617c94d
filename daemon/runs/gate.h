/*
 * gate.h: whether queued runs may start, and whether the engines are there. Drained: nothing new
 * starts, the engines stay. Released: the engines end as well, once no run is with them. Both are
 * durable and last until they are lifted. Idle: the engines have ended by themselves
 * (--idle-release) and come back for the next run. No run and no engine is touched before what was
 * asked for is on disk; only that nothing starts is so from the request on.
 */
#ifndef GPT2D_DAEMON_RUNS_GATE_H
#define GPT2D_DAEMON_RUNS_GATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "daemon/control/client.h"

struct daemon;
struct gate;

enum gate_hold { GATE_DRAINED, GATE_RELEASED, GATE_HOLDS };

/* Reads what the store holds: before store_start. 0 or a negative errno. */
int gate_create(struct daemon *d, struct gate **out);
void gate_destroy(struct gate *g); /* takes NULL */

bool gate_open(const struct gate *g); /* queued runs may start */
bool gate_held(const struct gate *g, enum gate_hold hold);
/* null, or {since, uid, reason} */
json_t *gate_json(const struct gate *g, enum gate_hold hold);
/*
 * null, or {since, after_s}: the engines have ended for being idle so long, and nothing has started
 * them yet.
 */
json_t *gate_idle_json(const struct gate *g);
/* Why no run starts, and what lets one; NULL when the gate is open. Valid until it changes. */
const char *gate_why(const struct gate *g);

struct gate_request {
	enum gate_hold hold;
	const char *reason; /* NULL: none is given */
	bool now;           /* released: interrupt the run in progress */
	bool wait;          /* answer once it has come about */
};
/* Answer client's request, when it is durable or, with wait, when it has come about. */
void gate_close(struct gate *g, const struct gate_request *request, struct client *client);
void gate_lift(struct gate *g, const struct gate_request *request, struct client *client);

/* Something that matters here may have changed: runs, engines, the queue. */
void gate_turn(struct gate *g);
/* Engines were lost: who waits for them is told why. */
void gate_lost(struct gate *g, const char *reason);
/* gpt2d stops: who waits is told so. */
void gate_stop(struct gate *g);

#endif
