/*
 * warm.h: what an engine keeps from segment to segment: device, streams, communicator, events,
 * memory, scans of data files. It has no state of a run: every segment sets parameters, moments,
 * the position in the data and random numbers.
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

/* Buffers; each grows to the largest requested size. */
enum warm_slot {
	WARM_PARAMS,
	WARM_GRADS,
	WARM_MASTER, /* fp32 of the owned elements, if the compute type differs */
	WARM_MOMENT_M,
	WARM_MOMENT_V,
	WARM_ACTIVATIONS,
	WARM_BATCH,
	WARM_OPTIMIZER,
	WARM_SHARED,
	WARM_SCRATCH, /* the scratch memory of the compute stream, which owns it */
	WARM_SLOTS = WARM_SCRATCH + K_SCRATCH_KINDS,
};

struct warm {
	int rank, world; /* all ranks of all nodes */
	int local_rank;  /* on this node: the number of its GPU */
	int *nodes;      /* nodes.h, of every rank; NULL: all are on one */
	int threads;
	struct k_context *ctx;
	struct k_stream *compute, *comm;
	struct collectives *collectives; /* NULL with one rank: UCX is not used */
	struct timeline time;
	struct zero zero;
	struct k_event *shared_in, *shared_out;
	void *memory[WARM_SLOTS]; /* NULL from WARM_SCRATCH on */
	int64_t bytes[WARM_SLOTS];
	struct gpu_log *gpu_log; /* NULL: no GPU, or no NVML */
	char no_gpu_log[256];    /* why, if there is a GPU */
	struct graphs graphs;
	struct tuned tuned;
	bool ranks_graphs; /* graphs also with more than one rank */
	bool no_graphs;    /* every operation is launched separately */
	bool no_branches;  /* in graphs one operation runs after another */
	void *host;        /* that the device copies from and to */
	int64_t host_bytes;
	struct dataset_cache scans;
	int64_t work_end_ns; /* monotonic time of the end of the last segment's work; 0: none yet */
	int64_t used_ns;     /* when the communicator was last used */
	int64_t idle_test_ns; /* after this idle time it is tested before a run; 0: never */
};

/*
 * Initialises the rest of a warm engine around an existing device, streams and (with more than one
 * rank) collectives: those fields, rank, world, threads and tuned.dir are set. warm_finish does not
 * free them.
 */
int warm_init(struct warm *w);
void warm_finish(struct warm *w);

struct warm_options {
	int rank, local_rank, world, threads;
	const char *interface; /* to ranks on other nodes; NULL: there are none */
	/* for comparisons: disables graphs, or branches in graphs */
	bool no_graphs, no_branches;
	int64_t collective_timeout_ns;
	int64_t idle_test_ns;   /* as of struct warm */
	double peak_tflops;     /* of a device, for MFU; 0: as its card has it */
	const char *tuning_dir; /* outlives the engine; NULL: timings are not kept */
};
/* Initialises everything. 0 or a negative errno with error. */
int warm_create(
	const struct warm_options *options, struct warm **out, char *error, size_t error_bytes);
void warm_destroy(struct warm *w); /* takes NULL */
/*
 * The same with a time limit, because freeing memory waits for all work of the device, maybe for
 * ever. False: it is not done and continues in a thread; the process must end.
 */
bool warm_destroy_within(struct warm *w, int64_t limit_ns);

/*
 * At least `bytes` of device memory for a slot, with its old content or zero; new memory has been
 * touched, so that no step pays for its pages. -ENOMEM leaves the slot empty.
 */
int warm_take(struct warm *w, enum warm_slot slot, int64_t bytes, void **out);
int warm_take_host(struct warm *w, int64_t bytes, void **out); /* the same for host memory */

/* Bytes that these sizes would add to the memory held. */
int64_t warm_growth(const struct warm *w, const int64_t bytes[WARM_SLOTS]);
/*
 * Frees the slots that hold more than these sizes; their content is lost. Returns the bytes freed.
 */
int64_t warm_shrink(struct warm *w, const int64_t bytes[WARM_SLOTS]);

#endif
