/*
 * segment.h: one segment on one rank, from segment.start to its end. segment_prepare reads and
 * checks the message and opens the files; the ranks then check that they agree (agreement.h) before
 * the first collective on tensors; segment_train does the work. writer.h has what rank 0 writes
 * afterwards.
 */
#ifndef GPT2D_ENGINE_SEGMENT_H
#define GPT2D_ENGINE_SEGMENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/checkpoint/gpt2_weights.h"
#include "engine/checkpoint/saver.h"
#include "engine/data/content.h"
#include "engine/link.h"
#include "engine/report/metrics.h"
#include "engine/train/training.h"

/* Why a segment failed: a code in lower case and a text, as in segment.failed. */
struct segment_failure {
	const char *reason; /* NULL: none */
	bool poisoned;      /* the process must end */
	int exit_code;      /* its exit code in that case */
	bool silent;        /* another rank reports it */
	char message[1024];
};

/* Grows while a segment trains. */
struct segment_counters {
	int64_t mono_ns, cpu_ns;
	int64_t gpu_mj; /* -1: not known */
	struct metrics_host_energy packages;
};

struct segment {
	json_t *params; /* of segment.start; owns the strings below */
	int64_t run, segment;
	const char *dir;
	int world;
	struct spec *spec;
	struct data_roots data_roots;
	struct spec_config config; /* of the one arm, optimizer_steps known */
	char *spec_text;           /* canonical */
	char spec_sha256[65];
	struct dataset train, val;
	bool has_train, has_val;
	struct gpt2_weights weights; /* that the parameters come from */
	bool has_weights;
	json_t *data; /* their identity (dataset_identity_add) */
	/* first rank of a node, with several nodes, and rank 0: their hashes, in progress */
	struct content *content;
	struct training training;
	bool has_training;

	struct collectives_group *group; /* NULL with one rank */
	struct measure measure;
	struct metrics_log log;
	struct metrics_host_rank *ranks; /* rank 0: one of each rank */
	struct gpu_log_samples gpu;      /* of this rank's GPU */
	struct gpu_log_sample *gpus;     /* of each rank's, gpus_room apart; NULL: none has any */
	size_t gpus_room;
	char tuning_sha256[65];             /* of its choices of algorithms; empty: none */
	struct collectives_network network; /* rank 0, with more than one rank */
	struct collectives_bytes sent;
	struct segment_counters at_start; /* of the steps */
	int64_t comm_ns;                  /* communication in the measured steps */
	struct metrics_host_use use;
	bool validated;
	double val_loss;
	/* checkpoints to resume, the best one first; at: the one in use, or n */
	struct segment_resume {
		struct segment_candidate *candidate;
		int n, at;
		struct checkpoint *open; /* NULL: the training starts with step 1 */
		/*
		 * Why the training must not start with step 1: resume_from names nothing that
		 * exists, or an earlier attempt trained all steps. Empty: it may.
		 */
		char missing[768];
	} resume;
	struct saver *saver;             /* the rank's */
	bool saves;                      /* this segment writes checkpoints */
	char checkpoints[SPEC_PATH_MAX]; /* their folder */
	struct metrics_checkpoints saved;
	struct link *link;
	bool cancelled;        /* after `measure.done` steps */
	struct link_stop stop; /* how; empty: not known */
	int64_t received_ns, received_utc_ns, init_ns, switch_ns;
	int64_t wall_ns;

	struct segment_failure failure;
	struct segment *next; /* in the writer's queue */
};

/* A checkpoint that a segment may continue from. */
struct segment_candidate {
	char *dir;  /* of the step */
	bool asked; /* from resume_from: no other one is allowed */
};

/* Steals params. saver and link outlive the segment. */
struct segment *segment_create(json_t *params, struct saver *saver, struct link *link);
void segment_destroy(struct segment *s); /* takes NULL */

/* Reads, checks, opens, allocates. False: failure has the reason. Concerns this rank only. */
bool segment_prepare(struct segment *s, struct warm *w);

/* Sets s->failure; always false. */
bool segment_fail(struct segment *s, const char *reason, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* This process must end, with that code. */
void segment_poison(struct segment *s, int exit_code);
/* Waits until the communication stream is idle. False: a peer is lost, see failure. */
bool segment_sync(struct segment *s, struct warm *w);
/* Sets the failure after a failed wait for peers: that of collectives, else rc. Always false. */
bool segment_lost(struct segment *s, const struct warm *w, int rc);

/*
 * Gathers the measurements of all ranks once, after the last step: fills ranks, gpus and gpus_room
 * and merges measure. It is 96 bytes per step and rank, 104 per sample of a GPU, and 4 MiB at most
 * of waits per rank. On all ranks of the segment, which has done at least one step. False: s has
 * failed with a reason, and this process is poisoned.
 */
bool segment_gather(struct segment *s, struct warm *w);

/* Parameters, steps, validation, gathered times. False: failure, or cancelled, has the reason. */
bool segment_train(struct segment *s, struct warm *w, struct link *link);

/*
 * After each step: false if no further step can help, or if all steps are done and none was
 * applied. The same on every rank; rank 0 reports the failure once its files are written.
 */
bool segment_can_continue(struct segment *s, int rank, const struct measure_step *m);

/* segment.failed, unless another rank sends it. */
void segment_report_failure(const struct segment *s, struct link *link);

#endif
