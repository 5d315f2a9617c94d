/*
 * watch.h: a run followed to its end: what `follow`, `submit --follow` and `wait` share. When the
 * daemon goes away in mid-run it is looked for again for WATCH_RETURN_S seconds and the events go
 * on after the last one seen.
 */
#ifndef GPT2D_WATCH_H
#define GPT2D_WATCH_H

#include <stdint.h>

#include "ctl/client.h"
#include "ctl/ctl.h"
#include "ctl/progress.h"

enum { WATCH_RETURN_S = 5 };

struct watch {
	int64_t id;
	int64_t deadline_ns;       /* clock_mono_ns; -1: none */
	struct progress *progress; /* NULL: events are not shown */
	/* results */
	char name[80], state[32], reason[600], dir[4096];
};

/*
 * Follow *c (replaced when the connection had to be made anew) until the run ends: the exit code by
 * its result with state filled; or why that is not known, with e: CTL_TIMEOUT, CTL_CANCELLED after
 * a signal, CTL_NO_SUCH_RUN, CTL_TRANSPORT. state is empty then.
 */
int watch_run(struct ctl *ctl, struct client **c, struct watch *w, struct ctl_error *e);

/*
 * Connect again within WATCH_RETURN_S; *c is closed in both cases, and replaced on success. e holds
 * why it was lost; id is a run of which one does not know how it ends, 0: gpt2d itself was watched.
 */
int watch_reconnect(
	struct ctl *ctl, struct client **c, int64_t id, int64_t deadline_ns, struct ctl_error *e);

/* The exit code of a run that ended in state; -1 for a state that is no end. */
int watch_exit(const char *state);
/* Of two exit codes the one that tells more. */
int watch_worse(int a, int b);

#endif
