/*
 * segment.h: one segment on one rank, from segment.start to its end. What it needs to know is read
 * from the message, checked and opened (segment_prepare); the ranks then make sure that they all
 * mean the same (agreement.h) before the first collective on tensors is issued; segment_train
 * does the work. What rank 0 writes afterwards is writer.h's.
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

/* Why a segment failed: a code in lower case and a text, as segment.failed carries them. */
struct segment_failure {
	const char *reason; /* NULL: none */
	bool poisoned;      /* the process is of no further use */
	int exit_code;      /* then: what it ends with */
	bool silent;        /* another rank reports it */
	char message[1024];
};

/* What grows while a segment trains. */
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
	/* first rank of a node, where there are several, and rank 0: their hashes, in the making */
	struct content *content;
	struct training training;
	bool has_training;

	struct collectives_group *group; /* NULL in a world of one */
	struct measure measure;
	struct metrics_log log;
	struct metrics_host_rank *ranks; /* rank 0: one of each rank */
	struct gpu_log_samples gpu;      /* of this rank's GPU */
	struct gpu_log_sample *gpus;     /* of each rank's, gpus_room apart; NULL: none has any */
	size_t gpus_room;
	char tuning_sha256[65];             /* of the choices it ran by; empty: there are none */
	struct collectives_network network; /* rank 0, in a world of more than one */
	struct collectives_bytes sent;
	struct segment_counters at_start; /* of the steps */
	int64_t comm_ns;                  /* communication in the measured steps */
	struct metrics_host_use use;
	bool validated;
	double val_loss;
	/* what is resumed, the best one first; at: the one that is in use, or n */
	struct segment_resume {
		struct segment_candidate *candidate;
		int n, at;
		struct checkpoint *open; /* NULL: the training begins with step 1 */
		/*
		 * Why the training must not begin with step 1: resume_from names nothing that is
		 * there, or an earlier attempt trained all steps. Empty: it may.
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

/* A checkpoint that a segment may go on from. */
struct segment_candidate {
	char *dir;  /* of the step */
	bool asked; /* by resume_from: no other one will do */
};

/* Steals params. saver and link outlive the segment. */
struct segment *segment_create(json_t *params, struct saver *saver, struct link *link);
void segment_destroy(struct segment *s); /* takes NULL */

/* Read, check, open, take memory. False: failure says why. Nothing but this rank is touched. */
bool segment_prepare(struct segment *s, struct warm *w);

/* What went wrong, for s->failure; always false. */
bool segment_fail(struct segment *s, const char *reason, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* This process is of no further use, and ends with that code. */
void segment_poison(struct segment *s, int exit_code);
/* Until the communication stream has come to rest. False: a peer is lost, failure says so. */
bool segment_sync(struct segment *s, struct warm *w);
/* What a failed wait for peers comes to: what collectives say, else rc. Always false. */
bool segment_lost(struct segment *s, const struct warm *w, int rc);

/*
 * What every rank has measured, brought together once, after the last step: fills ranks, gpus and
 * gpus_room and merges measure. It is 96 bytes per step and rank, 104 per sample of a GPU, and 4
 * MiB at most of waits per rank. On
 * all ranks of the segment, which has done at least one step. False: s has failed and says why,
 * and this process is poisoned.
 */
bool segment_gather(struct segment *s, struct warm *w);

/* Parameters, steps, validation, gathered times. False: failure, or cancelled, says why. */
bool segment_train(struct segment *s, struct warm *w, struct link *link);

/*
 * After each step: false when no further step can help, or when all steps are done and none was
 * applied. The same on every rank; rank 0 reports the failure once its files are written.
 */
bool segment_can_continue(struct segment *s, int rank, const struct measure_step *m);

/* segment.failed, unless another rank sends it. */
void segment_report_failure(const struct segment *s, struct link *link);

#endif
