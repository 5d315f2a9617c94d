/*
 * watch.h: a run followed to its end: what `follow`, `submit --follow` and `wait` share. When the
 * daemon goes away in mid-run it is looked for again for WATCH_RETURN_S seconds and the events go
 * on after the last one seen.
 */
#ifndef GPT2D_CTL_LINK_WATCH_H
#define GPT2D_CTL_LINK_WATCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "ctl/link/client.h"
#include "ctl/ctl.h"
#include "ctl/print/progress.h"

enum { WATCH_RETURN_S = 5 };

/* What is known of a run, for whom stops to look at it. */
struct watch_last {
	bool queued;
	/* it has ended, which is not on disk yet: the rest of a sentence; or "" */
	char unstored[600];
};

/* object: a run, or what run.state says of it. */
void watch_last_take(struct watch_last *l, const json_t *object);
/* "goes on", or "stays queued" */
const char *watch_last_does(const struct watch_last *l);
enum { WATCH_LAST_BYTES = 800 };
/* "run 7 goes on", or what else it does, and how to see and to end it: out. */
const char *watch_last_say(const struct watch_last *l, int64_t id, char out[WATCH_LAST_BYTES]);

struct watch {
	int64_t id;
	int64_t deadline_ns;       /* clock_mono_ns; -1: none */
	struct progress *progress; /* NULL: events are not shown */
	bool told;                 /* that it is queued and why it waits was said before */
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
 * queued: it had not begun as far as is known.
 */
int watch_reconnect(struct ctl *ctl, struct client **c, int64_t id, bool queued,
	int64_t deadline_ns, struct ctl_error *e);

/* The time given is over, and whether the run goes on is not known: CTL_TIMEOUT with e. */
int watch_timed_out_silent(int64_t id, struct ctl_error *e);

/* The connection was lost again, and nothing was heard of run id in between: e, and its exit. */
int watch_lost_twice(int64_t id, bool queued, struct ctl_error *e);

/* Of two exit codes the one that tells more. */
int watch_worse(int a, int b);

#endif
