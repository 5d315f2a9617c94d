/*
 * experiment_files.h: what gpt2d writes to the folder of an experiment that has ended, also early:
 * experiment.json, the comparison with every sample behind it, and summary.csv, a row for each
 * segment. proto/schema describes both (gpt2d-artifacts(5)).
 */
#ifndef GPT2D_DAEMON_RUNS_EXPERIMENT_FILES_H
#define GPT2D_DAEMON_RUNS_EXPERIMENT_FILES_H

#include <jansson.h>
#include <limits.h>

#include "proto/spec/spec.h"

struct experiment_files {
	const struct spec *spec;
	json_t *rows; /* of all segments, as in "show" */
	json_t *run, *engines;
	char dir[PATH_MAX];
	char hashes[256]; /* out: " experiment_sha256=... summary_sha256=..." */
};

/*
 * Each file whole or not at all: 0, or a negative errno. If no segment is done, there is nothing to
 * compare, and no file is written.
 */
int experiment_files_write(struct experiment_files *f);

#endif
