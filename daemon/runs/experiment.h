/*
 * experiment.h: the blocks of an experiment in progress: results of segments, void blocks and the
 * reasons, failed arms, the number of blocks, and the next segment. The scheduler asks and reports.
 * The worker's thread compares the finished blocks. The database holds the rows, so that gpt2d
 * continues with the next block after a restart.
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
	/* Called in the event loop, later: the result of experiment_next may have changed. */
	void (*changed)(void *arg);
	void *arg;
};

/* Segments that the spec's design may have at most, spare blocks included. */
int64_t experiment_segments_most(const struct spec *spec);
/* The order of all of them; the first ones are those of the design. Freed by the caller. */
struct design_segment *experiment_order(const struct spec *spec);

/*
 * rows: the run's segments as in "show"; takes them. order is borrowed. Call experiment_destroy at
 * the end, also while a comparison is being computed.
 */
struct experiment *experiment_create(
	const struct spec *spec, struct run *run, const struct design_segment *order, json_t *rows);
void experiment_destroy(struct experiment *e); /* takes NULL */

/* The run has started: from now on blocks are decided, and changes go to the store. */
void experiment_begin(struct experiment *e, const struct experiment_options *options);

/* Number of segments that an earlier start of gpt2d has started or skipped. */
int64_t experiment_begun(const struct experiment *e);
/* The segment to train next, or one of these. */
enum { EXPERIMENT_WAIT = -1, EXPERIMENT_OVER = -2 };
int64_t experiment_next(struct experiment *e);
bool experiment_deciding(const struct experiment *e); /* changed() will be called */
/* It is the first segment of its block. */
bool experiment_at_block(const struct experiment *e, int64_t segment);

/* The state of a segment has changed. reason, dir and summary may be NULL. */
void experiment_report(struct experiment *e, int64_t segment, const char *state, const char *reason,
	const char *dir, json_t *summary);
int64_t experiment_done(const struct experiment *e); /* segments */
/* The segment has started and not ended. */
bool experiment_is_open(const struct experiment *e, int64_t segment);
/*
 * Voids the block in training if gpt2d, and so most likely the machine, was suspended. A timer does
 * this too; call it before a message of the engines can end a segment.
 */
void experiment_check_standstill(struct experiment *e);
/*
 * The engines were lost: blocks that have started and not ended are void. segment: the one in
 * training, -1: none. The caller then reports the ends of the open segments. If the same arm loses
 * the engines twice in a row, the arm has failed.
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
 * Why the run fails at its end: "arm_failed: NAME: reason" of the first failed arm, or that no
 * block counts. NULL: it does not fail.
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
