/*
 * look.h: how runs stand, asked for beside a connection on which their events are waited for: no
 * answer that stays out keeps it from going on.
 */
#ifndef GPT2D_CTL_VERBS_LOOK_H
#define GPT2D_CTL_VERBS_LOOK_H

#include <jansson.h>
#include <stdint.h>

#include "ctl/link/client.h"
#include "ctl/ctl.h"

enum { LOOK_S = 2 }; /* all that is asked on one connection */

/* A connection for look_of, for client_close; NULL where gpt2d does not answer. */
struct client *look_begin(const struct ctl *ctl);
/* The reply to show of a run, owned by the caller; NULL where there is none. c may be NULL. */
json_t *look_of(struct client *c, int64_t id);
/* The same of one run alone. */
json_t *look_once(const struct ctl *ctl, int64_t id);

#endif
