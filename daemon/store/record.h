/*
 * record.h: what the store holds of runs: submissions, transitions, segments, log lines and holds,
 * and questions about them. Each call but the last group adds a job to the store; the
 * callback comes in the loop, once, with arg. Writes are durable when it comes with 0. The JSON of
 * answers is as protocol.h says.
 */
#ifndef GPT2D_DAEMON_STORE_RECORD_H
#define GPT2D_DAEMON_STORE_RECORD_H

#include <jansson.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/store/run.h"
#include "daemon/store/store.h"
#include "proto/log_level.h"
#include "proto/spec/spec.h"
#include "proto/stats/design.h"

/* ---- writes ---- */

/*
 * A new run, its segments and its first transition. Sets run's id before it calls done; canonical
 * and checks (JSON text) are copied, segments are laid out from spec. done's rc is -ENOENT if
 * rerun_of names no run.
 */
void record_submit(struct store *s, struct run *run, const struct spec *spec, const char *canonical,
	const char *checks, void (*done)(void *arg, int rc), void *arg);

/*
 * The run after run_transition: its row, a row in transitions, and its segments that will be
 * skipped (or, if queued again, will be trained). Retried until it is durable: then done is called
 * with the state that was written; run must live until then.
 */
void record_transition(struct store *s, struct run *run,
	void (*done)(void *arg, struct run *run, enum run_state state, int rc), void *arg);

/*
 * state: "training", "trained", "done", "failed", "cancelled", "skipped". dir (training), summary
 * (done) and artifacts (JSON: [{path, bytes}] from the engine) may be NULL.
 */
struct record_segment {
	int64_t run, segment;
	const char *state, *reason, *dir, *summary, *artifacts;
};
/* done may be NULL; like record_transition, retried until it is durable. */
void record_segment(struct store *s, const struct record_segment *segment,
	void (*done)(void *arg, int rc), void *arg);

/*
 * Sets the number of segments: adds rows in order, or deletes waiting rows beyond it. Retried until
 * it is durable.
 */
void record_resize(struct store *s, int64_t run, const struct spec *spec,
	const struct design_segment *order, int64_t segments, void (*done)(void *arg, int rc),
	void *arg);
/* Voids a block, from 0, and skips its waiting segments. Also retried. */
void record_void(struct store *s, int64_t run, int64_t block, const char *reason);

/* done's rc is also 0 for a run that does not exist. */
void record_priority(
	struct store *s, int64_t run, int64_t priority, void (*done)(void *arg, int rc), void *arg);
/* Sets or clears the mark that protects a run from pruning. rc -ENOENT: no such run. */
void record_keep(
	struct store *s, int64_t id, bool kept, void (*done)(void *arg, int rc), void *arg);
/* Deletes all rows of a run that has ended. */
void record_delete(struct store *s, int64_t id, void (*done)(void *arg, int rc), void *arg);

/* A run keeps its RECORD_LOG_LINES newest lines, and counts the dropped ones. Transitions add their
 * own. */
enum { RECORD_LOG_LINES = 1000, RECORD_LOG_BYTES = 1024 };
struct record_log_line {
	int64_t run, at_ns;
	int rank; /* -1: gpt2d */
	enum log_level level;
	int64_t dropped; /* of the run, before this one */
	char message[RECORD_LOG_BYTES];
};
/* A line of a run that no longer exists is ignored. Retried until it is durable. */
void record_log_add(struct store *s, const struct record_log_line *line,
	void (*done)(void *arg, int rc), void *arg);

/* A hold that keeps queued runs from starting (hold.h): since when, by which user and why. */
struct record_hold {
	const char *what; /* lives as long as the program */
	int64_t since_ns; /* UTC; 0: not held */
	uid_t uid;
	char reason[256]; /* empty: none was given */
};
void record_hold_set(struct store *s, const struct record_hold *hold,
	void (*done)(void *arg, int rc), void *arg);

/* Other work in the store's thread, without the database: files of runs. work owns nothing. */
void record_files(
	struct store *s, int (*work)(void *arg), void (*done)(void *arg, int rc), void *arg);

/* ---- queries; the callback owns result ---- */

/* The canonical spec of a run (NULL when rc is not 0; valid during the call). */
void record_spec(struct store *s, int64_t id,
	void (*done)(void *arg, int rc, const char *canonical), void *arg);

