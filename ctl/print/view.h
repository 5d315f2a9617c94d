/*
 * view.h: what gpt2ctl top shows: the daemon's status, the load of the processes between
 * two looks, and the losses of the segment that trains now.
 */
#ifndef GPT2D_CTL_PRINT_VIEW_H
#define GPT2D_CTL_PRINT_VIEW_H

#include <jansson.h>
#include <stdint.h>

#include "ctl/link/client.h"
#include "ctl/ctl.h"

enum { VIEW_LOSSES = 1024 };

struct view {
	int reply_s;    /* how long an answer may take; CLIENT_REPLY_S after view_init */
	json_t *status; /* with cpu_load in daemon and ranks: processors since the look before */
	int64_t at_ns;  /* of status, monotonic */
	/* the run whose events come, and its segment of these losses; 0 and -1: none */
	int64_t run, segment;
	double losses[VIEW_LOSSES];
	int64_t first_step; /* that of losses[0]: not each step is told */
	size_t n_losses;
	int64_t every, seen; /* each every-th step is kept; steps seen */
};

void view_init(struct view *v);
void view_finish(struct view *v);

/* Look: 0, or an exit code with e. Follows the run that is with the engines. */
int view_look(struct view *v, struct client *c, struct ctl_error *e);
/* Another connection: no run is followed on it. */
void view_forget_run(struct view *v);
/* Take the events that have come: 0, or an exit code with e when the connection is lost. */
int view_take_events(struct view *v, struct client *c, struct ctl_error *e);

/* {status's members, losses} */
json_t *view_json(const struct view *v);

#endif
