/*
 * artifact.h: the files of a run, by name, and how one is put on disk. A single run's directory
 * holds them itself; an experiment's directory holds one folder per segment (segments/NNN-ARM/)
 * and, at its top, spec.json and what gpt2d writes after the last segment: experiment.json,
 * summary.csv and, last, RUN_COMPLETE.txt.
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
 * errno; close and fsync errors count; on failure an older dir/name is as it was, unless it is the
 * last fsync that fails: then the new one is there and may not be durable. name is a plain file
 * name that does not begin with a dot, anything else is -EINVAL.
 */
int artifact_write(const char *dir, const char *name, const void *bytes, size_t n);
/* The same with these permissions, whatever the umask (0: 0644 less what it takes away). */
int artifact_write_mode(
	const char *dir, const char *name, const void *bytes, size_t n, mode_t mode);

/*
 * The code of a reason for a negative errno of a write: "enospc" (no room: ENOSPC, EDQUOT), "io"
 * (the disk takes no writes at all: EROFS, EIO, or it is gone: ENOENT, ESTALE), or "artifacts". The
 * first two are the machine's condition, not the run's fault.
 */
const char *artifact_failure_code(int rc);

/* What is too long to be made whole in memory. */
struct artifact_source {
	/* Its next bytes, valid until the next call; *n 0 at its end. 0, or a negative errno. */
	int (*next)(struct artifact_source *source, const char **bytes, size_t *n);
};
/* As artifact_write_mode; *written is how many bytes it is long. */
int artifact_write_from(const char *dir, const char *name, struct artifact_source *source,
	mode_t mode, int64_t *written);

/* Remove dir/name durably (fsync of dir); 0 also when there is none. */
int artifact_remove(const char *dir, const char *name);

enum { ARTIFACT_DEPTH = 8 }; /* names in a path */

/*
 * Whether path may name a file below a run's directory, or below where it is copied to: relative,
 * each name printable ASCII without blanks and not beginning with a dot.
 */
bool artifact_path_valid(const char *path);

/*
 * SHA-256 of bytes, hexadecimal, NUL-terminated; 0, or -EIO when libcrypto has no SHA-256 to offer.
 */
int artifact_sha256(const void *bytes, size_t n, char out[65]);

#endif
