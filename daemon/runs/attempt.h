/*
 * attempt.h: one attempt at a run, from its preparation to its end: its spec, the order of its
 * segments, its directories. The store's thread does what touches the disk, ahead of need.
 */
#ifndef GPT2D_DAEMON_RUNS_ATTEMPT_H
#define GPT2D_DAEMON_RUNS_ATTEMPT_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "daemon/store/run.h"
#include "daemon/store/store.h"
#include "proto/stats/design.h"
#include "proto/spec/spec.h"

struct daemon;

enum attempt_told {
	ATTEMPT_UNTOLD,
	ATTEMPT_DONE,
	ATTEMPT_FAILED,    /* files of it may be written all the same */
	ATTEMPT_CANCELLED, /* none are */
};

struct attempt {
	TAILQ_ENTRY(attempt) link; /* scheduler.c */
	struct daemon *daemon;
	struct run *run;
	struct spec *spec;
	char *spec_text; /* canonical */
	struct design_segment *order;
	/* The run as it was made ready: its id, name and the attempt whose directory dir is. That
	 * may be a later one than the run's as long as it has not begun. */
	struct run place;
	char dir[PATH_MAX];
	int64_t sent, trained, done; /* segments: given to the engines, trained, durable */

	/* asked to stop: the state and reason it ends with once the engines have let go */
	bool stopping;
	enum run_state stop_state;
	char stop_reason[RUN_REASON_BYTES];
	int64_t started_ns;  /* monotonic, of the first segment */
	int64_t written_ns;  /* of the last news of artifacts, or since they are waited for */
	bool sent_again;     /* a segment went to the next engines: nobody had begun it */
	bool lacking;        /* a segment of it has failed: it cannot become done */
	bool unrecorded;     /* the store does not know all that became of its segments */
	unsigned char *told; /* of each segment, enum attempt_told: what the engine said last */
	double tokens;       /* of the segments that are durable */
	json_t *artifacts;   /* of segments that are being written: {"0": [{path, bytes}]} */
	json_t *data;        /* files that its segments have opened, as they were first told */

	/* There was no room for its directories before it began: why (rc 0: there was). */
	struct store_failure lack;

	/* private to scheduler_leave.c */
	bool left; /* its engines are ending: it ends as its folder says */
	bool settling;
	int64_t cut; /* the segment that they were training, -1: none */
	char cut_reason[RUN_REASON_BYTES];
	struct store_job settle;
	json_t *settled; /* segments that are complete: [{segment, summary, artifacts}] */

	/* private to attempt.c */
	bool prepared;
	struct store_failure found; /* by the job: lack, as it is next */
	int64_t dirs;               /* segments whose directory exists */
	int64_t dirs_wanted;
	bool working; /* a job of it is in the store's thread */
	bool doomed;  /* destroyed when that job comes back */
	bool discarded;
	void (*changed)(struct attempt *a, const char *failure, void *arg);
	void (*complete)(struct attempt *a, int rc, void *arg);
	void *arg;
};

/*
 * Begin to make run ready. changed is called in the loop whenever something has become ready, or
 * with a failure ("code: text") when it cannot be.
 */
int attempt_create(struct daemon *d, struct run *run,
	void (*changed)(struct attempt *a, const char *failure, void *arg), void *arg,
	struct attempt **out);
/* At once, or when its job in the store's thread is over; no callback comes any more. */
void attempt_destroy(struct attempt *a);
/* The same, and the folders of segments go that were made ahead or for one that was cancelled. */
void attempt_end(struct attempt *a);
/* The same for one that never started: its directory goes too. */
void attempt_discard(struct attempt *a);

/* Once more, where it lacks room. */
void attempt_retry(struct attempt *a);

/* The next segment can be sent. */
bool attempt_ready(const struct attempt *a);
/* The next segment is about to be sent: see to the directories of those after it. */
void attempt_look_ahead(struct attempt *a);

/* out has PATH_MAX bytes; 0 or -ENAMETOOLONG. */
int attempt_segment_dir(const struct attempt *a, int64_t segment, char *out);
/* Ranks of segment i, its world: those of its arm. */
int attempt_segment_gpus(const struct attempt *a, int64_t i);
bool attempt_segment_reads(const struct attempt *a, int64_t i); /* files, as data */
/* params of segment.start for segment i; NULL without memory. */
json_t *attempt_segment_start(const struct attempt *a, int64_t i);

/* All segments are durable: write the completion marker of an experiment, then call complete. */
int attempt_finish(struct attempt *a, void (*complete)(struct attempt *a, int rc, void *arg));

#endif
