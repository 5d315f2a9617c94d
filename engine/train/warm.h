/*
 * warm.h: what an engine keeps from segment to segment: device, streams, communicator, events,
 * memory, scans of data files. Nothing of it is a run's state: parameters, moments, the place in
 * the data and random numbers are set anew by every segment.
 */
#ifndef GPT2D_ENGINE_TRAIN_WARM_H
#define GPT2D_ENGINE_TRAIN_WARM_H

#include <stddef.h>
#include <stdint.h>

#include "engine/comm/collectives.h"
#include "engine/data/dataset.h"
#include "engine/report/gpu_log.h"
#include "engine/train/graphs.h"
#include "engine/train/timeline.h"
#include "engine/train/tuned.h"
#include "engine/train/zero.h"
#include "kernels/kernels.h"

/* Buffers; each grows to the largest that was asked for. */
enum warm_slot {
	WARM_PARAMS,
	WARM_GRADS,
	WARM_MASTER, /* fp32 of what is owned, where the compute type is another */
	WARM_MOMENT_M,
	WARM_MOMENT_V,
	WARM_ACTIVATIONS,
	WARM_BATCH,
	WARM_OPTIMIZER,
	WARM_SHARED,
	WARM_SCRATCH, /* the compute stream's kinds of it, which holds them itself */
	WARM_SLOTS = WARM_SCRATCH + K_SCRATCH_KINDS,
};

struct warm {
	int rank, world; /* all ranks of all nodes */
	int local_rank;  /* on this node: the number of its GPU */
	int *nodes;      /* nodes.h, of every rank; NULL: all are on one */
	int threads;
	struct k_context *ctx;
	struct k_stream *compute, *comm;
	struct collectives *collectives; /* NULL in a world of one: nothing of UCX is touched */
	struct timeline time;
	struct zero zero;
	struct k_event *shared_in, *shared_out;
	void *memory[WARM_SLOTS]; /* NULL from WARM_SCRATCH on */
	int64_t bytes[WARM_SLOTS];
	struct gpu_log *gpu_log; /* NULL: no GPU, or nothing that tells of it */
	char no_gpu_log[256];    /* why, where there is a GPU */
	struct graphs graphs;
	struct tuned tuned;
	bool ranks_graphs; /* graphs in a world of more than one, too */
	bool no_graphs;    /* every operation is launched by itself */
	bool no_branches;  /* in graphs one operation runs after another */
	void *host;        /* that the device copies from and to */
	int64_t host_bytes;
	struct dataset_cache scans;
	int64_t work_end_ns; /* monotonic, when the last segment's work ended; 0: none yet */
	int64_t used_ns;     /* when the communicator was last used */
	int64_t idle_test_ns; /* idle for so long it is tested before a run; 0: never */
};

/*
 * The rest of a warm engine around a device, streams and (in a world of more than one) collectives
 * that are there already: those fields, rank, world, threads and tuned.dir are set. warm_finish
 * leaves them alone.
 */
int warm_init(struct warm *w);
void warm_finish(struct warm *w);

struct warm_options {
	int rank, local_rank, world, threads;
	const char *interface; /* to ranks on other nodes; NULL: there are none */
	/* for comparison: where there are graphs, do without, or without branches in them */
	bool no_graphs, no_branches;
	int64_t collective_timeout_ns;
	int64_t idle_test_ns;   /* as of struct warm */
	double peak_tflops;     /* of a device, for MFU; 0: as its card has it */
	const char *tuning_dir; /* outlives the engine; NULL: what was timed is not kept */
};
/* All of it. 0 or a negative errno with error naming what failed. */
int warm_create(
	const struct warm_options *options, struct warm **out, char *error, size_t error_bytes);
void warm_destroy(struct warm *w); /* takes NULL */
/*
 * The same, but it takes no longer than that: giving memory back waits for all that a device does,
 * which may be for ever. False: it is not over, goes on in a thread, and the process is to end.
 */
bool warm_destroy_within(struct warm *w, int64_t limit_ns);

/*
 * At least `bytes` of device memory for a slot, as it was left or zero; memory that is new has been
 * touched, so that no step pays for its pages. -ENOMEM leaves the slot empty.
 */
int warm_take(struct warm *w, enum warm_slot slot, int64_t bytes, void **out);
int warm_take_host(struct warm *w, int64_t bytes, void **out); /* likewise, host memory */

/* Bytes that taking these sizes would add to what is held. */
int64_t warm_growth(const struct warm *w, const int64_t bytes[WARM_SLOTS]);
/* Frees the slots that hold more than these sizes; what they held is lost. Bytes freed. */
int64_t warm_shrink(struct warm *w, const int64_t bytes[WARM_SLOTS]);

#endif
