/*
 * experiment.h: the blocks of an experiment in progress: what its segments came to, which blocks
 * are void and why, which arms have failed, how many blocks there will be, and which segment is
 * next. The scheduler asks and reports. The worker's thread compares the finished blocks. The
 * database holds the rows, so that gpt2d continues with the next block after a restart.
 */
#ifndef GPT2D_DAEMON_RUNS_EXPERIMENT_H
#define GPT2D_DAEMON_RUNS_EXPERIMENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/store/run.h"
#include "proto/stats/design.h"

struct event_base;
struct experiment;
struct follow;
struct run_log;
struct store;
struct worker;

struct experiment_options {
	struct event_base *base;
	struct store *store;
	struct worker *worker;
	struct follow *follow;
	struct run_log *run_log;
	/* In the event loop, later: experiment_next may answer otherwise. */
	void (*changed)(void *arg);
	void *arg;
};

/* Segments that the spec's design may have at most, spare blocks included. */
int64_t experiment_segments_most(const struct spec *spec);
/* The order of all of them; the first ones are those of the design. Freed by the caller. */
struct design_segment *experiment_order(const struct spec *spec);

/*
 * rows: the run's segments as "show" has them, which this takes. order is borrowed. Ends with
 * experiment_destroy, also while a comparison is being made.
 */
struct experiment *experiment_create(
	const struct spec *spec, struct run *run, const struct design_segment *order, json_t *rows);
void experiment_destroy(struct experiment *e); /* takes NULL */

/* The run has begun: from now on blocks are decided, and the store learns what changes. */
void experiment_begin(struct experiment *e, const struct experiment_options *options);

/* Segments from the first that an earlier start of gpt2d has begun or left out. */
int64_t experiment_begun(const struct experiment *e);
/* The segment to train next, or one of these. */
enum { EXPERIMENT_WAIT = -1, EXPERIMENT_OVER = -2 };
int64_t experiment_next(struct experiment *e);
bool experiment_deciding(const struct experiment *e); /* changed() comes */
/* It is the first one of its block. */
bool experiment_at_block(const struct experiment *e, int64_t segment);

/* A segment has another state. reason, dir and summary may be NULL. */
void experiment_report(struct experiment *e, int64_t segment, const char *state, const char *reason,
	const char *dir, json_t *summary);
int64_t experiment_done(const struct experiment *e); /* segments */
/* The segment has begun and not ended. */
bool experiment_is_open(const struct experiment *e, int64_t segment);
/* The block of this segment does not count, unless it has ended. Its waiting segments are left
 * out. */
void experiment_void(struct experiment *e, int64_t segment, const char *reason);
/*
 * Voids the block in training if gpt2d, most likely with the machine, stood still. A timer does
 * this too; call it before a message of the engines can end a segment.
 */
void experiment_look(struct experiment *e);
/*
 * The engines were lost: the blocks that have begun and not ended are void. segment: the one that
 * was being trained, -1: none. The caller then reports the ends of the open segments. The same arm
 * twice in a row: the arm has failed.
 */
void experiment_lose(struct experiment *e, int64_t segment, const char *reason);
/* "arm_failed: NAME: reason" of the segment's arm; NULL: it has not failed. */
const char *experiment_arm_failed(const struct experiment *e, int64_t segment);
/*
 * The arm of this segment, which was in training, cannot be trained: its other segments are left
 * out. Returns the reason of the segment, as experiment_arm_failed. The caller then reports the
 * end of the segment.
 */
const char *experiment_fail_arm(struct experiment *e, int64_t segment, const char *reason);
/*
 * Why the run fails when it is over: "arm_failed: NAME: reason" of the first arm that has failed,
 * or that no block counts. NULL: it does not.
 */
const char *experiment_failure(struct experiment *e);

/*
 * The experiment is over, or ends early: writes experiment.json and summary.csv of what has come of
 * its segments so far to dir, in the worker's thread.
 * run and engines: for experiment.json, taken. done: rc is a negative errno, hashes are text for
 * the marker of the run, valid during the call.
 */
void experiment_write(struct experiment *e, const char *dir, json_t *run, json_t *engines,
	void (*done)(void *arg, int rc, const char *hashes), void *arg);

#endif
