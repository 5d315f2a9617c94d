/* follow.h: what `submit --follow` and `tune` share with `follow`. */
#ifndef GPT2D_CTL_VERBS_FOLLOW_H
#define GPT2D_CTL_VERBS_FOLLOW_H

#include <jansson.h>

#include "ctl/print/progress.h"
#include "ctl/verbs/watch.h"

/*
 * Prints the run's progress on term until it ends. Returns the exit status of its result, or of an
 * error in e. knows_wait: the user knows that the run is queued, and why.
 */
int follow_run(struct ctl *ctl, struct client *c, int64_t id, bool knows_wait,
	const struct term *term, struct ctl_error *e);

/* Runs that are watched with a progress bar: watch is set by the caller. */
struct following {
	struct watch watch;
	struct progress progress;
};
/* watch_until_end, with the bar on term. */
int follow_watch(struct following *f, const struct term *term, struct ctl_error *e);

#endif
