/*
 * request.h: what those who answer requests share: a parameter's value, and the refusals that
 * several of them give in the same words.
 */
#ifndef GPT2D_DAEMON_CONTROL_REQUEST_H
#define GPT2D_DAEMON_CONTROL_REQUEST_H

#include <jansson.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/control/reply.h"

struct store;

/* An integer of params (or of any object); standard where it is absent. */
int64_t request_integer(const json_t *params, const char *key, int64_t standard);

/* There is no run of that id. */
void request_no_run(struct reply *reply, int64_t id);

/* The client is nobody, and owns no runs: role.h. */
void request_of_nobody(struct reply *reply);
/* The client may not change that run: role.h. */
void request_not_owner(struct reply *reply, int64_t id, uid_t owner);

/* The store answered with rc, a negative errno; of run id, where it is -ENOENT. */
void request_unread(struct reply *reply, struct store *s, int64_t id, int rc);

#endif
