/*
 * watch.h: runs followed until they end, over losses of the connection: what `follow`, `submit
 * --follow` and `wait` share.
 */
#ifndef GPT2D_CTL_VERBS_WATCH_H
#define GPT2D_CTL_VERBS_WATCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "ctl/verbs/verb.h"

enum { WATCH_RUNS_MAX = 60 }; /* followed at once; gpt2d allows a connection 64 */

struct watch_run {
	int64_t id;
	char name[80], state[32], reason[600], ended_at[40]; /* as last seen */
	bool told;  /* the user knows that it is queued, and why */
	bool ended; /* state is that of a run that has ended */
	int error;  /* the run cannot be watched: an exit status; 0: it can */

	/* watch.c's */
	bool followed, asked;
	int64_t seq;        /* of the last event */
	int64_t done_by_ns; /* it had ended: until when its run.done may come; 0: it had not */
	char waiting[32];   /* the code of the reason that was reported last */
	int64_t ask_ns;     /* when to ask why it waits */
};

struct watch {
	struct ctl *ctl;
	struct client *client;
	struct watch_run *runs;
	size_t n;
	bool any;            /* until one has ended, not all */
	int64_t deadline_ns; /* clock_mono_ns; 0: look once; -1: none */
	/* An event of run r; r is NULL for EVENT_STORE. NULL: events are not reported. */
	void (*event)(struct watch *w, struct watch_run *r, const char *event, json_t *params);
	/*
	 * reply has "run", "outlook" and "progress" of r: once if it had begun when it was first
	 * followed, and while it is queued each time that it waits for another kind of reason.
	 * NULL: neither is asked for.
	 */
	void (*snapshot)(struct watch *w, struct watch_run *r, const json_t *reply);
	/* gpt2d does not know r; e is the callback's. NULL: watch_until_end returns the error. */
	void (*unknown)(struct watch *w, struct watch_run *r, struct ctl_error *e);
	bool store_fails; /* watch.c's */
};

/*
 * Until all runs (any: one of them) have ended: 0, or an exit status with e: CTL_TIMEOUT or
 * CTL_CANCELLED (a signal) with an empty message, or what went wrong.
 */
int watch_until_end(struct watch *w, struct ctl_error *e);
/* The first run that has neither ended nor an error; NULL: none is left to wait for. */
struct watch_run *watch_open_run(const struct watch *w);
/* What to say of a run that is still open after watch_until_end returned exit with why: to e. */
int watch_explain(const struct watch_run *r, int exit, const char *why, struct ctl_error *e);

#endif