/* The result of "show", without progress; rc -ENOENT: no such run. */
void record_show(struct store *s, const char *state_dir, int64_t id, int64_t after, int64_t limit,
	void (*done)(void *arg, int rc, json_t *result), void *arg);

/* All segments of a run: an array of rows as the result of "show" has them. */
void record_segments(struct store *s, const char *state_dir, int64_t id,
	void (*done)(void *arg, int rc, json_t *result), void *arg);

struct record_list {
	int64_t after; /* IDs above it, or below it if newest; 0: from the end */
	int64_t limit;
	bool newest; /* highest ids first */
	int state;   /* enum run_state, or -1: all */
};
void record_list(struct store *s, const char *state_dir, const struct record_list *what,
	void (*done)(void *arg, int rc, json_t *result), void *arg);

struct record_prunable {
	int64_t keep;            /* the newest of them that stay; -1: no such limit */
	int64_t ended_before_ns; /* UTC; INT64_MAX: any time */
	bool either;             /* one of these two is enough; else both */
	int64_t uid;             /* -1: all users */
	int state;               /* enum run_state, or -1: all ended ones */
	int64_t after, limit;    /* ids above after, ascending */
	bool count_kept;         /* count the other matching runs, which stay */
};
/*
 * {runs: [run, with begun: whether it had a folder], next, kept: {marked, newest}}: runs that
 * ended, are not protected and match. kept has the number of matching runs that stay, protected or
 * among the keep newest, with IDs of this page, or for the last page all others.
 */
void record_prunable(struct store *s, const char *state_dir, const struct record_prunable *what,
	void (*done)(void *arg, int rc, json_t *result), void *arg);

/*
 * Lines numbered above after, of at least a level, at most limit: {id, name, state, lines: [{n, at,
 * rank, level, message}], dropped, next, more}. rc -ENOENT: no such run.
 */
void record_log_read(struct store *s, int64_t run, int64_t after, int64_t limit,
	enum log_level level, void (*done)(void *arg, int rc, json_t *result), void *arg);

/* ---- before store_start; 0 or a negative errno ---- */

/* The caller frees the array and its members, also after an error. */
struct record_runs {
	struct run **run;
	size_t n;
};
/* Every run that has not ended, in the order in which they start. */
int record_open_runs(struct store *s, struct record_runs *out);
/* The newest limit runs that ended, but not as done. */
int record_broken_runs(struct store *s, int64_t limit, struct record_runs *out);
int record_counts(struct store *s, int64_t counts[RUN_STATES]); /* runs by state */
/* The last id given to a run (0: none yet); and continue above another. */
int record_last_id(struct store *s, int64_t *out);
int record_set_last_id(struct store *s, int64_t id);
/* When a run last changed before before_ns, from the newest changes; 0: not known. */
int record_last_change_now(struct store *s, int64_t before_ns, int64_t *out);
/* Fills hold, whose what is set; not held if there is no row. */
int record_hold_read(struct store *s, struct record_hold *hold);
/* id, name and attempt of a run that has ended; -ENOENT: none. */
int record_ended_now(struct store *s, int64_t id, struct run *was);
int record_delete_now(struct store *s, int64_t id);                /* record_delete */
int record_transition_now(struct store *s, const struct run *run); /* record_transition */
/* *n: how often run moved into state with a reason that begins with prefix. */
int record_count_transitions(
	struct store *s, int64_t run, enum run_state state, const char *prefix, int64_t *n);

/* A segment whose end no engine has reported. */
struct record_unreported {
	int64_t segment;
	char dir[SPEC_PATH_MAX]; /* "": in the store it has not started */
	char arm[SPEC_NAME_MAX + 1];
};
/*
 * The first such segment of a run above after; unbegun: also segments that have not started in the
 * store. 0 with *out; -ENOENT: none.
 */
int record_unreported(
	struct store *s, int64_t run, int64_t after, bool unbegun, struct record_unreported *out);
/* It has started, in dir. */
int record_begun(struct store *s, int64_t run, int64_t segment, const char *dir);
/*
 * It is done, in dir, with the content of its missing segment.done. summary and artifacts, as in
 * struct record_segment, may be NULL.
 */
int record_recovered(struct store *s, int64_t run, int64_t segment, const char *dir,
	const char *summary, const char *artifacts);
/* All other open segments end with the run, in its state and for its reason. */
int record_end_unreported(struct store *s, const struct run *run);

#endif
