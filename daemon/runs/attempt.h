/*
 * attempt.h: what one attempt at a run needs on disk: its spec, the order of its segments, its
 * directories, its completion marker. The store's thread prepares them ahead of need. The scheduler
 * keeps what the engines report of the attempt.
 */
#ifndef GPT2D_DAEMON_RUNS_ATTEMPT_H
#define GPT2D_DAEMON_RUNS_ATTEMPT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/store/run.h"
#include "proto/spec/spec.h"
#include "proto/stats/design.h"

struct attempt;
struct experiment;
struct settings;
struct store;

struct attempt_options {
	struct store *store;
	const struct settings *settings;
	const char *state_dir;
	/*
	 * Called in the event loop, once. failure NULL: the attempt is ready. Else it cannot be
	 * prepared: failure is "code: text".
	 */
	void (*changed)(void *arg, struct attempt *a, const char *failure);
	void *arg;
};

/* Begins to prepare run. */
int attempt_create(const struct attempt_options *options, struct run *run, struct attempt **out);
/* Ends an attempt, at once or when its job in the store's thread is over. No callback comes any
 * more. */
void attempt_end(struct attempt *a);
/* For an attempt that never started: also removes its directory. */
void attempt_discard(struct attempt *a);

bool attempt_ready(const struct attempt *a); /* its segments can be sent */

struct run *attempt_run(const struct attempt *a);
/* NULL: the run has no arms. Valid once the attempt is ready. */
struct experiment *attempt_experiment(const struct attempt *a);
int64_t attempt_segments_most(const struct attempt *a);
/* The next four are valid once the attempt is ready. */
const struct spec *attempt_spec(const struct attempt *a);
const struct design_segment *attempt_segment(const struct attempt *a, int64_t segment);
const char *attempt_arm(const struct attempt *a, int64_t segment);
const char *attempt_dir(const struct attempt *a);
/* out has PATH_MAX bytes; 0 or -ENAMETOOLONG. */
int attempt_segment_dir(const struct attempt *a, int64_t segment, char *out);
int attempt_segment_gpus(const struct attempt *a, int64_t segment);   /* its world */
bool attempt_segment_reads(const struct attempt *a, int64_t segment); /* data files */
/* params of segment.start. data: the files that earlier segments opened, borrowed, may be NULL. */
json_t *attempt_segment_start(const struct attempt *a, int64_t segment, json_t *data);

/*
 * All segments are durable: writes the completion marker of an experiment (an engine writes that of
 * a single run), then calls done with 0 or a negative errno. segments: number of done segments.
 * hashes: more members of the marker, copied. started_ns: monotonic.
 */
struct attempt_completion {
	int64_t started_ns, segments;
	double tokens;
	char hashes[256];
};
void attempt_complete(struct attempt *a, const struct attempt_completion *completion,
	void (*done)(void *arg, int rc), void *arg);

/*
 * Removes the completion marker of a segment that failed, because an engine whose disk fails may
 * have left one. The run's end is recorded after that.
 */
void attempt_unmark(struct attempt *a, int64_t segment);

/* The last report of the engines about a segment. */
enum attempt_report {
	ATTEMPT_OPEN,
	ATTEMPT_DONE,
	ATTEMPT_FAILED,    /* files may still be written */
	ATTEMPT_CANCELLED, /* no files are written */
};
/*
 * After the engines have ended: which of the first n segments, open ones by reports, are complete
 * on disk. found: [{segment, summary, artifacts}], owned by done. Removes the markers of the
 * others; rc is a negative errno if that failed. reports stays valid until then.
 */
void attempt_inspect(struct attempt *a, int64_t n, const unsigned char *reports,
	void (*done)(void *arg, int rc, json_t *found), void *arg);

#endif
