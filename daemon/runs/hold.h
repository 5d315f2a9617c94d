/*
 * hold.h: reasons why queued runs do not start.
 *
 * - drained, released: requested by a user, durable, and valid until a user lifts them. A hold
 *   applies at once; gpt2d acts on it when it is on disk.
 * - room: a run could not write its files because the disk is full, read-only or broken. gpt2d
 *   tries to write each second and lifts the hold when that succeeds.
 * - member: this node is a member of several: only the leader's queue counts.
 * - stopping: gpt2d is shutting down.
 */
#ifndef GPT2D_DAEMON_RUNS_HOLD_H
#define GPT2D_DAEMON_RUNS_HOLD_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "daemon/runs/lifecycle.h"

struct event_base;
struct holds;
struct store;

enum hold { HOLD_ROOM, HOLD_DRAINED, HOLD_RELEASED, HOLD_MEMBER, HOLD_STOPPING, HOLDS };

struct hold_options {
	struct event_base *base;
	struct store *store;
	const char *state_dir;
	void (*changed)(void *arg); /* a hold was set or lifted */
	void *arg;
};

/* Reads the durable holds, so call it before store_start. 0 or a negative errno; *out is set. */
int hold_create(const struct hold_options *options, struct holds **out);
void hold_destroy(struct holds *holds); /* takes NULL */

bool hold_none(const struct holds *holds); /* queued runs may start */
bool hold_is_set(const struct holds *holds, enum hold hold);
/* Set, and no write of this hold is pending. */
bool hold_is_stored(const struct holds *holds, enum hold hold);
/* null, or {since, uid, reason} */
json_t *hold_json(const struct holds *holds, enum hold hold);
/*
 * "code: text": why no run starts, and what lifts the hold; NULL if it is not set. Valid until the
 * hold changes. HOLDS: of the strongest hold.
 */
const char *hold_reason(const struct holds *holds, enum hold hold);

/*
 * Set or lift HOLD_DRAINED or HOLD_RELEASED. Calls done once, maybe before it returns: rc 0 when
 * the change is durable, else a negative errno and nothing has changed. already: there was nothing
 * to change.
 */
void hold_place(struct holds *holds, enum hold hold, uid_t uid, const char *reason,
	void (*done)(void *arg, int rc, bool already), void *arg);
void hold_lift(struct holds *holds, enum hold hold, void (*done)(void *arg, int rc, bool already),
	void *arg);

/* Whether reason, "code: text", means that the disk refuses writes. */
bool hold_is_room_reason(const char *reason);
/* A run could not write its files for this reason: sets HOLD_ROOM. */
void hold_place_room(struct holds *holds, const struct run *run, const char *reason);

/* An observer of lifecycle.h, with arg a struct holds. */
void hold_observe(void *arg, struct run *run, enum lifecycle_event event);

void hold_place_member(struct holds *holds, const char *leader); /* sets HOLD_MEMBER */
/* gpt2d is shutting down: sets HOLD_STOPPING. */
void hold_place_stopping(struct holds *holds);

#endif
