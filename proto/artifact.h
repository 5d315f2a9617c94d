/*
 * artifact.h: the names of a run's files, and how a file is written to disk. The directory of a
 * single run contains them; the directory of an experiment contains one folder per segment
 * (segments/NNN-ARM/) and, at its top, spec.json and gpt2d's files after the last segment:
 * experiment.json, summary.csv and, last, RUN_COMPLETE.txt.
 */
#ifndef GPT2D_PROTO_ARTIFACT_H
#define GPT2D_PROTO_ARTIFACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define ARTIFACT_SPEC       "spec.json"
#define ARTIFACT_METRICS    "training_metrics.json"
#define ARTIFACT_LAUNCHER   "launcher_metadata.json"
#define ARTIFACT_STEP_LOG   "step_log.csv"
#define ARTIFACT_RANK_TIMES "rank_times.csv"
#define ARTIFACT_GPU_LOG    "gpu_log.csv"
#define ARTIFACT_LOG        "train.log"
#define ARTIFACT_SUMMARY    "summary.json"
#define ARTIFACT_EXPERIMENT "experiment.json"
#define ARTIFACT_TABLE      "summary.csv"
#define ARTIFACT_COMPLETE   "RUN_COMPLETE.txt"

#define ARTIFACT_METRICS_SCHEMA "2.0"

/*
 * Write dir/name whole or not at all: dir/.name.tmp, fsync, rename, fsync of dir. 0 or a negative
 * errno, also for errors of close and fsync. On failure an older dir/name is unchanged, except when
 * the last fsync fails: then the new file exists and may not be durable. name is a plain file name
 * that does not begin with a dot, otherwise -EINVAL.
 */
int artifact_write(const char *dir, const char *name, const void *bytes, size_t n);
/* The same with these permissions, independent of the umask (0: 0644 without the umask's bits). */
int artifact_write_mode(
	const char *dir, const char *name, const void *bytes, size_t n, mode_t mode);

/*
 * The code of a reason for a negative errno of a write: "enospc" (no room: ENOSPC, EDQUOT), "io"
 * (the disk refuses writes: EROFS, EIO, or it is gone: ENOENT, ESTALE), or "artifacts". The first
 * two are faults of the machine, not of the run.
 */
const char *artifact_failure_code(int rc);

/* Content that is too long to be built in memory. */
struct artifact_source {
	/* Its next bytes, valid until the next call; *n 0 at its end. 0, or a negative errno. */
	int (*next)(struct artifact_source *source, const char **bytes, size_t *n);
};
/* As artifact_write_mode; *written is the length in bytes. */
int artifact_write_from(const char *dir, const char *name, struct artifact_source *source,
	mode_t mode, int64_t *written);

/* Remove dir/name durably (fsync of dir); also 0 if it does not exist. */
int artifact_remove(const char *dir, const char *name);

enum { ARTIFACT_DEPTH = 8 }; /* names in a path */

/*
 * Whether path may be a file below a run's directory or below a copy of it: relative, each name
 * printable ASCII without blanks and not beginning with a dot.
 */
bool artifact_path_valid(const char *path);

/* SHA-256 of bytes, hexadecimal, NUL-terminated; 0, or -EIO if libcrypto has no SHA-256. */
int artifact_sha256(const void *bytes, size_t n, char out[65]);

#endif
