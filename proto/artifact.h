/*
 * artifact.h: the files of a run, by name, and how one is put on disk. A single run's directory holds them
 * itself; an experiment's directory holds one folder per segment (segments/NNN-ARM/) and, at its top,
 * spec.json and RUN_COMPLETE.txt (written last by gpt2d, after the last segment).
 */
#ifndef GPT2D_ARTIFACT_H
#define GPT2D_ARTIFACT_H

#include <stddef.h>

#define ARTIFACT_SPEC     "spec.json"
#define ARTIFACT_METRICS  "training_metrics.json"
#define ARTIFACT_LAUNCHER "launcher_metadata.json"
#define ARTIFACT_STEP_LOG "step_log.csv"
#define ARTIFACT_LOG      "train.log"
#define ARTIFACT_COMPLETE "RUN_COMPLETE.txt"

#define ARTIFACT_METRICS_SCHEMA "2.0"

/*
 * Write dir/name whole or not at all: dir/.name.tmp, fsync, rename, fsync of dir. 0 or a negative errno;
 * close and fsync errors count. Overwrites an older one.
 */
int artifact_write(const char *dir, const char *name, const void *bytes, size_t n);

/* SHA-256 of bytes, hexadecimal. */
void artifact_sha256(const void *bytes, size_t n, char out[65]);

#endif
