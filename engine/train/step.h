/*
 * step.h: one training step. Its order is written in step.c and nowhere else.
 *
 * The loss of a step is the mean over the tokens of the global batch. Gradients carry the factor
 * loss_scale / tokens of the global batch from the loss on, so reducing them is a plain sum. A rank
 * takes `accumulation` micro-batches in a row out of each global batch, rank after rank.
 *
 * With graphs, and where the backend has them, the first step is launched operation by operation,
 * the second is captured, and it and all others are one launch. What differs between steps is in
 * memory: tokens, learning rate, time, loss scale, dropout's offset. When a capture fails, steps go
 * on as the first; no_graph says why.
 *
 * Ranks capture in the same step or not at all, and one that keeps the graph of an earlier segment
 * uses it only when all do. Their steps begin with the gather of what the step before updated.
 *
 * For a profiler (NVTX) a segment is the range "run R segment S", in it train/dataload,
 * train/forward, train/loss, train/backward, train/optimizer_step, val/forward, val/loss, and in
 * those "train/reduce bucket B" and "train/gather bucket B". They are there while operations are
 * launched one by one or captured, not when a graph is launched: an engine that is to be profiled
 * by them is started with --no-graphs.
 */
#ifndef GPT2D_ENGINE_TRAIN_STEP_H
#define GPT2D_ENGINE_TRAIN_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/data/batch.h"
#include "engine/train/graphs.h"
#include "engine/train/loss_scale.h"
#include "engine/report/measure.h"
#include "engine/train/optimizer.h"
#include "engine/train/zero.h"

/* What all ranks add up once a step, as doubles on the device: this rank's, then the sums. */
enum { STEP_SHARED_LOSS, STEP_SHARED_STOP, STEP_SHARED_FAILED, STEP_SHARED };
enum { STEP_SHARED_BYTES = 2 * STEP_SHARED * sizeof(double) };

/* Host memory (k_alloc_host) that the device reads and writes while a step runs. */
struct step_host {
	double own[STEP_SHARED], shared[STEP_SHARED];
	struct k_step_state state;
};

struct step {
	/* set by the caller */
	const struct spec_config *config;
	struct k_context *ctx;
	struct k_stream *compute, *comm;
	struct collectives *collectives; /* NULL in a world of one */
	struct collectives_group *group; /* NULL in a world of one */
	int rank;
	struct model *model;
	struct zero *zero;
	struct optimizer *optimizer;
	struct batch *batch;
	const struct dataset *data;
	struct timeline *time;
	double *shared; /* device, STEP_SHARED_BYTES */
	struct step_host *host;
	struct k_event *shared_in, *shared_out;
	int64_t timeout_ns;    /* of waiting for the device */
	struct graphs *graphs; /* NULL: every operation of every step is launched by itself */
	struct graphs_key key; /* with graphs: all that is the same in every step */

	/* kept by step_run */
	struct loss_scale scale;
	int64_t attempted, applied;
	int64_t resumed; /* steps attempted by the training before, which this one goes on from */
	struct graphs_entry *graph; /* NULL: none yet */
	int64_t replayed;           /* steps launched as a graph */
	int64_t single_ns;          /* what the last step took that was launched by operations */
	int64_t capture_ns;         /* what capturing took; 0: none was captured */
	char no_graph[256]; /* why no step is captured although it was asked for; empty: none */
};

/* What happened, beyond the times. */
struct step_result {
	struct measure_step measure;
	int64_t comm_ns; /* gradients and parameters on their way: zero_comm_ns */
	bool stop;       /* some rank asked to end after this step; all ranks read the same */
};

/* Most marks a step puts on its timeline. */
int64_t step_marks(const struct spec_config *config);

/* Nothing attempted yet. The caller's fields are set. */
void step_reset(struct step *s);

/*
 * After step_reset: the next step is the one that follows so many attempted and applied ones, whose
 * parameters, moments and loss scale are there. Samples, dropout and learning rate are functions
 * of these numbers and the seed.
 */
void step_resume(
	struct step *s, int64_t attempted, int64_t applied, const struct loss_scale *scale);

/*
 * One step. stop: this rank wants to end after this step. 0, or with error naming the cause:
 *   -EIO, -ERANGE     this rank's data cannot be read; the ranks that could read theirs all get
 *                     -ECANCELED in the same step
 *   -EPIPE            a peer is lost
 *   -ENOTRECOVERABLE  the device failed
 *   -ETIMEDOUT        the device did not answer
 * After the last three the process is of no further use.
 */
int step_run(struct step *s, bool stop, struct step_result *out, char *error, size_t error_bytes);

/* Asked after each micro-batch of a validation: does this rank want to end it? */
struct step_asked {
	bool (*stop)(void *arg);
	void *arg;
};

/*
 * What a wait for the device that gave rc comes to: 0, or with error what the device says of
 * itself (-ENOTRECOVERABLE), else rc.
 */
int step_failure(const struct step *s, int rc, char *error, size_t error_bytes);

/*
 * Mean loss over the first sequences of a data set in file order, without dropout.
 * Errors as step_run, and -EINTR: some rank wanted to end; all ranks get it after the same
 * micro-batch.
 */
int step_validate(struct step *s, const struct dataset *data, int64_t sequences,
	const struct step_asked *asked, double *loss, char *error, size_t error_bytes);

#endif
