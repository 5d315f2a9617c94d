/*
 * step.h: one training step. Only step.c defines its order.
 *
 * The loss of a step is the mean over the tokens of the global batch. Gradients have the factor
 * loss_scale / tokens of the global batch from the loss on, so their reduction is a plain sum. A
 * rank takes `accumulation` consecutive micro-batches of each global batch, rank after rank.
 *
 * With graphs, if the backend has them, the first step is launched operation by operation, the
 * second is captured, and that one and all later ones are a single launch. Values that differ
 * between steps are in memory: tokens, learning rate, time, loss scale, dropout's offset. If a
 * capture fails, later steps run like the first; no_graph has the reason.
 *
 * All ranks capture in the same step or none does, and a rank uses the graph of an earlier segment
 * only if all do. A captured step begins with the gather of the parameters updated by the step
 * before.
 *
 * For a profiler (NVTX) a segment is the range "run R segment S", with train/dataload,
 * train/forward, train/loss, train/backward, train/optimizer_step, val/forward, val/loss, and in
 * those "train/reduce bucket B" and "train/gather bucket B". They exist while operations are
 * launched one by one or captured, not when a graph is launched: start an engine with --no-graphs
 * to profile it.
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

/* Values that all ranks sum once per step, as doubles on the device: this rank's, then the sums. */
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
	struct collectives *collectives; /* NULL with one rank */
	struct collectives_group *group; /* NULL with one rank */
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
	int64_t timeout_ns;    /* limit of a wait for the device */
	struct graphs *graphs; /* NULL: every operation of every step is launched separately */
	struct graphs_key key; /* with graphs: everything that is the same in every step */

	/* private to step_run */
	struct loss_scale scale;
	int64_t attempted, applied;
	int64_t resumed;            /* steps attempted by the training that this one continues */
	struct graphs_entry *graph; /* NULL: none yet */
	int64_t replayed;           /* steps launched as a graph */
	int64_t single_ns;          /* time of the last step that was launched by operations */
	int64_t capture_ns;         /* time of the capture; 0: none */
	char no_graph[256];         /* why no step is captured although requested; empty: none */
};

/* Results besides the times. */
struct step_result {
	struct measure_step measure;
	int64_t comm_ns; /* transfer of gradients and parameters: zero_comm_ns */
	bool stop;       /* a rank requested the end after this step; all ranks read the same */
};

/* Maximum of marks that a step puts on its timeline. */
int64_t step_marks(const struct spec_config *config);

/* No step attempted yet. The caller's fields are set. */
void step_reset(struct step *s);

/*
 * After step_reset: continues after this many attempted and applied steps, whose parameters,
 * moments and loss scale are loaded. Samples, dropout and learning rate are functions of these
 * numbers and the seed.
 */
void step_resume(
	struct step *s, int64_t attempted, int64_t applied, const struct loss_scale *scale);

/*
 * One step. stop: this rank requests the end after this step. 0, or with error naming the cause:
 *   -EIO, -ERANGE this rank's data cannot be read; the ranks that could read theirs all get
 *                     -ECANCELED in the same step
 *   -EPIPE a peer is lost
 *   -ENOTRECOVERABLE the device failed
 *   -ETIMEDOUT the device did not answer
 * After the last three the process must end.
 */
int step_run(struct step *s, bool stop, struct step_result *out, char *error, size_t error_bytes);

/* Called after each micro-batch of a validation: whether this rank requests its end. */
struct step_asked {
	bool (*stop)(void *arg);
	void *arg;
};

/*
 * The result of a wait for the device that returned rc: 0, or with error the device's own error
 * (-ENOTRECOVERABLE), else rc.
 */
int step_failure(const struct step *s, int rc, char *error, size_t error_bytes);

/*
 * Mean loss over the first sequences of a data set in file order, without dropout. Errors as
 * step_run, and -EINTR: a rank requested the end; all ranks get it after the same micro-batch.
 */
int step_validate(struct step *s, const struct dataset *data, int64_t sequences,
	const struct step_asked *asked, double *loss, char *error, size_t error_bytes);

#endif
