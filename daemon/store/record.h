/*
 * record.h: what the store holds of runs: submissions, transitions, segments; and the questions
 * asked of it. Each call adds a job to the store; the callback comes in the loop, once, with arg.
 * Writes are durable when it comes with 0. The JSON of answers is as protocol.h says.
 */
#ifndef GPT2D_DAEMON_STORE_RECORD_H
#define GPT2D_DAEMON_STORE_RECORD_H

#include <jansson.h>
#include <stdint.h>

#include "daemon/store/run.h"
#include "daemon/store/store.h"
#include "proto/stats/design.h"
#include "proto/spec/spec.h"

/* ---- writes ---- */

/*
 * A new run, its segments and its first transition. run's id is filled in before done comes;
 * canonical and checks (JSON text) are copied, segments are laid out from spec. 0, or -ENOMEM with
 * nothing added. done's rc is -ENOENT when rerun_of names no run.
 */
int record_submit(struct store *s, struct run *run, const struct spec *spec, const char *canonical,
	const char *checks, void (*done)(void *arg, int rc), void *arg);

/*
 * run as it stands now, after run_transition: its row, a row in transitions, and its segments that
 * will not be trained any more (or, queued again, will be). Tried until it is durable: then done is
 * called with the state that was written; run must live until then. 0, or -ENOMEM with nothing
 * added.
 */
int record_transition(struct store *s, struct run *run,
	void (*done)(void *arg, struct run *run, enum run_state state, int rc), void *arg);

/*
 * state: "training", "trained", "done", "failed", "cancelled". dir (training), summary (done) and
 * artifacts (JSON: [{path, bytes}], what the engine wrote) may be NULL.
 */
struct record_segment {
	int64_t run, segment;
	const char *state, *reason, *dir, *summary, *artifacts;
};
/* done may be NULL; like record_transition, tried until it is durable. */
int record_segment(struct store *s, const struct record_segment *segment,
	void (*done)(void *arg, int rc), void *arg);

/* done's rc is 0 also where there is no such run. 0, or -ENOMEM with nothing added. */
int record_priority(
	struct store *s, int64_t run, int64_t priority, void (*done)(void *arg, int rc), void *arg);

/* ---- questions ---- */

/* The canonical spec of a run (NULL when rc is not 0; valid during the call). */
int record_spec(struct store *s, int64_t id, void (*done)(void *arg, int rc, const char *canonical),
	void *arg);

/* The result of "show", without progress; rc -ENOENT: no such run. The callback owns result. */
int record_show(struct store *s, const char *state_dir, int64_t id, int64_t after, int64_t limit,
	void (*done)(void *arg, int rc, json_t *result), void *arg);

struct record_list {
	int64_t after; /* ids above it, or below it when newest; 0: from the end */
	int64_t limit;
	bool newest; /* highest ids first */
	int state;   /* enum run_state, or -1: all */
	/* With a state, where it is known better than it is stored: JSON arrays of the ids of runs
	 * that are in it, and of those that are not, whatever is stored; NULL: none. Copied. */
	const char *also, *except;
};
int record_list(struct store *s, const char *state_dir, const struct record_list *what,
	void (*done)(void *arg, int rc, json_t *result), void *arg);

/* Any other work in the store's thread, without the database: files of runs. work owns nothing. */
int record_files(
	struct store *s, int (*work)(void *arg), void (*done)(void *arg, int rc), void *arg);

/* ---- at the start, before store_start ---- */

/* Every run that has not ended, in the order in which they start; each owns run. */
int record_each_open(struct store *s, int (*each)(struct run *run, void *arg), void *arg);
/* The last id that a run was given (0: none yet), and to go on above another: 0 or a negative
 * errno. Before store_start. */
int record_last_id(struct store *s, int64_t *out);
int record_set_last_id(struct store *s, int64_t id);
/* A segment of whose end no engine has told gpt2d. */
struct record_unreported {
	int64_t segment;
	char dir[SPEC_PATH_MAX]; /* "": by what is stored it has not begun */
	char arm[SPEC_NAME_MAX + 1];
};
/*
 * The first such segment of a run above after; unbegun: those count as well that have not begun by
 * what is stored. 0 with *out; -ENOENT: none.
 */
int record_unreported(
	struct store *s, int64_t run, int64_t after, bool unbegun, struct record_unreported *out);
/* It has begun, in dir. */
int record_begun(struct store *s, int64_t run, int64_t segment, const char *dir);
/* It is done, in dir: what its segment.done would have brought. summary and artifacts, as in struct
 * record_segment, may be NULL. */
int record_recovered(struct store *s, int64_t run, int64_t segment, const char *dir,
	const char *summary, const char *artifacts);
/* All that are left end with the run, as it did and for its reason. */
int record_end_unreported(struct store *s, const struct run *run);
/* The last so many that ended, but not as done; each owns run. */
int record_each_broken(
	struct store *s, int64_t limit, int (*each)(struct run *run, void *arg), void *arg);
/* Runs by state. */
int record_counts(struct store *s, int64_t counts[RUN_STATES]);
/* *n: how often run moved into state for a reason that begins with prefix. */
int record_count_transitions(struct store *s, int64_t run, enum run_state state,
	const char *prefix, int64_t *n);
/* What record_transition does, at once. */
int record_transition_now(struct store *s, const struct run *run);

#endif
