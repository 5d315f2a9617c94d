/* prune_params.h: what a prune request asks for, and what of it is refused. */
#ifndef GPT2D_DAEMON_RUNS_PRUNE_PARAMS_H
#define GPT2D_DAEMON_RUNS_PRUNE_PARAMS_H

#include <jansson.h>
#include <stdbool.h>

#include "daemon/control/reply.h"
#include "daemon/store/record_prune.h"

/* The runs that params mean, of those that this client may remove. False: it has been answered. */
bool prune_params_take(struct reply *reply, json_t *params, struct record_prunable *what);

#endif
