/*
 * run.h: a run in memory, and which state may follow which:
 *
 *   queued -> starting -> running -> finishing -> done
 *
 * and out of it to failed, cancelled (not after finishing) or interrupted; interrupted may be
 * queued again. run_transition is the only writer of run->state.
 */
#ifndef GPT2D_DAEMON_STORE_RUN_H
#define GPT2D_DAEMON_STORE_RUN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "proto/spec/spec.h"

enum run_state {
	RUN_QUEUED,
	RUN_STARTING,
	RUN_RUNNING,
	RUN_FINISHING,
	RUN_DONE,
	RUN_FAILED,
	RUN_CANCELLED,
	RUN_INTERRUPTED,
	RUN_STATES,
};

enum { RUN_REASON_BYTES = 1024 };

struct run {
	int64_t id; /* from 1, never used twice */
	char name[SPEC_NAME_MAX + 1];
	uid_t uid; /* who submitted it */
	enum run_state state;
	char reason[RUN_REASON_BYTES]; /* of the last transition; "code: text", or empty */
	char spec_sha256[SPEC_HASH_HEX + 1];
	int64_t gpus;                    /* ranks it uses; with arms that differ, the most */
	int64_t segments, segments_done; /* done and on disk */
	/* from 1; grows when it is queued again, except for an experiment, which continues */
	int64_t attempt;
	bool restart;
	bool kept;         /* protected from prune and retention */
	int64_t priority;  /* up to PROTOCOL_PRIORITY_MAX; a higher one starts earlier */
	int64_t rerun_of;  /* the run whose spec was submitted again; 0: none */
	int64_t timeout_s; /* 0: none */
	int64_t submitted_ns, started_ns, ended_ns; /* UTC; 0: not yet */

	int64_t writes;        /* lifecycle.h: states that are not durable yet */
	bool end_pending;      /* lifecycle.h: it has ended, which is not durable yet */
	enum run_state before; /* its end, while it is not durable */
	int64_t log_dropped;   /* run_log.h: lines since the last one that was written */
	TAILQ_ENTRY(run) link; /* queue.h */
};

const char *run_state_name(enum run_state state);
int run_state_parse(const char *name, enum run_state *out); /* 0 or -EINVAL */
bool run_state_ended(enum run_state state); /* done, failed, cancelled, interrupted */
bool run_may(enum run_state from, enum run_state to);

/*
 * Move to another state at a time (UTC), for a reason (NULL: none): 0, or -EINVAL with nothing
 * changed. Callers other than lifecycle.c and the store's reader go through lifecycle_move, which
 * also makes it durable and reports it to the followers.
 */
int run_transition(struct run *run, enum run_state to, const char *reason, int64_t at_ns);

/* It has several segments: those that ended stay when the run is queued again. */
bool run_continues(const struct run *run);

/* The state for clients: an end once it is durable, until then the state before. */
enum run_state run_reported(const struct run *run);

/* Its reason without the state's name in front: "asked for" of "cancelled: asked for". */
const char *run_reason(const struct run *run);

/* STATE_DIR/runs/ID-NAME, and for later attempts ID-NAME.ATTEMPT: 0, or -ENAMETOOLONG. */
int run_dir(const struct run *run, const char *state_dir, char *out, size_t out_bytes);
/*
 * DIR/segments/NNN-ARM, in an experiment's directory; segments count from 0. The same return
 * values.
 */
int run_segment_dir(const char *dir, int64_t segment, const char *arm, char *out, size_t out_bytes);
/*
 * Converts a stored path `then` below a directory of run id to the present one, because the state
 * directory may have been moved. 0, or -ENAMETOOLONG.
 */
int run_dir_now(int64_t id, const char *state_dir, const char *then, char *out, size_t out_bytes);

/* {state, reason} as clients see them. */
json_t *run_state_json(const struct run *run);

/* A run object of protocol.h, with the state of run_reported. NULL without memory. */
json_t *run_json(const struct run *run, const char *state_dir);

#endif
