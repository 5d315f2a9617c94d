/*
 * metrics.h: the files of one segment, written by rank 0, and the summary that gpt2d keeps of it.
 *
 * spec.json, training_metrics.json, launcher_metadata.json, step_log.csv, rank_times.csv (of more
 * than one rank), gpu_log.csv (where there are GPUs that tell of themselves) and train.log, each
 * written whole or not at all (proto/artifact.h), then RUN_COMPLETE.txt, which names the hashes of
 * spec and metrics: a directory without it is not a finished segment. training_metrics.json has
 * all keys of schema 2.0 of the harness this project comes from; those of Python libraries are
 * null, and what is ours stands under "gpt2d". A value that is not finite is null (empty in
 * step_log.csv) and listed with its step.
 */
#ifndef GPT2D_ENGINE_REPORT_METRICS_H
#define GPT2D_ENGINE_REPORT_METRICS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/comm/collectives.h"
#include "engine/report/metrics_host.h"
#include "engine/report/metrics_log.h"

struct activations_shape;
struct arena;
struct k_device_info;
struct measure;
struct plan;
struct spec_config;

/* ---- what is known of a segment; all pointers are borrowed for the call ---- */

struct metrics_segment {
	const char *dir;  /* exists */
	const char *run;  /* the run's id as gpt2d prints it */
	const char *name; /* the run's name */
	const char *arm;
	int64_t segment, segments, block, position, attempt;
	const char *spec_text;       /* canonical text of this arm */
	const char *spec_sha256;     /* of spec_text */
	const char *run_spec_sha256; /* of the whole run's; NULL: not known */
	const char *command_line;    /* NULL: not known */

	const struct spec_config *config;
	const struct arena *arena;
	const struct plan *plan;
	const struct activations_shape *activations;
	const struct measure *measure;          /* merged, at least one measured step */
	int64_t elem_bytes;                     /* of the compute type */
	int64_t device_bytes;                   /* of all of rank 0's buffers */
	int64_t train_sequences, val_sequences; /* of the data; val 0: none */

	const struct k_device_info *device;
	const char *collectives;               /* collectives_library(); NULL in a world of one */
	const char *tuning_sha256; /* of the choices of algorithms; NULL: none are made */
	struct collectives_bytes sent;         /* by rank 0 in this segment's training steps */
	const struct metrics_host_rank *ranks; /* world of them */
	/* their GPUs' samples, gpus_room apart; NULL: none has any, there is no gpu_log.csv */
	const struct gpu_log_sample *gpus;
	size_t gpus_room;
	int threads;                           /* that compute, per rank */

	bool validated; /* val_loss was asked for */
	double val_loss;
	int64_t init_ns;   /* parameters from the seed */
	int64_t switch_ns; /* last step of the segment before to the first of this; -1: none */
	int64_t started_utc_ns;
	int64_t wall_ns; /* segment.start to now */
	const struct metrics_log *log;
	const char *failed; /* why it failed: the files get no marker then; NULL when it did not */
};

/* The files that were written, for segment.artifact and the summary. */
enum { METRICS_FILES = 8 };
struct metrics_file {
	const char *name;
	int64_t bytes;
};
struct metrics_files {
	size_t n;
	struct metrics_file file[METRICS_FILES];
};

/* Before step 1: a completion marker of an earlier attempt goes. 0 or a negative errno. */
int metrics_begin(const char *dir);

/*
 * Write all files, the marker last. 0, or a negative errno with error naming file and cause
 * ("enospc" is -ENOSPC); then there is no marker.
 */
int metrics_write(const struct metrics_segment *s, struct metrics_files *files, char *error,
	size_t error_bytes);

/* What segment.done carries; a new reference, NULL without memory. */
json_t *metrics_summary(const struct metrics_segment *s, const struct metrics_files *files);

#endif
