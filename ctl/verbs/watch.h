/*
 * watch.h: follows runs until they end, also after losses of the connection, for `follow`, `submit
 * --follow` and `wait`.
 */
#ifndef GPT2D_CTL_VERBS_WATCH_H
#define GPT2D_CTL_VERBS_WATCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "ctl/verbs/verb.h"

/* gpt2d allows a connection to follow 64 runs */
enum { WATCH_RUNS_MAX = 60, WATCH_SILENT_S = 5 };

struct watch_run {
	int64_t id;
	char name[80], state[32], reason[600], ended_at[40]; /* as last seen */
	bool knows_wait; /* the user knows that it is queued, and why */
	bool ended;      /* state is a final state */
	int error;       /* the run cannot be watched: an exit status; 0: it can */

	/* private to watch.c */
	bool followed, asked;
	int64_t seq;        /* number of the last event */
	int64_t done_by_ns; /* if it had ended: deadline for its run.done; 0: it had not */
	char waiting[32];   /* the code of the last reported reason */
	int64_t ask_ns;     /* time of the next request for the reason */
};

struct watch {
	struct ctl *ctl;
	struct client *client;
	struct watch_run *runs;
	size_t n;
	bool any;            /* until one run has ended, not all */
	int64_t deadline_ns; /* clock_mono_ns; 0: look once; -1: none */
	/* An event of run r; r is NULL for EVENT_STORE. NULL: events are not reported. */
	void (*event)(struct watch *w, struct watch_run *r, const char *event, json_t *params);
	/*
	 * reply has "run", "outlook" and "progress" of r. Called once if the run had started when
	 * it was first followed, and for a queued run each time the kind of reason changes. NULL:
	 * neither is requested.
	 */
	void (*snapshot)(struct watch *w, struct watch_run *r, const json_t *reply);
	/*
	 * No event of r, which is in progress, came for that long: after WATCH_SILENT_S, then each
	 * time after twice as long. NULL: it is not reported.
	 */
	void (*silent)(struct watch *w, struct watch_run *r, int64_t silent_ns);
	/* gpt2d does not know r; e is the callback's. NULL: watch_until_end returns the error. */
	void (*unknown)(struct watch *w, struct watch_run *r, struct ctl_error *e);
	/* private to watch.c; silent_ns: from event_ns, the last event, to the next report */
	bool store_fails;
	int64_t event_ns, silent_ns;
};

/*
 * Follows until all runs (any: one of them) have ended: 0, or an exit status with e: CTL_TIMEOUT or
 * CTL_CANCELLED (a signal) with an empty message, or an error.
 */
int watch_until_end(struct watch *w, struct ctl_error *e);
/* The first run that has neither ended nor an error; NULL: none. */
struct watch_run *watch_open_run(const struct watch *w);
/*
 * The message about a run that is still open after watch_until_end returned why: to e, which may be
 * why. The exit status.
 */
int watch_explain(const struct watch_run *r, const struct ctl_error *why, struct ctl_error *e);

#endif
